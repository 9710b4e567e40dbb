"""The topic to adopt, found in the metadata of its source."""

from dataclasses import replace
from uuid import uuid4

import pytest
from tests.support.golden_topic import ADDED, PARTITION, finished
from tests.unit.segment.layout_golden import (
    TOPIC_ID,
)

from stratalog.ids import PartitionIndex, SegmentId, TopicId
from stratalog.segment.metadata_fold import FoldedTopics, fold_records
from stratalog.segment.remote_log_metadata import (
    PartitionDeleted,
    PartitionDeleteState,
    RemoteLogRecord,
    encode_record,
)
from stratalog.topic.adoption_source import (
    topic_in_metadata,
    usable_configs,
)
from stratalog.topic.errors import NotInMetadataError

OTHER_ID = TopicId(uuid4())


def named(topic: str, topic_id: TopicId, partition: int = PARTITION) -> list[RemoteLogRecord]:
    where = ADDED.partition._replace(
        topic=topic, topic_id=topic_id, partition=PartitionIndex(partition)
    )
    added = replace(ADDED, partition=where, segment_id=SegmentId(uuid4()))
    return [added, finished(added)]


def deleted(topic: str, topic_id: TopicId, partition: int = PARTITION) -> RemoteLogRecord:
    where = ADDED.partition._replace(
        topic=topic, topic_id=topic_id, partition=PartitionIndex(partition)
    )
    return PartitionDeleted(
        partition=where, broker_id=ADDED.broker_id, event_ms=1, state=PartitionDeleteState.MARKED
    )


def fold(*records: RemoteLogRecord) -> FoldedTopics:
    return fold_records(map(encode_record, records))


def test_a_topic_is_found_by_its_name() -> None:
    metadata = fold(*named("a", TOPIC_ID, 0), *named("a", TOPIC_ID, 2), *named("b", OTHER_ID))
    found, partitions = topic_in_metadata(metadata, "a")
    assert (found, sorted(partitions)) == (TOPIC_ID, [0, 2])


def test_a_topic_that_was_created_again_needs_its_id() -> None:
    metadata = fold(*named("a", TOPIC_ID), *named("a", OTHER_ID))
    with pytest.raises(NotInMetadataError, match=r"several topics called a.*--topic-id"):
        topic_in_metadata(metadata, "a")
    assert topic_in_metadata(metadata, "a", OTHER_ID)[0] == OTHER_ID
    with pytest.raises(NotInMetadataError, match="no topic a with the id"):
        topic_in_metadata(metadata, "a", TopicId(uuid4()))


def test_a_topic_that_was_deleted_is_not_meant() -> None:
    records = [*named("a", TOPIC_ID), deleted("a", TOPIC_ID)]
    with pytest.raises(NotInMetadataError, match="was deleted"):
        topic_in_metadata(fold(*records), "a")
    assert topic_in_metadata(fold(*records, *named("a", OTHER_ID)), "a")[0] == OTHER_ID


def test_a_topic_whose_deletion_has_begun_on_some_partitions_is_refused() -> None:
    records = [record for index in range(4) for record in named("a", TOPIC_ID, index)]
    records += [deleted("a", TOPIC_ID, index) for index in (1, 3)]
    for topic_id in (None, TOPIC_ID):
        with pytest.raises(NotInMetadataError, match=r"is being deleted: .* partitions: 1, 3$"):
            topic_in_metadata(fold(*records), "a", topic_id)
    # Another one of its name is meant then, if there is one.
    found, partitions = topic_in_metadata(fold(*records, *named("a", OTHER_ID, 2)), "a")
    assert (found, sorted(partitions)) == (OTHER_ID, [2])


def test_a_deleted_topic_is_told_also_if_it_is_named_by_its_id() -> None:
    records = [*named("a", TOPIC_ID), deleted("a", TOPIC_ID), *named("a", OTHER_ID)]
    with pytest.raises(NotInMetadataError, match="was deleted"):
        topic_in_metadata(fold(*records), "a", TOPIC_ID)


def test_an_unknown_topic_is_told_with_the_nearest_name() -> None:
    with pytest.raises(NotInMetadataError, match='did you mean "orders"'):
        topic_in_metadata(fold(*named("orders", TOPIC_ID)), "order")


def test_configs_that_mean_nothing_here_are_left_out() -> None:
    usable, left_out = usable_configs(
        {"retention.ms": "5", "no.such": "x", "cleanup.policy": "compact"}
    )
    assert usable == {"retention.ms": "5"}
    assert len(left_out) == 2
    assert "no.such" in left_out[0]
