"""Plans of adoptions, from records and objects made for the occasion."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.support.golden_topic import finished
from tests.unit.segment.layout_golden import (
    PREFIX,
    TOPIC,
    TOPIC_ID,
)
from tests.unit.topic.tiered_kafka import Kafka, bases, epoch

from stratalog.control.open import open_control_plane
from stratalog.control.plane import ControlPlane
from stratalog.control.segments.model import SegmentState
from stratalog.control.topics.errors import MigrationRefusedError, TopicExistsError
from stratalog.control.topics.migration_state import MigrationState, migration_state
from stratalog.ids import Offset, PartitionIndex, ProducerId, TopicId
from stratalog.objects.store import ObjectStore
from stratalog.segment.errors import (
    LineageGapError,
    SegmentMismatchError,
)
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.keys import INDEXES_SUFFIX, LOG_SUFFIX, MANIFEST_SUFFIX
from stratalog.segment.producer_snapshot import ProducerEntry
from stratalog.segment.remote_log_metadata import (
    RemoteLogRecord,
    SegmentAdded,
)
from stratalog.topic.adopt import (
    check_free,
    open_for_writes,
    plan_adoption,
)
from stratalog.topic.adopted_objects import AdoptedObjects
from stratalog.topic.adoption_source import (
    SourcePartition,
    SourceTopic,
)
from stratalog.topic.errors import AdoptedAlreadyError, OpenTransactionsError, UnsealedSourceError

OTHER_ID = TopicId(uuid4())


# Which segments.


async def test_all_segments_are_adopted_with_their_manifests_and_places(
    kafka: Kafka, store: ObjectStore
) -> None:
    first, second = await kafka.tier(0, 9), await kafka.tier(10, 29)
    plan = await kafka.plan()
    assert bases(plan) == [(0, 9), (10, 29)]
    [one, two] = plan.to_adopt.segments
    assert (one.segment.segment_id, two.segment.segment_id) == (
        first.segment_id,
        second.segment_id,
    )
    assert one.segment.store_url == store.url
    manifest = await store.get(one.segment.key_base + MANIFEST_SUFFIX)
    assert one.uploaded.manifest == bytes(manifest.data).decode()
    heads = [await store.head(one.segment.key_base + s) for s in (LOG_SUFFIX, INDEXES_SUFFIX)]
    sizes = sum(head.size_bytes for head in heads) + len(manifest.data)
    assert one.uploaded.stored_bytes == sizes
    assert not one.uploaded.has_aborted
    assert (plan.to_adopt.log_start, plan.end_offset, plan.lost_records) == (0, 30, 0)
    assert (plan.size_bytes, plan.stored_bytes) == (200, sizes + two.uploaded.stored_bytes)


async def test_progress_is_told_segment_by_segment(kafka: Kafka, store: ObjectStore) -> None:
    for base in (0, 10, 20):
        await kafka.tier(base, base + 9)
    told: list[tuple[str, int, int]] = []
    zero = SourcePartition(partition=PartitionIndex(0), metadata=kafka.partition())
    await plan_adoption(
        SourceTopic(name=TOPIC, topic_id=TOPIC_ID, partitions=[zero]),
        AdoptedObjects(store, key_prefix=PREFIX, keys=KeyRing()),
        lambda *one: told.append(one),
    )
    assert told == [("segments", number, 3) for number in (1, 2, 3)]


async def test_segments_of_a_deposed_leader_are_left_behind(kafka: Kafka) -> None:
    await kafka.tier(0, 9)
    await kafka.tier(10, 49, [epoch(0, 0), epoch(1, 5)])
    await kafka.tier(10, 19, [epoch(0, 0), epoch(2, 10)])
    plan = await kafka.plan()
    assert bases(plan) == [(0, 9), (10, 19)]
    assert plan.to_adopt.epochs == [epoch(0, 0), epoch(2, 10)]


async def test_segments_may_begin_inside_their_predecessor(kafka: Kafka) -> None:
    await kafka.tier(0, 19)
    await kafka.tier(10, 29, [epoch(0, 0), epoch(1, 25)])
    assert bases(await kafka.plan()) == [(0, 19), (10, 29)]


async def test_a_gap_is_refused_unless_the_log_begins_behind_it(kafka: Kafka) -> None:
    await kafka.tier(0, 9)
    await kafka.tier(20, 29)
    with pytest.raises(LineageGapError, match="10 to 19"):
        await kafka.plan()
    with pytest.raises(LineageGapError):
        await kafka.plan(log_start=9)
    assert bases(await kafka.plan(log_start=20)) == [(20, 29)]


async def test_what_lies_wholly_below_the_start_is_not_adopted(kafka: Kafka) -> None:
    for base in (0, 10, 20):
        await kafka.tier(base, base + 9)
    for log_start, expected in ((9, 3), (10, 2), (25, 1)):
        plan = await kafka.plan(log_start=log_start)
        assert len(plan.to_adopt.segments) == expected
        assert (plan.to_adopt.log_start, plan.lost_records) == (log_start, 0)


async def test_a_partition_whose_records_all_expired_begins_where_it_ended(kafka: Kafka) -> None:
    await kafka.tier(0, 9, [epoch(4, 0)])
    plan = await kafka.plan(log_start=10, log_end=10)
    assert (bases(plan), plan.to_adopt.log_start, plan.lost_records) == ([], 10, 0)
    assert plan.to_adopt.epochs == [epoch(4, 10)]


def expired(*segments: SegmentAdded) -> list[RemoteLogRecord]:
    """The records of a deletion that was brought to its end."""
    states = (SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED)
    return [finished(segment, state=state) for segment in segments for state in states]


async def test_a_partition_whose_segments_are_all_gone_begins_where_they_ended(
    kafka: Kafka,
) -> None:
    """A dump tells of no offsets but theirs, and consumers have committed such."""
    first = await kafka.tier(0, 9, [epoch(4, 0)])
    second = await kafka.tier(10, 29, [epoch(4, 0), epoch(7, 10)])
    kafka.records += expired(first, second)
    for log_start in (None, 30):
        plan = await kafka.plan(log_start=log_start)
        assert (bases(plan), plan.to_adopt.log_start, plan.lost_records) == ([], 30, 0)
        assert plan.to_adopt.epochs == [epoch(7, 30)]


async def test_an_upload_that_was_given_up_before_others_expired_loses_nothing(
    kafka: Kafka,
) -> None:
    await kafka.tier(5, 9, finish=False)
    kafka.records += expired(await kafka.tier(0, 29))
    plan = await kafka.plan()
    assert (bases(plan), plan.to_adopt.log_start, plan.lost_records) == ([], 30, 0)
    await kafka.tier(30, 34, finish=False)
    plan = await kafka.plan()
    assert (bases(plan), plan.to_adopt.log_start, plan.lost_records) == ([], 35, 5)


async def test_the_epochs_of_segments_that_are_gone_are_kept_in_mind(kafka: Kafka) -> None:
    """The segment of a leader that was deposed was removed by the next one."""
    await kafka.tier(0, 9)
    kafka.records += expired(await kafka.tier(10, 19, [epoch(0, 0), epoch(9, 10)]))
    assert (await kafka.plan()).to_adopt.epochs == [epoch(0, 0), epoch(9, 10)]


@pytest.mark.parametrize(("log_start", "lost"), [(29, 0), (30, 0), (31, 1), (300, 270)])
async def test_a_start_behind_everything_that_was_tiered_is_refused(
    kafka: Kafka, log_start: int, lost: int
) -> None:
    for base in (0, 10, 20):
        await kafka.tier(base, base + 9)
    plan = await kafka.plan_topic(log_start=log_start)
    assert plan.partitions[0].lost_records == lost
    assert plan.partitions[0].to_adopt.log_start == log_start
    if lost:
        said = f"would begin at offset {log_start}, .* tiered is 29. Correct --log-start"
        with pytest.raises(UnsealedSourceError, match=said):
            plan.check_sealed()
    else:
        plan.check_sealed()


async def test_a_running_source_knows_where_it_begins(kafka: Kafka) -> None:
    """Records may have been deleted before any of them was tiered."""
    await kafka.tier(0, 9)
    plan = await kafka.plan_topic(log_start=300, log_end=300)
    plan.check_sealed()
    assert plan.partitions[0].to_adopt.log_start == 300


async def test_a_segment_beyond_the_end_of_the_log_does_not_count(kafka: Kafka) -> None:
    await kafka.tier(0, 9)
    await kafka.tier(10, 19)
    assert bases(await kafka.plan(log_start=0, log_end=20)) == [(0, 9), (10, 19)]
    plan = await kafka.plan(log_start=0, log_end=19)
    assert (bases(plan), plan.lost_records) == ([(0, 9)], 9)


async def test_the_epochs_of_a_segment_beyond_the_end_do_not_count(kafka: Kafka) -> None:
    await kafka.tier(0, 9)
    await kafka.tier(10, 19, [epoch(0, 0), epoch(5, 12)])
    plan = await kafka.plan(log_start=0, log_end=19)
    assert plan.to_adopt.epochs == [epoch(0, 0), epoch(5, 10)]


async def test_a_checkpoint_that_contradicts_the_metadata_is_refused(kafka: Kafka) -> None:
    await kafka.tier(0, 9)
    added = await kafka.tier(10, 19, [epoch(0, 0), epoch(2, 10)])
    kafka.records[2] = replace(added, leader_epochs=(epoch(3, 10),))
    with pytest.raises(SegmentMismatchError, match="do not tell of the same epochs"):
        await kafka.plan()


async def test_of_two_segments_with_the_same_end_one_is_taken(kafka: Kafka) -> None:
    for base, last in ((0, 19), (10, 29), (15, 29)):
        await kafka.tier(base, last)
    assert bases(await kafka.plan()) == [(0, 19), (15, 29)]


# Epochs and producers.


async def test_the_highest_epoch_that_is_known_is_kept_in_mind(kafka: Kafka) -> None:
    await kafka.tier(0, 9, [epoch(0, 0), epoch(3, 5)])
    assert (await kafka.plan()).to_adopt.epochs == [epoch(0, 0), epoch(3, 5)]
    assert (await kafka.plan(leader_epoch=3)).to_adopt.epochs[-1] == epoch(3, 5)
    assert (await kafka.plan(leader_epoch=4)).to_adopt.epochs[-1] == epoch(4, 10)
    await kafka.tier(10, 19, [epoch(0, 0), epoch(7, 10)], finish=False)
    assert (await kafka.plan()).to_adopt.epochs[-1] == epoch(7, 10)


async def test_producers_come_from_the_last_segment(kafka: Kafka) -> None:
    old = ProducerEntry(ProducerId(1), 0, 5, Offset(5), 0, 99)
    new = ProducerEntry(ProducerId(1), 0, 15, Offset(15), 2, 100)
    await kafka.tier(0, 9, producers=[old])
    await kafka.tier(10, 19, producers=[new])
    [producer] = (await kafka.plan()).to_adopt.producers
    assert producer == (1, 0, 15, 15, 2, 100)


async def test_open_transactions_are_refused_with_their_producers(kafka: Kafka) -> None:
    ended = ProducerEntry(ProducerId(8), 0, 5, Offset(5))
    await kafka.tier(0, 9, producers=[ended])
    (await kafka.plan_topic()).check_transactions()
    still_open = ProducerEntry(ProducerId(9), 0, 5, Offset(15), txn_first_offset=Offset(0))
    await kafka.tier(10, 19, producers=[ended, still_open])
    plan = await kafka.plan_topic()
    assert plan.partitions[0].open_producers == [9]
    with pytest.raises(OpenTransactionsError, match=r"partition 0: 9\."):
        plan.check_transactions()


# Sealed.


@pytest.mark.parametrize(
    ("log_start", "log_end", "lost"), [(0, 20, 0), (0, 21, 1), (12, 25, 5), (None, 20, 0)]
)
async def test_records_behind_the_last_segment_would_be_lost(
    kafka: Kafka, log_start: int | None, log_end: int, lost: int
) -> None:
    await kafka.tier(0, 19)
    plan = await kafka.plan_topic(log_start=log_start, log_end=log_end)
    assert plan.partitions[0].lost_records == lost
    if lost:
        with pytest.raises(UnsealedSourceError, match=f"lost: {lost} of partition 0"):
            plan.check_sealed()
    else:
        plan.check_sealed()


async def test_records_before_the_first_segment_would_be_lost(kafka: Kafka) -> None:
    await kafka.tier(10, 19)
    plan = await kafka.plan(log_start=7, log_end=20)
    assert (plan.lost_records, plan.to_adopt.log_start) == (3, 10)


async def test_an_upload_that_did_not_end_tells_of_records_without_a_segment(
    kafka: Kafka,
) -> None:
    await kafka.tier(0, 9)
    await kafka.tier(10, 14, finish=False)
    assert (await kafka.plan()).lost_records == 5
    # Tried again under another id, nothing is lost.
    await kafka.tier(10, 14)
    assert (await kafka.plan()).lost_records == 0
    # A deletion that did not end is none of that.
    await kafka.tier(15, 19, state=SegmentState.DELETE_STARTED)
    assert (await kafka.plan()).lost_records == 0


async def test_a_partition_with_uploads_alone_is_empty_and_loses_them(kafka: Kafka) -> None:
    await kafka.tier(5, 9, finish=False)
    plan = await kafka.plan()
    assert (bases(plan), plan.lost_records, plan.to_adopt.log_start) == ([], 5, 10)


@pytest.mark.parametrize(
    ("offsets", "start", "lost"),
    [
        ({}, 0, 0),
        ({"log_start": 7}, 7, 0),
        ({"log_start": 7, "log_end": 7}, 7, 0),
        ({"log_start": 7, "log_end": 9}, 9, 2),
    ],
)
async def test_a_partition_that_was_never_tiered_is_empty(
    kafka: Kafka, offsets: dict[str, Any], start: int, lost: int
) -> None:
    plan = await kafka.plan(**offsets)
    assert (bases(plan), plan.to_adopt.log_start, plan.lost_records) == ([], start, lost)
    assert plan.to_adopt.epochs == []


# The steps.


@pytest.fixture
async def control(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    control = await open_control_plane(f"sqlite:{tmp_path / 'control.db'}")
    yield control
    await control.close()


async def test_each_step_of_an_adoption_may_be_the_last_before_a_crash(
    kafka: Kafka, control: ControlPlane
) -> None:
    await kafka.tier(0, 9)
    await check_free(control, TOPIC, TOPIC_ID)
    await control.topics.adopt((await kafka.plan_topic()).topic)
    with pytest.raises(AdoptedAlreadyError, match=r"read but not written.*topic migrate topic1"):
        await check_free(control, TOPIC, TOPIC_ID)
    await control.topics.begin_migration(TOPIC_ID)
    with pytest.raises(AdoptedAlreadyError, match=r"has begun.*topic migrate topic1"):
        await check_free(control, TOPIC, TOPIC_ID)
    await open_for_writes(control, TOPIC_ID)
    with pytest.raises(AdoptedAlreadyError, match="nothing is left to do"):
        await check_free(control, TOPIC, TOPIC_ID)
    [state] = await control.log.topic_partitions(TOPIC_ID)
    assert migration_state(state) is MigrationState.HYBRID
    with pytest.raises(MigrationRefusedError):
        await open_for_writes(control, TOPIC_ID)


async def test_a_name_or_an_id_that_is_taken_is_told(kafka: Kafka, control: ControlPlane) -> None:
    await kafka.tier(0, 9)
    await control.topics.adopt((await kafka.plan_topic()).topic)
    with pytest.raises(TopicExistsError, match="another topic called topic1"):
        await check_free(control, TOPIC, OTHER_ID)
    with pytest.raises(TopicExistsError, match="belongs to topic topic1"):
        await check_free(control, "other", TOPIC_ID)
