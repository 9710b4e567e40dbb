"""Functions of the real code without their guards, in the order of the list of guards."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from tests.simulation.replacing import replaced
from tests.simulation.strangers import BACKUP_WINDOW_MS

from stratalog.control.identity.model import StoreRole
from stratalog.control.log import commits, reads
from stratalog.control.log.errors import CommitMismatchError, ObjectsKnownError
from stratalog.control.log.model import SPLIT_ROW, CommitOutcome, FoundBatches, Span
from stratalog.control.log.partitions import read_states
from stratalog.control.log.sequences import Producer
from stratalog.control.objects.errors import BarredObjectError
from stratalog.control.pipeline import claims, splits
from stratalog.control.pipeline.model import SplitOutcome
from stratalog.control.segments import chain
from stratalog.control.sql.database import Connection
from stratalog.control.sql.table import rows_from
from stratalog.control.writers.counting import check_count
from stratalog.janitor.deletion import delete_marked
from stratalog.opening import claim
from stratalog.opening.marker import check_owner, read_marker


async def resolve_without_tombstone(self: Any, blocks: Any, count: Any = None) -> Any:
    async def work(connection: Connection) -> Any:
        if count is not None:
            await check_count(connection, count)
        return await commits._stored(connection, blocks)

    try:
        return await self._database.read(work)
    except CommitMismatchError:
        return None


async def bar_nothing(self: Any, objects: Mapping[Any, str]) -> set[Any]:
    found = await self.sizes([*objects])
    return {object_id for object_id in objects if object_id not in found}


async def bar_no_segment(self: Any, segments: Mapping[Any, Any]) -> set[Any]:
    known = await self.known([*segments])
    return {segment_id for segment_id in segments if segment_id not in known}


async def write_objects_unchecked(
    connection: Connection, blocks: Any, plan: Any, *, keep_answers: bool
) -> None:
    try:
        await _write_objects(connection, blocks, plan, keep_answers=keep_answers)
    except ObjectsKnownError:
        return


_write_objects = commits._write_objects


async def count_unchecked(connection: Connection, count: Any) -> None:
    await connection.execute("UPDATE writers SET commits = commits + 1 WHERE tag = $1", count.tag)


def take_everything(
    self: Any, epoch: int, base_sequence: int, last_offset_delta: int, offset: int, now_ms: int
) -> CommitOutcome:
    self._packed = b""
    outcome = _take(self, epoch, base_sequence, last_offset_delta, offset, now_ms)
    assert isinstance(outcome, CommitOutcome)
    return outcome


_take = Producer.take


async def commit_in_any_order(self: Any) -> None:
    while True:
        while not self._queue:
            if self._closed:
                return
            self._queued.clear()
            await self._queued.wait()
        await asyncio.wait(
            [one.uploaded for one in self._queue], return_when=asyncio.FIRST_COMPLETED
        )
        ready = next(one for one in self._queue if one.uploaded.done())
        self._queue.remove(ready)
        error = ready.uploaded.result()
        if error is not None:
            self._fail(ready, error)
        else:
            await self._commit_or_fail([ready])
        self._seal_or_wait()


async def in_no_row(connection: Connection, boundaries: Any) -> bool:
    return False


async def count_rows_as_before(connection: Connection, segment: Any, state: Any) -> Any:
    """The plan goes on looking for rows across the end: the guard is the look under the lock."""
    rows = await _count_rows(connection, segment, state)
    return rows._replace(straddles=await _ends_in_row(connection, segment, state))


_count_rows, _ends_in_row = chain._count_rows, chain._ends_in_row


async def none_found(control: Any, unclaimed: Any) -> int:
    return 0


async def judge_claims_alone(connection: Connection, parts: Any) -> Any:
    held = await claims.lock_claims(connection, {key: one.token for key, one in parts.items()})
    return {key: SplitOutcome.CLAIM_LOST for key in parts if key not in held}


async def replace_whatever_is_there(connection: Connection, parts: Any) -> None:
    for part in parts:
        for row in part.old_rows:
            await connection.execute(
                "DELETE FROM batches WHERE topic_id = $1 AND partition = $2 AND last_offset = $3",
                row.topic_id,
                row.partition,
                row.last_offset,
            )
    new = [row for part in parts for row in part.new_rows]
    await connection.execute(splits._INSERT_ROWS, rows=rows_from(SPLIT_ROW, new))


async def all_claims(connection: Connection, tokens: Mapping[Any, Any]) -> set[Any]:
    return set(tokens)


async def yes(*_: Any) -> bool:
    return True


async def no(*_: Any) -> bool:
    return False


def whoever_has_it(standing: Any, **rest: Any) -> Any:
    return _judge(standing._replace(run_id=None), **rest)


_judge = claims.judge


async def horizon_without_leases(self: Any) -> int:
    return int(self._clock.now_ms() - self.orphan_age_ms)


async def find_in_two_snapshots(
    self: Any, spans: Sequence[Span], *, max_bytes: int | None = None
) -> list[FoundBatches]:
    partitions = [span.topic_partition for span in spans]
    states = await self._database.read(lambda one: read_states(one, partitions))

    async def earlier(connection: Connection, wanted: Any) -> Any:
        return states

    async def find(connection: Connection) -> list[FoundBatches]:
        with replaced(reads, "read_states", earlier):
            return await reads._find(connection, spans, max_bytes)

    found: list[FoundBatches] = await self._database.read(find)
    return found


async def claim_anywhere(control: Any, store: Any) -> Any:
    if await read_marker(store) is None:
        await claim._create(control, store, StoreRole.BLOCKS)
    return await claim._write_next(control, store, StoreRole.BLOCKS)


async def nothing(*_: Any) -> None:
    return None


def no_crc(*_: Any) -> None:
    return None


async def has_object_unchecked(connection: Connection, split: Any) -> bool:
    with suppress(BarredObjectError):
        await _has_object(connection, split)
    return True


_has_object = splits._has_object


async def all_ids(control: Any, ids: Any) -> set[Any]:
    return {*ids}


async def delete_marked_early(control: Any, store: Any, *, grace_ms: int, chunk_rows: int) -> int:
    grace_ms = max(0, grace_ms - BACKUP_WINDOW_MS)
    return await delete_marked(control, store, grace_ms=grace_ms, chunk_rows=chunk_rows)


def check_cluster_alone(found: Any, cluster: Any, _role: Any = None) -> None:
    check_owner(found, cluster)


LEASE_OF_OBJECTS = """
    AND marked_ms < COALESCE(
        (SELECT MIN(started_ms) FROM leases WHERE expires_ms > {now_ms}), marked_ms + 1
    )
"""
LEASE_OF_SEGMENTS = """
    AND changed_ms < COALESCE(
        (SELECT MIN(started_ms) FROM leases WHERE expires_ms > {now_ms}), changed_ms + 1
    )
"""
