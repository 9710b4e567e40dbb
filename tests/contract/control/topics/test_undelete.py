"""Deleted topics: kept for a window, brought back whole, given up early."""

import asyncio

import pytest
from tests.contract.control.building import batch, block, commit, part, rows_of, state_of

from stratalog.control.plane import ControlPlane
from stratalog.control.topics.errors import TopicExistsError, UnknownTopicError
from stratalog.control.topics.model import Topic
from stratalog.ids import new_topic_id

DAY_MS = 86_400_000


async def test_a_deleted_topic_keeps_its_rows_for_the_window(
    plane: ControlPlane, topic: Topic
) -> None:
    await commit(plane, batch(part(topic), 3))
    await plane.topics.delete(topic.id)
    assert await plane.topics.purge_deleted(window_ms=DAY_MS, max_rows=100) == 0
    [kept] = await plane.topics.deleted()
    assert (kept.id, kept.name, kept.partition_count) == (topic.id, "events", 3)
    assert kept.offsets == 3
    assert kept.size_bytes > 0
    assert kept.purge_ms is None
    assert await rows_of(plane, part(topic)) == [(0, 2)]
    assert await plane.objects.marked(grace_ms=0, limit=10) == []
    assert await plane.topics.purge_deleted(window_ms=0, max_rows=100) == 1
    assert await plane.topics.deleted() == []


async def test_an_undeleted_topic_is_as_it_was(plane: ControlPlane, topic: Topic) -> None:
    first = batch(part(topic), 2, producer=7, sequence=0)
    await commit(plane, first)
    await plane.topics.set_configs(topic.id, {"retention.ms": "77"})
    [before] = await plane.topics.named(["events"])
    state = await state_of(plane, part(topic))
    await plane.topics.delete(topic.id)
    await plane.topics.undelete(topic.id, "events")
    assert await plane.topics.named(["events"]) == [before]
    assert await state_of(plane, part(topic)) == state
    # The producer goes on with its sequences, and a repeat is known.
    [[repeated]] = await plane.log.commit_blocks([block(first)])
    assert repeated.base_offset == 0
    [[following]] = await plane.log.commit_blocks(
        [block(batch(part(topic), 1, producer=7, sequence=2))]
    )
    assert following.base_offset == 2
    assert await plane.topics.deleted() == []


async def test_an_undeleted_topic_takes_another_name_if_its_own_is_taken(
    plane: ControlPlane, topic: Topic
) -> None:
    await plane.topics.delete(topic.id)
    again = await plane.topics.create("events", partition_count=1, configs={})
    with pytest.raises(TopicExistsError):
        await plane.topics.undelete(topic.id, "events")
    await plane.topics.undelete(topic.id, "older")
    names = {each.name: each.id for each in await plane.topics.all()}
    assert names == {"events": again.id, "older": topic.id}


async def test_a_topic_whose_removal_has_begun_stays_deleted(
    plane: ControlPlane, topic: Topic
) -> None:
    for _ in range(3):
        await commit(plane, batch(part(topic)))
    await plane.topics.delete(topic.id)
    # A crash after the first chunk.
    assert await plane.topics.purge_deleted(window_ms=0, max_rows=1) == 1
    with pytest.raises(UnknownTopicError, match="removal has begun"):
        await plane.topics.undelete(topic.id, "events")
    # A longer window does not stop a removal that has begun.
    while await plane.topics.purge_deleted(window_ms=DAY_MS, max_rows=1):
        pass
    assert await plane.topics.deleted() == []


async def test_a_removal_that_is_ordered_does_not_wait_for_the_window(
    plane: ControlPlane, topic: Topic
) -> None:
    await commit(plane, batch(part(topic)))
    with pytest.raises(UnknownTopicError):
        await plane.topics.order_purge(topic.id)
    await plane.topics.delete(topic.id)
    await plane.topics.order_purge(topic.id)
    with pytest.raises(UnknownTopicError):
        await plane.topics.undelete(topic.id, "events")
    assert await plane.topics.purge_deleted(window_ms=DAY_MS, max_rows=100) == 1
    with pytest.raises(UnknownTopicError):
        await plane.topics.order_purge(new_topic_id())


async def test_of_an_undeletion_and_a_creation_one_gets_the_name(
    plane: ControlPlane, other: ControlPlane
) -> None:
    for turn in range(5):
        name = f"raced-{turn}"
        topic = await plane.topics.create(name, partition_count=1, configs={})
        await plane.topics.delete(topic.id)
        results = await asyncio.gather(
            plane.topics.undelete(topic.id, name),
            other.topics.create(name, partition_count=1, configs={}),
            return_exceptions=True,
        )
        assert sum(isinstance(each, TopicExistsError) for each in results) == 1
        assert [each.name for each in await plane.topics.named([name])] == [name]


async def test_an_undeletion_and_a_purge_never_both_succeed(
    plane: ControlPlane, other: ControlPlane
) -> None:
    for turn in range(5):
        topic = await plane.topics.create(f"raced-{turn}", partition_count=1, configs={})
        await commit(plane, batch(part(topic)))
        await plane.topics.delete(topic.id)
        undeleted, _ = await asyncio.gather(
            plane.topics.undelete(topic.id, topic.name),
            other.topics.purge_deleted(window_ms=0, max_rows=100),
            return_exceptions=True,
        )
        if undeleted is None:
            assert await rows_of(plane, part(topic)) == [(0, 0)]
        else:
            assert isinstance(undeleted, UnknownTopicError)
            assert await plane.topics.named([topic.name]) == []
