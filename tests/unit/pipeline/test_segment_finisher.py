"""The driver's part of a segment: the producers that the segment knows at its end."""

from pathlib import Path

from tests.support.adopted_log import adopt_log
from tests.unit.pipeline.lab import Lab
from tests.unit.segment.runs import batch

from stratalog.control.topics.model import Topic
from stratalog.ids import PartitionIndex, TopicPartition
from stratalog.segment.model import IndexKind
from stratalog.segment.producer_snapshot import ProducerEntry, decode_snapshot
from stratalog.settings import DAY_MS, HOUR_MS
from stratalog.topic.adopt import open_for_writes

TOPIC = "adopted"


async def snapshots(lab: Lab, topic: Topic) -> list[dict[int, ProducerEntry]]:
    """The producers that each segment knows of."""
    segments = await lab.control.segments.chained(
        TopicPartition(topic.id, PartitionIndex(0)), limit=10
    )
    reader = lab.segment_reader()
    found = [await reader.index(segment, IndexKind.PRODUCER_SNAPSHOT) for segment in segments]
    await reader.close()
    return [{entry.producer_id: entry for entry in decode_snapshot(each)} for each in found]


async def test_a_producer_that_wrote_long_ago_is_not_carried_on(lab: Lab) -> None:
    assert lab.settings.janitor.producer_expiry_ms == DAY_MS
    topic = await lab.topic(1)
    for producer, age_ms in ((7, DAY_MS + HOUR_MS), (8, DAY_MS - HOUR_MS)):
        await lab.write(topic, {0: [4]}, producer=producer, age_ms=age_ms)
        await lab.run()
    await lab.write(topic, {0: [4]})
    await lab.run()
    assert [list(each) for each in await snapshots(lab, topic)] == [[], [8], [8]]


async def test_transactions_that_were_open_when_a_topic_was_adopted_are_open_no_more(
    lab: Lab, tmp_path: Path
) -> None:
    """They were taken as committed. No transaction will ever end them, and none of them expires."""
    still_open = batch(3, producer_id=7, transactional=True)
    await adopt_log(tmp_path, TOPIC, [[still_open]])
    [topic] = await lab.control.topics.named([TOPIC])
    await open_for_writes(lab.control, topic.id)
    for producer in (8, 9):
        await lab.write(topic, {0: [4]}, producer=producer)
        await lab.run()
    theirs, *ours = await snapshots(lab, topic)
    assert theirs[7].txn_first_offset == 0
    assert len(ours) == 2
    assert all(entry.txn_first_offset < 0 for each in ours for entry in each.values())
