"""Filling a lost range: its rows give way to rows of batches without records.

A batch may have offsets and no records, as compaction leaves them. Such batches over a lost range
keep every rule of the log: each offset is in exactly one row, an answer begins with the row that
has its offset, and splits, merges, scans and clients go on over the range without knowing of it.

One transaction swaps the rows, under the head's lock, if exactly the planned ones are still there,
and notes the loss. Before it there is an object that no row refers to, and the sweeper takes it;
after it the range is lost for good.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from stratalog.control.ledger import Ledger
from stratalog.control.log.model import BATCHES, COORDINATES, SPLIT_ROW, Coordinates
from stratalog.control.log.partitions import lock_heads, read_states
from stratalog.control.lost.claimed import check_unclaimed
from stratalog.control.lost.errors import LostRangeChangedError
from stratalog.control.lost.model import RangeToNote
from stratalog.control.lost.notes import note_lost
from stratalog.control.objects.ledger import lock_to_mark, mark_unreferenced
from stratalog.control.objects.model import ObjectKind, ObjectState
from stratalog.control.sql.database import Connection
from stratalog.control.sql.table import rows_from
from stratalog.ids import ObjectId

_THERE = f"""
    SELECT {COORDINATES.columns} FROM batches
    JOIN objects ON objects.object_id = batches.object_id
    WHERE batches.topic_id = $1 AND batches.partition = $2
        AND batches.last_offset >= $3 AND batches.base_offset < $4
    ORDER BY batches.last_offset
"""
_INSERT_OBJECT = """
    INSERT INTO objects (object_id, key, kind, state, size_bytes, broker_id, committed_ms, answers)
    VALUES ($1, $2, $3, $4, $5, -1, {now_ms}, $6) ON CONFLICT (object_id) DO NOTHING
"""
_KEY = BATCHES.shape("topic_id", "partition", "last_offset")
_DELETE_ROWS = """
    DELETE FROM batches WHERE (topic_id, partition, last_offset) IN (
        SELECT topic_id, partition, last_offset FROM {rows}
    )
"""
_INSERT_ROWS = BATCHES.insert(SPLIT_ROW, stamped="true")


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeToFill:
    """A lost range of one partition, in the block tier."""

    note: RangeToNote
    object_id: ObjectId
    """The object of the batches without records. It is uploaded."""
    key: str
    size_bytes: int
    old_rows: Sequence[Coordinates]
    """All rows of the range. There may be fewer than offsets, or none: rows can be lost, too."""
    new_rows: Sequence[Coordinates]
    """Rows of the object that have all offsets of the range."""


class FillOperations(Ledger):
    async def fill(self, lost: RangeToFill) -> None:
        """Swap the rows of a lost range and note the loss. May be repeated.

        Raises `LostRangeChangedError` if other rows are there than planned, and
        `LostRangeBusyError` while a run of the pipeline works on the partition.
        """
        await self._database.write(partial(_fill, lost=lost))


async def _fill(connection: Connection, lost: RangeToFill) -> None:
    note = lost.note
    key = note.topic_partition
    old_objects = {row.object_id for row in lost.old_rows}
    # Before the head: these locks may have to wait for a removal of many rows.
    await lock_to_mark(connection, {*old_objects, lost.object_id})
    await lock_heads(connection, [key])
    there = await _rows_there(connection, note)
    if there == list(lost.new_rows):
        return
    state = (await read_states(connection, [key])).get(key)
    if (
        state is None
        or there != list(lost.old_rows)
        or not state.block_start <= note.first_offset < note.end_offset <= state.block_end
    ):
        raise LostRangeChangedError(f"{note.name}: its rows have changed meanwhile: look again")
    # A run may have planned to merge the old rows, and would chain them behind the new ones.
    await check_unclaimed(connection, note)
    await _swap(connection, lost)
    await note_lost(connection, [note])
    await mark_unreferenced(connection, old_objects)


async def _rows_there(connection: Connection, note: RangeToNote) -> list[Coordinates]:
    rows = await connection.fetch(_THERE, *note.topic_partition, note.first_offset, note.end_offset)
    return COORDINATES.read_all(rows)


async def _swap(connection: Connection, lost: RangeToFill) -> None:
    inserted = await connection.execute(
        _INSERT_OBJECT,
        lost.object_id,
        lost.key,
        ObjectKind.SPLIT.value,
        ObjectState.LIVE.value,
        lost.size_bytes,
        b"",
    )
    if not inserted:
        raise LostRangeChangedError(f"{lost.key} was given up by the sweeper: begin again")
    await connection.execute(_DELETE_ROWS, rows=rows_from(_KEY, lost.old_rows))
    await connection.execute(_INSERT_ROWS, rows=rows_from(SPLIT_ROW, lost.new_rows))
    await connection.execute(
        "UPDATE heads SET size_bytes = size_bytes + $1 WHERE topic_id = $2 AND partition = $3",
        _bytes(lost.new_rows) - _bytes(lost.old_rows),
        *lost.note.topic_partition,
    )


def _bytes(rows: Iterable[Coordinates]) -> int:
    return sum(row.byte_size for row in rows)
