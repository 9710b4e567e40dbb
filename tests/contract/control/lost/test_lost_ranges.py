"""The record of lost ranges."""

from tests.contract.control.building import batch, block, part

from stratalog.control.lost.model import RangeToNote
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.model import Topic
from stratalog.ids import Offset, TopicPartition, new_topic_id


def note(key: TopicPartition, first: int, end: int, reason: str = "gone") -> RangeToNote:
    return RangeToNote(
        topic_id=key.topic_id,
        partition=key.partition,
        first_offset=Offset(first),
        end_offset=Offset(end),
        reason=reason,
        noted_by="User:alice",
        objects=["blocks/1", "blocks/2"],
    )


async def test_lost_ranges_are_listed_by_offset_with_their_first_reason(
    plane: ControlPlane, topic: Topic
) -> None:
    await plane.lost.record([note(part(topic, 1), 5, 9), note(part(topic), 3, 4)])
    await plane.lost.record([note(part(topic), 3, 4, reason="later"), note(part(topic), 0, 2)])
    await plane.lost.record([])
    found = await plane.lost.of_topic(topic.id)
    assert [(each.partition, each.first_offset, each.end_offset) for each in found] == [
        (0, 0, 2),
        (0, 3, 4),
        (1, 5, 9),
    ]
    assert {each.reason for each in found} == {"gone"}
    assert found[0].objects == ("blocks/1", "blocks/2")
    assert found[0].noted_ms > 0
    assert await plane.lost.of_topic(new_topic_id()) == []


async def test_a_purged_topic_leaves_no_notes(plane: ControlPlane, topic: Topic) -> None:
    await plane.lost.record([note(part(topic), 0, 1)])
    await plane.topics.delete(topic.id)
    await plane.topics.purge_deleted(window_ms=0, max_rows=10)
    assert await plane.lost.of_topic(topic.id) == []


async def test_the_rows_of_an_object_are_the_ones_that_serve_records(
    plane: ControlPlane, topic: Topic
) -> None:
    gone = await plane.topics.create("gone", partition_count=1, configs={})
    keys = [part(topic), part(topic, 1), part(gone)]
    shared = block(*(batch(key, 3) for key in sorted(keys)))
    await plane.log.commit_blocks([shared])
    await plane.log.commit_blocks([block(batch(part(topic), 1))])
    await plane.log.delete_records({part(topic, 1): Offset(3)})
    await plane.topics.delete(gone.id)
    rows = await plane.lost.rows_in(shared.object_id)
    assert [(row.partition, row.base_offset, row.last_offset) for row in rows] == [(0, 0, 2)]
    assert await plane.lost.rows_in(block().object_id) == []
