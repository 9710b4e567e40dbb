"""`commit_split`: rows move from the blocks, where they were written, into a split file.

A part is swapped in one short transaction, which does it wholly or not at all. Under the head's
lock nobody else changes rows from `block_start` on, except for the purge of a deleted topic; so
what is compared with the plan there is what is replaced. The bytes are the same, and so is the
partition's size.

The object has a row from its first part on, and that row stays, as "gone", for as long as answers
to commits are kept: a commit that is repeated late never points at an object that was deleted
meanwhile.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

from stratalog.control.claims import lock_claim
from stratalog.control.database import Connection, Rows, as_uuid, shape
from stratalog.control.model import Coordinates, ObjectKind
from stratalog.control.objects import ObjectState, lock_to_mark, mark_unreferenced
from stratalog.control.operations import Operations
from stratalog.control.partitions import lock_heads, read_states
from stratalog.control.pipeline_model import SplitOutcome, SplitPart, SplitToCommit
from stratalog.control.plane import BarredObjectError
from stratalog.errors import CallError
from stratalog.ids import TopicPartition, kafka_base64

_NOTHING_IN_DOUBT = b""
"""In place of answers. What counts is that they are kept for a time, and the object's row with
them."""
_RANGE = "topic_id = $1 AND partition = $2 AND last_offset >= $3 AND last_offset <= $4"
_ROW = shape(
    topic_id="uuid",
    partition="integer",
    base_offset="bigint",
    last_offset="bigint",
    object_id="uuid",
    byte_offset="bigint",
    byte_size="bigint",
    max_timestamp="bigint",
    timestamp_type="smallint",
    committed_ms="bigint",
    leader_epoch="integer",
)


class SplitRefusedError(CallError):
    """The parts of a split file do not fit together. Nothing was changed."""


class Piece(NamedTuple):
    """As much of a row as makes it this one."""

    base_offset: int
    last_offset: int
    object_id: UUID
    byte_offset: int
    byte_size: int


class _RowsChangedError(Exception):
    """Leaves the transaction: rows that were there a moment ago are gone."""


class SplitOperations(Operations):
    async def commit_split(self, split: SplitToCommit) -> list[SplitOutcome]:
        check_split(split)
        return [await self._swap(split, part) for part in split.parts]

    async def _swap(self, split: SplitToCommit, part: SplitPart) -> SplitOutcome:
        with suppress(_RowsChangedError):
            return await self._database.write(partial(_swap, split=split, part=part))
        return SplitOutcome.ROWS_CHANGED


def check_split(split: SplitToCommit) -> None:
    for part in split.parts:
        for breach in _breaches(split, part):
            raise SplitRefusedError(f"split file {split.key}: {breach}")


def _breaches(split: SplitToCommit, part: SplitPart) -> Iterator[str]:
    old, new = part.old_rows, part.new_rows
    if not old or not new:
        yield "a part has no rows"
        return
    partition = _partition(part)
    where = f"partition {partition.partition} of topic {kafka_base64(partition.topic_id)}"
    if any((row.topic_id, row.partition) != partition for row in (*old, *new)):
        yield f"{where}: some of its rows belong to another partition"
    if _holes(old) or _holes(new):
        yield f"{where}: there is a hole between its rows"
    if _offsets(old) != _offsets(new):
        yield f"{where}: offsets {_offsets(old)} cannot become {_offsets(new)}"
    if _bytes(old) != _bytes(new):
        yield f"{where}: {_bytes(old)} bytes cannot become {_bytes(new)}"
    if any(row.object_id != split.object_id or not row.stamped for row in new):
        yield f"{where}: its new rows are not all stamped and in this file"
    if any(not 0 <= row.byte_offset <= split.size_bytes - row.byte_size for row in new):
        yield f"{where}: its new rows reach beyond the {split.size_bytes} bytes of the file"
    times = [old[0].committed_ms, *(row.committed_ms for row in new), old[-1].committed_ms]
    # What has aged is a prefix only as long as commit times grow with the offset.
    if times != sorted(times):
        yield f"{where}: its new rows have commit times that the old ones had not"


def _holes(rows: Sequence[Coordinates]) -> bool:
    return any(one.last_offset + 1 != other.base_offset for one, other in pairwise(rows))


def _offsets(rows: Sequence[Coordinates]) -> tuple[int, int]:
    return rows[0].base_offset, rows[-1].last_offset


def _bytes(rows: Iterable[Coordinates]) -> int:
    return sum(row.byte_size for row in rows)


def _partition(part: SplitPart) -> TopicPartition:
    return TopicPartition(part.old_rows[0].topic_id, part.old_rows[0].partition)


async def _swap(connection: Connection, split: SplitToCommit, part: SplitPart) -> SplitOutcome:
    partition = _partition(part)
    old_objects = {row.object_id for row in part.old_rows}
    # Before the head: who waits here may wait for a removal of many rows.
    await lock_to_mark(connection, {*old_objects, split.object_id})
    await lock_heads(connection, [partition])
    there = await _pieces(connection, part)
    if there == _planned(part.new_rows):
        return SplitOutcome.SWAPPED
    if not await lock_claim(connection, partition, part.token):
        return SplitOutcome.CLAIM_LOST
    state = (await read_states(connection, [partition])).get(partition)
    if state is None or part.old_rows[0].base_offset < state.block_start:
        return SplitOutcome.ROWS_CHANGED
    if there != _planned(part.old_rows) or not await _has_object(connection, split):
        return SplitOutcome.ROWS_CHANGED
    await _replace(connection, part)
    await mark_unreferenced(connection, old_objects)
    return SplitOutcome.SWAPPED


async def _pieces(connection: Connection, part: SplitPart) -> list[Piece]:
    rows = await connection.fetch(
        "SELECT base_offset, last_offset, object_id, byte_offset, byte_size FROM batches"
        f" WHERE {_RANGE} ORDER BY last_offset",
        *_partition(part),
        *_offsets(part.old_rows),
    )
    return [Piece(row[0], row[1], as_uuid(row[2]), row[3], row[4]) for row in rows]


def _planned(rows: Iterable[Coordinates]) -> list[Piece]:
    return [
        Piece(row.base_offset, row.last_offset, row.object_id, row.byte_offset, row.byte_size)
        for row in rows
    ]


async def _has_object(connection: Connection, split: SplitToCommit) -> bool:
    """Give the object a row if it has none. False if it lost all its rows already: it is deleted.

    Raises `BarredObjectError` if there is a tombstone.
    """
    inserted = await connection.execute(
        "INSERT INTO objects (object_id, key, kind, state, size_bytes, broker_id, committed_ms,"
        " answers) VALUES ($1, $2, $3, $4, $5, -1, {now_ms}, $6)"
        " ON CONFLICT (object_id) DO NOTHING",
        split.object_id,
        split.key,
        ObjectKind.SPLIT.value,
        ObjectState.LIVE.value,
        split.size_bytes,
        _NOTHING_IN_DOUBT,
    )
    if inserted:
        return True
    # Locked, so that it is not marked before the new rows are there to be counted.
    [(state,)] = await connection.fetch(
        "SELECT state FROM objects WHERE object_id = $1 {for_update}", split.object_id
    )
    if state == ObjectState.BARRED:
        raise BarredObjectError(
            f"split file {split.key}: the sweeper has given it up: write another"
        )
    return bool(state == ObjectState.LIVE)


async def _replace(connection: Connection, part: SplitPart) -> None:
    removed = await connection.execute(
        f"DELETE FROM batches WHERE {_RANGE}", *_partition(part), *_offsets(part.old_rows)
    )
    # The topic was deleted a moment ago, and its purge is at these rows.
    if removed != len(part.old_rows):
        raise _RowsChangedError
    await connection.execute(
        "INSERT INTO batches (topic_id, partition, base_offset, last_offset, object_id,"
        " byte_offset, byte_size, max_timestamp, timestamp_type, committed_ms, leader_epoch,"
        " stamped) SELECT topic_id, partition, base_offset, last_offset, object_id, byte_offset,"
        " byte_size, max_timestamp, timestamp_type, committed_ms, leader_epoch, true FROM {rows}",
        rows=Rows(
            _ROW,
            [
                (
                    row.topic_id,
                    row.partition,
                    row.base_offset,
                    row.last_offset,
                    row.object_id,
                    row.byte_offset,
                    row.byte_size,
                    row.max_timestamp,
                    row.timestamp_type,
                    row.committed_ms,
                    row.leader_epoch,
                )
                for row in part.new_rows
            ],
        ),
    )
