"""Swapping a lost segment for one of the same offsets whose batches have no records.

The replacement is finished before: it is uploaded, and no reader sees it. One transaction takes the
lost segment out of the chain, puts the other into its place, notes the loss and begins the deletion
of the lost one. A crash before it leaves a finished segment outside the chain. That one fits
nowhere, because the chain has its offsets, and the janitor deletes it.
"""

from dataclasses import dataclass
from functools import partial

from stratalog.control.ledger import Ledger
from stratalog.control.log.partitions import lock_heads, read_states
from stratalog.control.lost.claimed import check_unclaimed
from stratalog.control.lost.errors import LostRangeChangedError
from stratalog.control.lost.model import RangeToNote
from stratalog.control.lost.notes import note_lost
from stratalog.control.segments.lifecycle import begin_deletion, read_segment
from stratalog.control.segments.model import Segment, SegmentState
from stratalog.control.sql.database import Connection
from stratalog.ids import SegmentId

_UNCHAIN = "UPDATE segments SET chained = false WHERE segment_id = $1 AND chained"
_CHAIN = """
    UPDATE segments SET chained = true, changed_ms = {now_ms}, added_ms = $1
    WHERE segment_id = $2 AND state = $3 AND NOT chained
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentToSwap:
    """A lost segment, and the finished one that takes its place."""

    note: RangeToNote
    """Of exactly the offsets of both."""
    lost_id: SegmentId
    new_id: SegmentId


class SwapOperations(Ledger):
    async def swap(self, swap: SegmentToSwap) -> None:
        """Swap the segments and note the loss. May be repeated.

        Raises `LostRangeChangedError` if the lost segment is not in the chain with these offsets
        (any more), or if the start of the partition has moved past it, and `LostRangeBusyError`
        while a run of the pipeline works on the partition.
        """
        await self._database.write(partial(_swap, swap=swap))


async def _swap(connection: Connection, swap: SegmentToSwap) -> None:
    key = swap.note.topic_partition
    # Before the head: this lock may have to wait for a removal of many rows.
    await connection.lock("leases", shared=True)
    await lock_heads(connection, [key])
    lost = await read_segment(connection, swap.lost_id)
    new = await read_segment(connection, swap.new_id)
    if new is not None and new.chained and _is_gone(lost):
        return
    state = (await read_states(connection, [key])).get(key)
    if (
        state is None
        or lost is None
        or new is None
        or not lost.chained
        or not _has_range(lost, swap.note)
        or not _has_range(new, swap.note)
        or lost.last_offset < state.log_start
    ):
        raise _changed(swap.note)
    await check_unclaimed(connection, swap.note)
    unchained = await connection.execute(_UNCHAIN, swap.lost_id)
    # Retention goes by this time where records have none. So it takes the offsets when it would
    # have taken the records, and no sooner, and the segments behind do not wait longer.
    age_from = lost.max_timestamp if lost.max_timestamp >= 0 else lost.added_ms
    chained = await connection.execute(
        _CHAIN, age_from, swap.new_id, SegmentState.COPY_FINISHED.value
    )
    if not (unchained and chained):
        raise _changed(swap.note)
    await connection.execute(
        "UPDATE heads SET size_bytes = size_bytes + $1 WHERE topic_id = $2 AND partition = $3",
        new.size_bytes - lost.size_bytes,
        *key,
    )
    await note_lost(connection, [swap.note])
    await begin_deletion(connection, [swap.lost_id])


def _is_gone(lost: Segment | None) -> bool:
    """Tell if the deletion of the lost segment has begun: then the swap was done before."""
    return lost is None or lost.state is SegmentState.DELETE_STARTED


def _has_range(segment: Segment, note: RangeToNote) -> bool:
    return (segment.topic_partition, segment.base_offset, segment.end_offset) == (
        note.topic_partition,
        note.first_offset,
        note.end_offset,
    )


def _changed(note: RangeToNote) -> LostRangeChangedError:
    return LostRangeChangedError(f"{note.name}: its segment has changed meanwhile: look again")
