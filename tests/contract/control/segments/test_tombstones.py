"""Tombstones of segments: an orphan that the sweeper found never becomes a segment."""

import asyncio
from uuid import uuid4

import pytest
from tests.contract.control.building import batch, commit, part
from tests.contract.control.segment_building import UPLOADED, finished, known, segment

from stratalog.control.plane import ControlPlane
from stratalog.control.segments.errors import SegmentStateError
from stratalog.control.segments.model import SegmentState, SegmentToAdd, SegmentToBar
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.control.topics.model import Topic
from stratalog.ids import TopicId


def tombstone(added: SegmentToAdd) -> SegmentToBar:
    return SegmentToBar(
        topic_id=added.topic_id,
        partition=added.partition,
        base_offset=added.base_offset,
        key_base=added.key_base,
    )


async def test_a_barred_segment_is_refused_and_handed_out_for_deletion(
    plane: ControlPlane, topic: Topic
) -> None:
    late = segment(part(topic), 5, 9)
    assert await plane.segments.bar({late.segment_id: tombstone(late)}) == {late.segment_id}
    with pytest.raises(SegmentStateError, match="build another"):
        await plane.segments.add(late)
    with pytest.raises(SegmentStateError):
        await plane.segments.finish(late.segment_id, UPLOADED)
    [doomed] = await plane.segments.doomed(grace_ms=0, limit=10)
    assert (doomed.segment_id, doomed.key_base) == (late.segment_id, late.key_base)
    assert (doomed.state, doomed.chained, doomed.owned, doomed.uploaded) == (
        SegmentState.DELETE_STARTED,
        False,
        True,
        None,
    )
    assert await plane.segments.known([late.segment_id]) == {late.segment_id}
    await plane.segments.forget([late.segment_id])
    assert await known(plane, late.segment_id) is None


async def test_segments_that_have_a_row_are_not_barred(plane: ControlPlane, topic: Topic) -> None:
    key = part(topic)
    await commit(plane, batch(key, 5))
    started, orphan = segment(key, 0, 4), segment(key, 0, 4)
    await plane.segments.add(started)
    done = await finished(plane, key, 0, 4)
    await plane.segments.chain(done)
    before = [await known(plane, each) for each in (started.segment_id, done)]
    wanted = {each: tombstone(orphan) for each in (started.segment_id, done, orphan.segment_id)}
    assert await plane.segments.bar(wanted) == {orphan.segment_id}
    assert await plane.segments.bar(wanted) == set()
    assert [await known(plane, each) for each in (started.segment_id, done)] == before
    assert await plane.segments.bar({}) == set()


async def test_of_the_sweeper_and_a_late_addition_one_gets_the_id(
    plane: ControlPlane, other: ControlPlane, topic: Topic
) -> None:
    for _ in range(15):
        late = segment(part(topic), 0, 4)
        added, barred = await asyncio.gather(
            plane.segments.add(late),
            other.segments.bar({late.segment_id: tombstone(late)}),
            return_exceptions=True,
        )
        assert barred == ({late.segment_id} if isinstance(added, SegmentStateError) else set())


async def test_a_tombstone_of_a_deleted_topic_outlives_it(
    plane: ControlPlane, topic: Topic
) -> None:
    late = segment(part(topic), 0, 4)
    await plane.segments.bar({late.segment_id: tombstone(late)})
    await plane.topics.delete(topic.id)
    assert await plane.topics.purge_deleted(window_ms=0, max_rows=10) == 0
    assert len(await plane.segments.doomed(grace_ms=0, limit=10)) == 1


async def test_an_export_is_remembered_longer_than_its_topic(
    plane: ControlPlane, topic: Topic
) -> None:
    other = await plane.topics.create("other", partition_count=1, configs={})
    strange = TopicId(uuid4())
    asked = [topic.id, other.id, strange]
    assert await plane.segments.shared_topics(asked) == set()
    for _ in range(2):
        await plane.segments.mark_exported(topic.id)
    # A Kafka cluster has one prefix for all its topics, also for topics that are unknown here.
    assert await plane.segments.shared_topics(asked) == {topic.id, strange}
    await plane.topics.delete(topic.id)
    await plane.topics.purge_deleted(window_ms=0, max_rows=10)
    assert await plane.segments.shared_topics(asked) == {topic.id, strange}
    assert await plane.segments.shared_topics([]) == set()


async def test_a_topic_that_does_not_exist_is_not_marked_as_exported(plane: ControlPlane) -> None:
    with pytest.raises(UnknownTopicError):
        await plane.segments.mark_exported(TopicId(uuid4()))
    assert await plane.segments.shared_topics([TopicId(uuid4())]) == set()
