"""Chaining: a finished segment becomes the next one of its partition."""

import asyncio

import pytest
from tests.contract.control.building import batch, change, commit, part, rows_of, state_of
from tests.contract.control.segment_building import (
    chain_of,
    finished,
    known,
    segment,
)

from stratalog.control.log import replaced_rows
from stratalog.control.plane import ControlPlane
from stratalog.control.segments.errors import BoundaryMovedError, SegmentStateError
from stratalog.control.segments.model import ChainOutcome, SegmentState
from stratalog.control.sql.database import Database
from stratalog.control.topics.model import Topic
from stratalog.ids import Offset, TopicPartition


async def write(plane: ControlPlane, key: TopicPartition, *records: int) -> None:
    """A row of 100 bytes for each number of records."""
    for each in records:
        await commit(plane, batch(key, each))


async def boundaries(plane: ControlPlane, key: TopicPartition) -> tuple[int, int, int, int]:
    state = await state_of(plane, key)
    return state.log_start, state.remote_end, state.block_start, state.high_watermark


async def test_a_chained_segment_takes_the_place_of_its_rows(
    plane: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    await write(plane, key, 5, 5, 5)
    segment_id = await finished(plane, key, 0, 9)
    assert await boundaries(plane, key) == (0, 0, 0, 15)
    assert await chain_of(plane, key) == []
    assert await plane.segments.chain(segment_id) is ChainOutcome.CHAINED
    assert await boundaries(plane, key) == (0, 10, 10, 15)
    assert await chain_of(plane, key) == [(0, 9)]
    assert await rows_of(plane, key) == [(10, 14)]
    assert (await state_of(plane, key)).size_bytes == 1_000 + 100
    assert len(await plane.objects.marked(grace_ms=0, limit=10)) == 2


async def test_segments_follow_one_another_up_to_the_high_watermark(
    plane: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    await write(plane, key, 5, 5)
    await plane.segments.chain(await finished(plane, key, 0, 4))
    await plane.segments.chain(await finished(plane, key, 5, 9))
    assert await boundaries(plane, key) == (0, 10, 10, 10)
    assert await chain_of(plane, key) == [(0, 4), (5, 9)]
    assert (await state_of(plane, key)).size_bytes == 2_000
    await write(plane, key, 2)
    assert await boundaries(plane, key) == (0, 10, 10, 12)
    assert (await state_of(plane, key)).size_bytes == 2_100


async def test_chaining_again_is_answered_in_the_same_way(
    plane: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    await write(plane, key, 5, 5)
    first = await finished(plane, key, 0, 4)
    second = await finished(plane, key, 5, 9)
    await plane.segments.chain(first)
    await plane.segments.chain(second)
    for segment_id in (first, second):
        assert await plane.segments.chain(segment_id) is ChainOutcome.CHAINED
    assert (await state_of(plane, key)).size_bytes == 2_000


async def test_of_two_chainers_at_once_both_succeed_and_one_chains(
    plane: ControlPlane, other: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    await write(plane, key, 5, 5)
    segment_id = await finished(plane, key, 0, 4)
    outcomes = await asyncio.gather(
        *(each.segments.chain(segment_id) for each in (plane, other, plane, other))
    )
    assert set(outcomes) == {ChainOutcome.CHAINED}
    assert (await state_of(plane, key)).size_bytes == 1_000 + 100
    assert await rows_of(plane, key) == [(5, 9)]


async def test_of_two_segments_for_the_same_offsets_one_is_chained(
    plane: ControlPlane, other: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    await write(plane, key, 5, 5)
    rivals = [await finished(plane, key, 0, 4), await finished(plane, key, 0, 9)]
    results = await asyncio.gather(
        *(p.segments.chain(each) for p, each in zip((plane, other), rivals, strict=True)),
        return_exceptions=True,
    )
    assert sorted(type(each).__name__ for each in results) == ["BoundaryMovedError", "ChainOutcome"]
    assert len(await chain_of(plane, key)) == 1


@pytest.mark.parametrize("state", ["started", "deleted", "unknown"])
async def test_only_a_finished_segment_is_chained(
    plane: ControlPlane, topic: Topic, state: str
) -> None:
    key = part(topic)
    await write(plane, key, 5)
    added = segment(key, 0, 4)
    if state != "unknown":
        await plane.segments.add(added)
    if state == "deleted":
        await plane.segments.delete([added.segment_id])
    with pytest.raises(SegmentStateError):
        await plane.segments.chain(added.segment_id)
    assert await boundaries(plane, key) == (0, 0, 0, 5)


@pytest.mark.parametrize(
    ("base", "last", "named"),
    [
        (4, 9, "begins at 5"),
        (6, 9, "begins at 5"),
        (5, 8, "inside a row"),
        (5, 10, "inside a row"),
        (5, 15, "blocks end at 15"),
        (0, 4, "begins at 5"),
    ],
)
async def test_a_segment_that_does_not_fit_is_refused_with_the_offsets_named(
    plane: ControlPlane, topic: Topic, base: int, last: int, named: str
) -> None:
    key = part(topic)
    await write(plane, key, 5, 5, 5)
    await plane.segments.chain(await finished(plane, key, 0, 4))
    segment_id = await finished(plane, key, base, last)
    with pytest.raises(BoundaryMovedError, match=f"offsets {base} to {last}.*{named}"):
        await plane.segments.chain(segment_id)
    assert await boundaries(plane, key) == (0, 5, 5, 15)
    assert (await state_of(plane, key)).size_bytes == 1_200


@pytest.mark.parametrize(("last_stable", "chained"), [(9, False), (10, True)])
async def test_a_segment_does_not_reach_into_an_open_transaction(
    plane: ControlPlane, topic: Topic, database: Database, last_stable: int, *, chained: bool
) -> None:
    key = part(topic)
    await write(plane, key, 5, 5, 5)
    await change(
        database,
        "UPDATE partitions SET last_stable = $1 WHERE topic_id = $2 AND partition = $3",
        last_stable,
        *key,
    )
    segment_id = await finished(plane, key, 0, 9)
    if chained:
        assert await plane.segments.chain(segment_id) is ChainOutcome.CHAINED
    else:
        with pytest.raises(BoundaryMovedError, match="transaction is open at 9"):
            await plane.segments.chain(segment_id)


@pytest.mark.parametrize(
    ("log_start", "outcome"), [(9, ChainOutcome.CHAINED), (10, ChainOutcome.OVERTAKEN)]
)
async def test_a_segment_whose_records_were_all_deleted_is_deleted_too(
    plane: ControlPlane, topic: Topic, log_start: int, outcome: ChainOutcome
) -> None:
    key = part(topic)
    await write(plane, key, 5, 5, 5)
    segment_id = await finished(plane, key, 0, 9)
    await plane.log.delete_records({key: Offset(log_start)})
    assert await plane.segments.chain(segment_id) is outcome
    left = await known(plane, segment_id)
    assert left is not None
    assert left.chained is (outcome is ChainOutcome.CHAINED)
    assert await boundaries(plane, key) == (log_start, 10, 10, 15)
    if outcome is ChainOutcome.OVERTAKEN:
        assert left.state is SegmentState.DELETE_STARTED
        assert (await state_of(plane, key)).size_bytes == 100


async def test_a_segment_fits_although_the_rows_at_its_beginning_were_deleted(
    plane: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    await write(plane, key, 5, 5, 5)
    segment_id = await finished(plane, key, 0, 9)
    await plane.log.delete_records({key: Offset(7)})
    assert await boundaries(plane, key) == (7, 5, 5, 15)
    assert await plane.segments.chain(segment_id) is ChainOutcome.CHAINED
    assert await boundaries(plane, key) == (7, 10, 10, 15)
    assert (await state_of(plane, key)).size_bytes == 1_000 + 100


async def test_a_segment_of_a_deleted_topic_is_overtaken(plane: ControlPlane, topic: Topic) -> None:
    key = part(topic)
    await write(plane, key, 5)
    segment_id = await finished(plane, key, 0, 4)
    await plane.topics.delete(topic.id)
    assert await plane.segments.chain(segment_id) is ChainOutcome.OVERTAKEN
    left = await known(plane, segment_id)
    assert left is not None
    assert left.state is SegmentState.DELETE_STARTED


async def test_the_local_remainder_is_chained_up_to_where_blocks_begin(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    await write(plane, key, 5, 5, 5)
    await change(database, "UPDATE partitions SET block_start = 10 WHERE topic_id = $1", topic.id)
    beyond = await finished(plane, key, 0, 14)
    with pytest.raises(BoundaryMovedError, match="begins at 10"):
        await plane.segments.chain(beyond)
    # Edges of rows do not matter there, and the size of local records was never counted.
    await plane.segments.chain(await finished(plane, key, 0, 6))
    assert await boundaries(plane, key) == (0, 7, 10, 15)
    await plane.segments.chain(await finished(plane, key, 7, 9))
    assert await boundaries(plane, key) == (0, 10, 10, 15)
    assert (await state_of(plane, key)).size_bytes == 300 + 2_000


async def test_rows_that_a_crash_left_behind_are_taken_by_the_next_retention(
    plane: ControlPlane, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = part(topic)
    await write(plane, key, 5, 5, 5)

    async def crash(*_args: object, **_kwargs: object) -> int:
        raise asyncio.CancelledError

    with monkeypatch.context() as patched:
        patched.setattr(replaced_rows, "remove_rows_below_starts", crash)
        with pytest.raises(asyncio.CancelledError):
            await plane.segments.chain(await finished(plane, key, 0, 9))
    assert await boundaries(plane, key) == (0, 10, 10, 15)
    assert (await state_of(plane, key)).size_bytes == 1_000 + 100
    assert len(await rows_of(plane, key)) == 3
    await plane.log.enforce_retention(key, retention_ms=None, retention_bytes=None, max_rows=100)
    assert await rows_of(plane, key) == [(10, 14)]
    assert (await state_of(plane, key)).size_bytes == 1_000 + 100


async def test_all_rows_leave_when_they_are_more_than_a_chunk(
    plane: ControlPlane, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaced_rows, "_CHUNK_ROWS", 2)
    key = part(topic)
    await write(plane, key, 1, 1, 1, 1, 1, 1)
    await plane.segments.chain(await finished(plane, key, 0, 4))
    assert await rows_of(plane, key) == [(5, 5)]


async def test_partitions_that_are_chained_together_lose_all_their_rows(
    plane: ControlPlane, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaced_rows, "_CHUNK_ROWS", 3)
    keys = [part(topic, partition) for partition in range(3)]
    for key in keys:
        await write(plane, key, 1, 1, 1, 1)
    segments = [await finished(plane, key, 0, 2) for key in keys]
    await asyncio.gather(*(plane.segments.chain(segment_id) for segment_id in segments))
    assert [await rows_of(plane, key) for key in keys] == [[(3, 3)]] * 3
