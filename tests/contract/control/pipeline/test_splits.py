"""Split commits: planned rows are swapped for rows into a split file, all of a part or none."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

import pytest
from tests.contract.control.building import (
    batch,
    change,
    commit,
    part,
    rows_of,
    span,
    state_of,
)
from tests.contract.control.pipeline_building import (
    claim,
    claim_all,
    expire,
    new_run,
    rows_in,
    split,
)
from tests.contract.control.segment_building import finished
from tests.contract.control.tiers import assert_consistent

from stratalog.control.log.model import Coordinates
from stratalog.control.objects.errors import BarredObjectError
from stratalog.control.objects.model import ObjectKind
from stratalog.control.pipeline.errors import SplitRefusedError
from stratalog.control.pipeline.model import ClaimToken, SplitOutcome, SplitPart, SplitToCommit
from stratalog.control.pipeline.splits import Pace
from stratalog.control.plane import ControlPlane
from stratalog.control.sql.database import Database, Work
from stratalog.control.topics.model import Topic
from stratalog.ids import ObjectId, Offset, TopicPartition

T = TypeVar("T")
SWAPPED, ROWS_CHANGED, CLAIM_LOST = SplitOutcome


async def write(plane: ControlPlane, *keys: TopicPartition, blocks: int = 3) -> None:
    """Blocks with 5 records and 100 bytes of each partition."""
    for _ in range(blocks):
        await commit(plane, *(batch(key, 5) for key in keys))


async def live(plane: ControlPlane) -> dict[ObjectId, ObjectKind]:
    return {
        each.object_id: each.kind
        for each in await plane.objects.all(limit=1_000)
        if each.marked_ms is None
    }


async def marked(plane: ControlPlane) -> set[ObjectId]:
    return {each.object_id for each in await plane.objects.marked(grace_ms=0, limit=1_000)}


# The effect of a swap.


async def test_swapped_rows_are_read_from_the_split_file(plane: ControlPlane, topic: Topic) -> None:
    key = part(topic)
    await write(plane, key)
    before, rows = await state_of(plane, key), await rows_in(plane, key)
    file = split((await claim(plane, key), rows[:2]))
    assert await plane.pipeline.commit_split(file) == [SWAPPED]
    [found] = await plane.log.find_batches([span(key, 3)])
    assert list(found.rows) == [*file.parts[0].new_rows, rows[2]]
    assert found.rows[0].stamped
    assert await state_of(plane, key) == before
    assert await live(plane) == {
        file.object_id: ObjectKind.SPLIT,
        rows[2].object_id: ObjectKind.BLOCK,
    }
    assert await marked(plane) == {row.object_id for row in rows[:2]}
    await assert_consistent(plane, key)


async def test_a_block_is_marked_with_the_last_of_its_partitions(
    plane: ControlPlane, topic: Topic
) -> None:
    keys = [part(topic, 0), part(topic, 1)]
    await write(plane, *keys, blocks=2)
    blocks = {row.object_id for row in await rows_in(plane, keys[0])}
    for key, expected in zip(keys, (set(), blocks), strict=True):
        file = split((await claim(plane, key), await rows_in(plane, key)))
        assert await plane.pipeline.commit_split(file) == [SWAPPED]
        assert await marked(plane) == expected


async def test_a_part_that_does_not_fit_costs_only_itself(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    keys = [part(topic, index) for index in range(3)]
    await write(plane, *keys)
    parts = [(await claim(plane, key), await rows_in(plane, key)) for key in keys]
    await plane.log.delete_records({keys[0]: Offset(5)})
    await plane.pipeline.release_claims([parts[1][0]])
    file = split(*parts)
    assert await plane.pipeline.commit_split(file) == [ROWS_CHANGED, CLAIM_LOST, SWAPPED]
    assert [len(await rows_in(plane, key)) for key in keys] == [2, 3, 1]
    assert (await live(plane))[file.object_id] is ObjectKind.SPLIT
    for key in keys:
        await assert_consistent(plane, key)


async def test_many_parts_share_few_transactions(
    plane: ControlPlane, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await plane.topics.create("thin", partition_count=40, configs={})
    keys = [part(topic, index) for index in range(40)]
    await write(plane, *keys)
    claims = {each.partition: each.token for each in await claim_all(plane, new_run(), *keys)}
    file = split(*[(claims[key], await rows_in(plane, key)) for key in reversed(keys)])
    monkeypatch.setattr("stratalog.control.pipeline.splits._MOST_ROWS", 40)
    monkeypatch.setattr("stratalog.control.pipeline.splits._LONG_S", 60)
    counted = Counted(database)
    await plane.log.delete_records({keys[7]: Offset(5)})
    outcomes = await ControlPlane(counted, os.urandom).pipeline.commit_split(file)
    assert outcomes == [SWAPPED] * 32 + [ROWS_CHANGED] + [SWAPPED] * 7
    assert counted.writes == 4, "with ten parts of four rows each"
    assert [len(await rows_in(plane, key)) for key in keys] == [1] * 7 + [2] + [1] * 32
    for key in keys[:12]:
        await assert_consistent(plane, key)


class Counted:
    """A database that counts the transactions that write."""

    def __init__(self, inner: Database) -> None:
        self._inner = inner
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def write(self, work: Work[T]) -> T:
        self.writes += 1
        return await self._inner.write(work)


async def test_files_with_the_same_partitions_are_committed_at_once(
    plane: ControlPlane, other: ControlPlane
) -> None:
    """In any order of their parts, no transaction waits for ever, and one of each pair fits."""
    topic = await plane.topics.create("busy", partition_count=12, configs={})
    keys = [part(topic, index) for index in range(12)]
    for _ in range(5):
        await write(plane, *keys, blocks=2)
        claims = {each.partition: each.token for each in await claim_all(plane, new_run(), *keys)}
        planned = [(claims[key], (await rows_in(plane, key))[-2:]) for key in keys]
        ones, others, _ = await asyncio.gather(
            plane.pipeline.commit_split(split(*planned)),
            other.pipeline.commit_split(split(*reversed(planned))),
            commit(plane, *(batch(key, 5) for key in keys)),
        )
        pairs = zip(ones, reversed(others), strict=True)
        assert all(sorted(pair) == [SWAPPED, ROWS_CHANGED] for pair in pairs)
        await plane.pipeline.release_claims(list(claims.values()))
    for key in keys:
        await assert_consistent(plane, key)


class Ticking:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def now_ms(self) -> int:
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


def taken(pace: Pace, clock: Ticking, rows: int, seconds: float) -> int:
    """How many parts of so many rows share a transaction that takes so long."""
    parts = [SplitPart(token=ClaimToken(UUID(int=0)), old_rows=[None] * rows, new_rows=[])] * 9999  # type: ignore[list-item]
    with pace:
        count = len(pace.take(parts))
        clock.seconds += seconds
    return count


def test_a_transaction_has_a_part_at_least_and_no_more_rows_than_it_may() -> None:
    clock = Ticking()
    pace = Pace(clock)
    assert taken(pace, clock, 1, 0.01) == 2048
    assert taken(pace, clock, 1024, 0.01) == 2
    assert taken(pace, clock, 1025, 0.01) == 1
    assert taken(pace, clock, 5000, 0.01) == 1


def test_a_slow_database_is_given_less_at_a_time() -> None:
    clock = Ticking()
    pace = Pace(clock)
    slow = [taken(pace, clock, 1, 0.11) for _ in range(14)]
    assert slow[:3] == [2048, 1024, 512]
    assert slow[-2:] == [1, 1]
    assert [taken(pace, clock, 1, 0.09) for _ in range(3)] == [1, 2, 4]


async def test_split_files_are_split_again(plane: ControlPlane, topic: Topic) -> None:
    key = part(topic)
    await write(plane, key, blocks=4)
    token = await claim(plane, key)
    rows = await rows_in(plane, key)
    first = split((token, rows[:2]))
    assert await plane.pipeline.commit_split(first) == [SWAPPED]
    assert await plane.pipeline.commit_split(split((token, await rows_in(plane, key)))) == [SWAPPED]
    assert await rows_of(plane, key) == [(0, 19)]
    assert first.object_id in await marked(plane)


async def test_a_split_of_splits_keeps_the_commit_time_of_the_oldest_batch(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    await write(plane, key, blocks=4)
    await change(database, "UPDATE batches SET committed_ms = base_offset")
    token, rows = await claim(plane, key), await rows_in(plane, key)
    assert [(row.oldest_ms, row.oldest_commit_ms) for row in rows] == [
        (None, 0), (None, 5), (None, 10), (None, 15),
    ]  # fmt: skip
    assert await plane.pipeline.commit_split(split((token, rows[1:3]))) == [SWAPPED]
    rows = await rows_in(plane, key)
    assert [(row.oldest_commit_ms, row.committed_ms) for row in rows] == [(0, 0), (5, 10), (15, 15)]
    [found] = await plane.log.find_batches([span(key, 0)])
    assert list(found.rows) == rows
    assert await plane.pipeline.coordinates_in([rows[1].object_id]) == rows[1:2]
    assert await plane.pipeline.commit_split(split((token, rows[1:]))) == [SWAPPED]
    rows = await rows_in(plane, key)
    assert [(row.oldest_commit_ms, row.committed_ms) for row in rows] == [(0, 0), (5, 15)]


async def test_rows_that_an_older_version_joins_are_swapped_as_any_other(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    """It writes no time of the oldest batch. The commit time is the oldest that is known then."""
    key = part(topic)
    await write(plane, key, blocks=4)
    await change(database, "UPDATE batches SET committed_ms = base_offset")
    token = await claim(plane, key)
    assert await plane.pipeline.commit_split(split((token, (await rows_in(plane, key))[:2]))) == [
        SWAPPED
    ]
    file = split((token, (await rows_in(plane, key))[:2]))
    assert await plane.pipeline.commit_split(file) == [SWAPPED]
    await change(database, "UPDATE batches SET oldest_ms = NULL")
    assert await plane.pipeline.commit_split(file) == [SWAPPED]
    rows = await rows_in(plane, key)
    assert [(row.oldest_ms, row.oldest_commit_ms) for row in rows] == [(None, 10), (None, 15)]
    assert await plane.pipeline.commit_split(split((token, rows))) == [SWAPPED]
    [row] = await rows_in(plane, key)
    assert (row.oldest_commit_ms, row.committed_ms) == (10, 15)


async def test_records_that_are_written_meanwhile_do_not_disturb(
    plane: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    await write(plane, key)
    file = split((await claim(plane, key), await rows_in(plane, key)))
    await write(plane, key, blocks=1)
    assert await plane.pipeline.commit_split(file) == [SWAPPED]
    assert await rows_of(plane, key) == [(0, 14), (15, 19)]
    await assert_consistent(plane, key)


async def test_a_lease_keeps_the_objects_that_its_holder_may_be_reading(
    plane: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    await write(plane, key)
    rows = await rows_in(plane, key)
    lease = await plane.scans.take_lease("scan", duration_ms=60_000)
    assert await plane.pipeline.commit_split(split((await claim(plane, key), rows))) == [SWAPPED]
    assert await marked(plane) == set()
    await plane.scans.release_lease(lease.lease_id)
    assert await marked(plane) == {row.object_id for row in rows}


# Rows that are not as planned.


@pytest.mark.parametrize(
    "changed",
    [
        {"base_offset": 6},
        {"last_offset": 8},
        {"byte_offset": 1},
        {"byte_size": 99},
        {"object_id": ObjectId(UUID(int=7))},
    ],
    ids=str,
)
async def test_rows_that_are_not_exactly_the_planned_ones_stay(
    plane: ControlPlane, topic: Topic, database: Database, changed: dict[str, Any]
) -> None:
    key = part(topic)
    await write(plane, key)
    file = split((await claim(plane, key), await rows_in(plane, key)))
    [column] = changed
    sql = f"UPDATE batches SET {column} = $1 WHERE base_offset = 5"
    await change(database, sql, changed[column])
    assert await plane.pipeline.commit_split(file) == [ROWS_CHANGED]
    assert file.object_id not in await live(plane)
    rows = await database.read(lambda c: c.fetch("SELECT base_offset FROM batches WHERE stamped"))
    assert rows == []
    assert await marked(plane) == set()


@pytest.mark.parametrize(("start", "outcome"), [(4, SWAPPED), (5, ROWS_CHANGED)])
async def test_rows_that_were_deleted_meanwhile_do_not_come_back(
    plane: ControlPlane, topic: Topic, start: int, outcome: SplitOutcome
) -> None:
    """A row goes when its last record does."""
    key = part(topic)
    await write(plane, key)
    file = split((await claim(plane, key), await rows_in(plane, key)))
    await plane.log.delete_records({key: Offset(start)})
    assert await plane.pipeline.commit_split(file) == [outcome]
    assert (await state_of(plane, key)).log_start == start
    await assert_consistent(plane, key)


async def test_rows_that_wait_for_their_deletion_are_not_swapped(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    await write(plane, key)
    file = split((await claim(plane, key), await rows_in(plane, key)))
    await change(database, "UPDATE partitions SET log_start = 1, block_start = 1")
    assert await plane.pipeline.commit_split(file) == [ROWS_CHANGED]
    assert len(await rows_of(plane, key)) == 3


async def test_rows_that_a_segment_replaced_are_not_swapped(
    plane: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    await write(plane, key)
    file = split((await claim(plane, key), await rows_in(plane, key)))
    await plane.segments.chain(await finished(plane, key, 0, 4))
    assert await plane.pipeline.commit_split(file) == [ROWS_CHANGED]
    await assert_consistent(plane, key)


# Doubt, and the sweeper.


async def test_a_repeated_commit_is_answered_in_the_same_way(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    keys = [part(topic, index) for index in range(3)]
    await write(plane, *keys)
    tokens = [await claim(plane, key) for key in keys]
    file = split(*[(t, await rows_in(plane, k)) for t, k in zip(tokens, keys, strict=True)])
    # The first call was interrupted after its first part.
    await plane.pipeline.commit_split(replace(file, parts=file.parts[:1]))
    await plane.log.delete_records({keys[1]: Offset(15)})
    for _ in range(2):
        assert await plane.pipeline.commit_split(file) == [SWAPPED, ROWS_CHANGED, SWAPPED]
        assert await rows_of(plane, keys[0]) == await rows_of(plane, keys[2]) == [(0, 14)]
    await expire(database)
    assert await plane.pipeline.commit_split(file) == [SWAPPED, CLAIM_LOST, SWAPPED]
    for key in keys:
        await assert_consistent(plane, key)


async def test_a_file_that_the_sweeper_gave_up_is_refused(
    plane: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    await write(plane, key)
    file = split((await claim(plane, key), await rows_in(plane, key)))
    assert await plane.objects.bar({file.object_id: file.key}) == {file.object_id}
    with pytest.raises(BarredObjectError, match=file.key):
        await plane.pipeline.commit_split(file)
    assert len(await rows_of(plane, key)) == 3
    assert await marked(plane) == set()


async def test_of_a_commit_and_the_sweeper_one_gets_the_file(
    plane: ControlPlane, other: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    token = await claim(plane, key)
    for _ in range(10):
        await write(plane, key, blocks=1)
        rows = await rows_in(plane, key)
        file = split((token, rows))
        outcome, barred = await asyncio.gather(
            plane.pipeline.commit_split(file),
            other.objects.bar({file.object_id: file.key}),
            return_exceptions=True,
        )
        if isinstance(outcome, BarredObjectError):
            assert barred == {file.object_id}
            assert await rows_in(plane, key) == rows
        else:
            assert (outcome, barred) == ([SWAPPED], set())
        await assert_consistent(plane, key)


@pytest.mark.parametrize("forgotten", [False, True])
async def test_a_file_that_lost_its_rows_is_never_referred_to_again(
    plane: ControlPlane, topic: Topic, *, forgotten: bool
) -> None:
    """It is about to be deleted, or is deleted already, when the rest of its commit comes."""
    keys = [part(topic, 0), part(topic, 1)]
    await write(plane, *keys)
    file = split(*[(await claim(plane, key), await rows_in(plane, key)) for key in keys])
    assert await plane.pipeline.commit_split(replace(file, parts=file.parts[:1])) == [SWAPPED]
    await plane.log.delete_records({keys[0]: Offset(15)})
    assert file.object_id in await marked(plane)
    if forgotten:
        await plane.objects.forget([file.object_id])
        await plane.log.forget_answers(older_than_ms=60_000)
    assert await plane.pipeline.commit_split(file) == [ROWS_CHANGED, ROWS_CHANGED]
    assert len(await rows_of(plane, keys[1])) == 3


# Mistakes.


def _broken(file: SplitToCommit, **changes: Any) -> SplitToCommit:
    [made] = file.parts
    return replace(file, parts=[replace(made, **changes)])


def _changed(rows: Sequence[Coordinates], index: int, **changes: Any) -> list[Coordinates]:
    return [row._replace(**changes) if i == index else row for i, row in enumerate(rows)]


async def test_parts_that_do_not_fit_together_are_refused_as_a_whole(
    plane: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    await write(plane, key)
    rows, token = await rows_in(plane, key), await claim(plane, key)
    good = split((token, rows))
    new = good.parts[0].new_rows
    late = rows[-1].committed_ms + 1
    broken = {
        "no rows": _broken(good, new_rows=[]),
        "another partition": _broken(good, new_rows=_changed(new, 0, partition=1)),
        "a hole": _broken(good, old_rows=[rows[0], rows[2]]),
        "cannot become": _broken(good, old_rows=rows[:2]),
        "bytes cannot become": _broken(good, new_rows=_changed(new, 0, byte_size=299)),
        "stamped": _broken(good, new_rows=_changed(new, 0, stamped=False)),
        "in this file": _broken(good, new_rows=_changed(new, 0, object_id=rows[0].object_id)),
        "beyond the 299 bytes": replace(good, size_bytes=299),
        "beyond": _broken(good, new_rows=_changed(new, 0, byte_offset=-1)),
        "commit times": _broken(good, new_rows=_changed(new, 0, committed_ms=late)),
        "the oldest batch": _broken(good, new_rows=_changed(new, 0, oldest_ms=late)),
        "the same partition": replace(good, parts=[*good.parts, *good.parts]),
    }
    for named, file in broken.items():
        with pytest.raises(SplitRefusedError, match=named):
            await plane.pipeline.commit_split(file)
    assert await rows_in(plane, key) == rows
    assert good.object_id not in await live(plane)
    assert await plane.pipeline.commit_split(good) == [SWAPPED]
