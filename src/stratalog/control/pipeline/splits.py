"""`commit_split`: rows move from the blocks, where they were written, into a split file.

A part is swapped wholly or not at all. Some parts share a transaction, in the order of their
partitions, as many as keep it short: produces wait for the heads that it holds. Under a head's
lock no other transaction changes rows from `block_start` on, except for the purge of a deleted
topic; so the rows that are compared with the plan are the rows that are replaced. The bytes are the
same, and so is the partition's size.

The object has a row from its first part on, and that row stays, as "gone", for as long as answers
to commits are kept: a commit that is repeated late never points at an object that was deleted
meanwhile.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple, TypeAlias
from uuid import UUID

from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.control.ledger import Ledger
from stratalog.control.log.boundaries import check_in_blocks
from stratalog.control.log.model import BATCHES, SPLIT_ROW, Coordinates
from stratalog.control.log.partitions import lock_heads, read_states
from stratalog.control.objects.errors import BarredObjectError
from stratalog.control.objects.ledger import lock_to_mark, mark_unreferenced
from stratalog.control.objects.model import ObjectKind, ObjectState
from stratalog.control.pipeline.claims import lock_claims
from stratalog.control.pipeline.errors import SplitRefusedError
from stratalog.control.pipeline.model import SplitOutcome, SplitPart, SplitToCommit
from stratalog.control.sql.database import Connection, Database, Rows
from stratalog.control.sql.table import Selection, rows_from
from stratalog.ids import Entropy, TopicPartition, kafka_base64

_NOTHING_IN_DOUBT = b""
"""In place of answers. It is kept for a time, and the object's row with it."""
_MOST_ROWS = 2048
"""Rows that a transaction removes and inserts: some 20 milliseconds of work for either database."""
_LONG_S = 0.1
"""The longest time of a transaction. After one that took longer, the next does half as much."""
_RANGE = BATCHES.shape("topic_id", "partition", first_offset="bigint", last_offset="bigint")
_KEY = BATCHES.shape("topic_id", "partition", "last_offset")
_INSERT_ROWS = BATCHES.insert(SPLIT_ROW, stamped="true")
_DELETE_ROWS = """
    DELETE FROM batches WHERE (topic_id, partition, last_offset) IN (
        SELECT topic_id, partition, last_offset FROM {rows}
    )
"""
_INSERT_OBJECT = """
    INSERT INTO objects
        (object_id, key, kind, state, size_bytes, broker_id, committed_ms, answers)
    VALUES ($1, $2, $3, $4, $5, -1, {now_ms}, $6) ON CONFLICT (object_id) DO NOTHING
"""


class RowKey(NamedTuple):
    """The columns that identify a row in a plan."""

    base_offset: int
    last_offset: int
    object_id: UUID
    byte_offset: int
    byte_size: int


_ROW_KEY = Selection(RowKey, BATCHES)
_KEYS_IN_RANGE = f"""
    SELECT {_ROW_KEY.columns} FROM batches
    WHERE batches.topic_id = r.topic_id AND batches.partition = r.partition
        AND batches.last_offset >= r.first_offset AND batches.last_offset <= r.last_offset
"""


class _RowsChangedError(Exception):
    """Leaves the transaction: rows that were there a moment ago are gone."""


_Parts: TypeAlias = Mapping[TopicPartition, SplitPart]
_Outcomes: TypeAlias = dict[TopicPartition, SplitOutcome]


class SplitOperations(Ledger):
    def __init__(self, database: Database, entropy: Entropy, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(database, entropy)
        self._clock = clock

    async def commit_split(self, split: SplitToCommit) -> list[SplitOutcome]:
        """Swap the planned rows of each part for its new rows, if exactly those are still there.

        Several transactions of a few parts each, so that no head is held for long; the object's
        row is inserted with the first part that fits. A part that does not fit is left out, and
        costs the others nothing. Repeating it swaps the remaining parts, and answers SWAPPED for
        parts whose new rows are there; so a caller in doubt asks again. Old objects that lose
        their last row are marked. Raises `BarredObjectError` if the sweeper was faster. Whatever
        the outcome, the object is left to the control plane or to the sweeper.
        """
        check_split(split)
        outcomes: _Outcomes = {}
        pace = Pace(self._clock)
        left = sorted(split.parts, key=_partition)
        while left:
            with pace:
                parts = {_partition(part): part for part in pace.take(left)}
                outcomes |= await self._swap(split, parts)
            left = left[len(parts) :]
        return [outcomes[_partition(part)] for part in split.parts]

    async def _swap(self, split: SplitToCommit, parts: _Parts) -> _Outcomes:
        try:
            return await self._database.write(partial(_swap, split=split, parts=parts))
        except _RowsChangedError:
            if len(parts) == 1:
                return dict.fromkeys(parts, SplitOutcome.ROWS_CHANGED)
        # Only parts whose rows are gone are left out: halving finds them.
        keys, half = list(parts), len(parts) // 2
        found = [
            await self._swap(split, {key: parts[key] for key in some})
            for some in (keys[:half], keys[half:])
        ]
        return found[0] | found[1]


class Pace:
    """The size of the next transaction, by its rows and by how long the last one took."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rows = _MOST_ROWS
        self._began_s = 0.0

    def take(self, parts: Sequence[SplitPart]) -> Sequence[SplitPart]:
        """Return the first part, and the parts after it that fit into the same transaction."""
        rows = 0
        for count, part in enumerate(parts):
            rows += len(part.old_rows) + len(part.new_rows)
            if count and rows > self._rows:
                return parts[:count]
        return parts

    def __enter__(self) -> None:
        self._began_s = self._clock.monotonic()

    def __exit__(self, *_: object) -> None:
        was_long = self._clock.monotonic() - self._began_s > _LONG_S
        self._rows = self._rows // 2 if was_long else min(2 * self._rows, _MOST_ROWS)
        self._rows = max(self._rows, 1)


def check_split(split: SplitToCommit) -> None:
    for part in split.parts:
        for breach in _breaches(split, part):
            raise SplitRefusedError(f"split file {split.key}: {breach}")
    if len({_partition(part) for part in split.parts}) < len(split.parts):
        raise SplitRefusedError(f"split file {split.key}: two parts are of the same partition")


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
    # Aged rows are a prefix only as long as commit times grow with the offset.
    if times != sorted(times):
        yield f"{where}: its new rows have commit times that the old ones had not"
    if _oldest_ms(old) != _oldest_ms(new):
        yield f"{where}: the oldest batch was committed at {_oldest_ms(old)}, not {_oldest_ms(new)}"


def _holes(rows: Sequence[Coordinates]) -> bool:
    return any(one.last_offset + 1 != other.base_offset for one, other in pairwise(rows))


def _offsets(rows: Sequence[Coordinates]) -> tuple[int, int]:
    return rows[0].base_offset, rows[-1].last_offset


def _bytes(rows: Iterable[Coordinates]) -> int:
    return sum(row.byte_size for row in rows)


def _oldest_ms(rows: Iterable[Coordinates]) -> int:
    return min(row.oldest_commit_ms for row in rows)


def _partition(part: SplitPart) -> TopicPartition:
    return TopicPartition(part.old_rows[0].topic_id, part.old_rows[0].partition)


async def _swap(connection: Connection, split: SplitToCommit, parts: _Parts) -> _Outcomes:
    old_objects = {row.object_id for part in parts.values() for row in part.old_rows}
    # Before the heads: these locks may have to wait for a removal of many rows.
    await lock_to_mark(connection, {*old_objects, split.object_id})
    await lock_heads(connection, list(parts))
    outcomes = await _judge(connection, parts)
    fitting = [part for key, part in parts.items() if key not in outcomes]
    if not fitting:
        return outcomes
    if not await _has_object(connection, split):
        return dict.fromkeys(parts, SplitOutcome.ROWS_CHANGED) | outcomes
    await _replace(connection, fitting)
    await mark_unreferenced(
        connection, {row.object_id for part in fitting for row in part.old_rows}
    )
    return dict.fromkeys(parts, SplitOutcome.SWAPPED) | outcomes


async def _judge(connection: Connection, parts: _Parts) -> _Outcomes:
    """Return the outcomes of the parts that are not to be swapped (any more)."""
    there = await _row_keys(connection, parts)
    outcomes = {
        key: SplitOutcome.SWAPPED
        for key, part in parts.items()
        if there[key] == _planned(part.new_rows)
    }
    rest = {key: part for key, part in parts.items() if key not in outcomes}
    held = await lock_claims(connection, {key: part.token for key, part in rest.items()})
    states = await read_states(connection, list(held))
    for key, part in rest.items():
        if key not in held:
            outcomes[key] = SplitOutcome.CLAIM_LOST
        elif (
            key not in states
            or part.old_rows[0].base_offset < states[key].block_start
            or there[key] != _planned(part.old_rows)
        ):
            outcomes[key] = SplitOutcome.ROWS_CHANGED
        else:
            check_in_blocks(
                states[key], part.new_rows[0].base_offset, part.new_rows[-1].last_offset
            )
    return outcomes


async def _row_keys(connection: Connection, parts: _Parts) -> dict[TopicPartition, list[RowKey]]:
    found = await connection.fetch_each(
        _KEYS_IN_RANGE,
        Rows(_RANGE, [(*key, *_offsets(part.old_rows)) for key, part in parts.items()]),
    )
    return {key: sorted(_ROW_KEY.read_all(rows)) for key, rows in zip(parts, found, strict=True)}


def _planned(rows: Iterable[Coordinates]) -> list[RowKey]:
    return [
        RowKey(row.base_offset, row.last_offset, row.object_id, row.byte_offset, row.byte_size)
        for row in rows
    ]


async def _has_object(connection: Connection, split: SplitToCommit) -> bool:
    """Give the object a row if it has none. False if it lost all its rows already: it is deleted.

    Raises `BarredObjectError` if there is a tombstone.
    """
    inserted = await connection.execute(
        _INSERT_OBJECT,
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


async def _replace(connection: Connection, parts: Sequence[SplitPart]) -> None:
    old = [row for part in parts for row in part.old_rows]
    removed = await connection.execute(_DELETE_ROWS, rows=rows_from(_KEY, old))
    # A topic was deleted a moment ago, and its purge is at these rows.
    if removed != len(old):
        raise _RowsChangedError
    new = [row for part in parts for row in part.new_rows]
    await connection.execute(_INSERT_ROWS, rows=rows_from(SPLIT_ROW, new))
