"""A lost segment gives way to one of the same offsets, or the swap is refused."""

from typing import Any

import pytest
from tests.contract.control.building import batch, commit, part, state_of
from tests.contract.control.segment_building import chain_of, finish, finished, known, segment

from stratalog.control.lost.errors import LostRangeBusyError, LostRangeChangedError
from stratalog.control.lost.model import RangeToNote
from stratalog.control.lost.swap import SegmentToSwap
from stratalog.control.plane import ControlPlane
from stratalog.control.segments.errors import BoundaryMovedError
from stratalog.control.segments.model import SegmentState
from stratalog.control.topics.model import Topic
from stratalog.ids import Offset, SegmentId, TopicPartition


async def three(plane: ControlPlane, key: TopicPartition) -> list[SegmentId]:
    """Three chained segments of five offsets and 1,000 bytes, and a row behind them."""
    for _ in range(4):
        await commit(plane, batch(key, 5))
    ids = [await finished(plane, key, 5 * number, 5 * number + 4) for number in range(3)]
    for each in ids:
        await plane.segments.chain(each)
    return ids


async def replacement(plane: ControlPlane, key: TopicPartition, **changes: Any) -> SegmentId:
    return await finish(plane, segment(key, 5, 9, size=61, max_timestamp=-1, **changes))


def swapped(key: TopicPartition, lost: SegmentId, new: SegmentId) -> SegmentToSwap:
    note = RangeToNote(
        topic_id=key.topic_id,
        partition=key.partition,
        first_offset=Offset(5),
        end_offset=Offset(10),
        reason="gone",
        noted_by="User:alice",
        objects=["segments/1.log"],
    )
    return SegmentToSwap(note=note, lost_id=lost, new_id=new)


async def test_the_chain_has_the_replacement_and_the_lost_segment_is_deleted(
    plane: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    _, lost, _ = await three(plane, key)
    before = await state_of(plane, key)
    new = await replacement(plane, key)
    for _ in range(2):
        await plane.lost.swap(swapped(key, lost, new))
        assert await chain_of(plane, key) == [(0, 4), (5, 9), (10, 14)]
        chained = await plane.segments.chained(key, limit=10)
        assert chained[1].segment_id == new
        # Retention takes it when it would have taken the lost one.
        assert (chained[1].max_timestamp, chained[1].added_ms) == (-1, 1_000)
        after = await state_of(plane, key)
        assert after.size_bytes == before.size_bytes - 1_000 + 61
        assert (after.log_start, after.remote_end) == (before.log_start, before.remote_end)
        assert [one.segment_id for one in await plane.segments.doomed(grace_ms=0, limit=9)] == [
            lost
        ]
        [noted] = await plane.lost.of_topic(topic.id)
        assert (noted.first_offset, noted.end_offset, noted.reason) == (5, 10, "gone")


async def refused(plane: ControlPlane, swap: SegmentToSwap) -> None:
    before = await plane.segments.all(limit=100)
    with pytest.raises(LostRangeChangedError):
        await plane.lost.swap(swap)
    assert await plane.segments.all(limit=100) == before
    assert await plane.lost.of_topic(swap.note.topic_id) == []


async def test_only_the_expected_segment_is_swapped(plane: ControlPlane, topic: Topic) -> None:
    key = part(topic)
    first, lost, _ = await three(plane, key)
    new = await replacement(plane, key)
    await refused(plane, swapped(key, first, new))
    await refused(plane, swapped(part(topic, 1), lost, new))
    await refused(plane, swapped(key, new, lost))
    longer = await finished(plane, key, 5, 10)
    await refused(plane, swapped(key, lost, longer))
    started = segment(key, 5, 9)
    await plane.segments.add(started)
    await refused(plane, swapped(key, lost, started.segment_id))


async def test_a_replacement_whose_deletion_began_is_refused(
    plane: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    _, lost, _ = await three(plane, key)
    new = await replacement(plane, key)
    await plane.segments.delete([new])
    await refused(plane, swapped(key, lost, new))


async def test_a_segment_below_the_start_is_left_to_retention(
    plane: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    _, lost, _ = await three(plane, key)
    new = await replacement(plane, key)
    await plane.log.delete_records({key: Offset(10)})
    await refused(plane, swapped(key, lost, new))


async def test_a_segment_of_a_deleted_topic_is_refused(plane: ControlPlane, topic: Topic) -> None:
    key = part(topic)
    _, lost, _ = await three(plane, key)
    new = await replacement(plane, key)
    await plane.topics.delete(topic.id)
    await refused(plane, swapped(key, lost, new))


async def test_a_partition_under_a_claim_is_refused(plane: ControlPlane, topic: Topic) -> None:
    key = part(topic)
    _, lost, _ = await three(plane, key)
    new = await replacement(plane, key)
    await plane.lost._database.write(
        lambda connection: connection.execute(
            "INSERT INTO claims (topic_id, partition, token, expires_ms, attempts)"
            " VALUES ($1, $2, $1, {now_ms} + 60000, 0)",
            *key,
        )
    )
    with pytest.raises(LostRangeBusyError):
        await plane.lost.swap(swapped(key, lost, new))
    assert (await plane.segments.chained(key, limit=10))[1].segment_id == lost


async def test_a_replacement_that_was_not_swapped_fits_nowhere(
    plane: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    await three(plane, key)
    new = await replacement(plane, key)
    with pytest.raises(BoundaryMovedError):
        await plane.segments.chain(new)
    found = await known(plane, new)
    assert found is not None
    assert (found.state, found.chained) == (SegmentState.COPY_FINISHED, False)
