"""Trims: the start of a partition moves, and then the rows and segments below it are removed.

The two steps are apart so that no head is held while many rows are deleted. Boundaries move in one
short transaction, planned by a scan that was made without a lock; from then on no read is sent to
the rows below. They leave in chunks, and the next retention run takes the rows that a crash leaves
behind. A split may have swapped the rows since that scan: the bytes are as many, but a start that
lies inside one of the new rows is refused, and the scan is made again.

Segments are few, one for many thousand rows, so they leave the chain in the transaction that moves
the start. Chaining a segment moves `remote_end`, so a trim that was planned before it is refused.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

from stratalog.control.keys import partition_key
from stratalog.control.log.boundaries import check_boundaries
from stratalog.control.log.errors import PartitionMovedError
from stratalog.control.log.model import HEADS, PARTITIONS, PartitionState
from stratalog.control.log.partitions import lock_heads
from stratalog.control.log.row_edges import lies_in_row
from stratalog.control.objects.ledger import mark_unreferenced
from stratalog.control.segments.lifecycle import begin_deletion
from stratalog.control.segments.model import SEGMENT_ID, SEGMENTS, SegmentState
from stratalog.control.sql.database import Connection, Rows, as_uuid
from stratalog.ids import ObjectId, Offset, SegmentId, TopicPartition

_TRIM = PARTITIONS.shape(
    "topic_id",
    "partition",
    "log_start",
    "block_start",
    "remote_end",
    old_log_start="bigint",
    old_block_start="bigint",
    old_remote_end="bigint",
)
_MOVE = """
    UPDATE partitions
    SET log_start = r.log_start, block_start = r.block_start, remote_end = r.remote_end
    FROM {rows}
    WHERE partitions.topic_id = r.topic_id AND partitions.partition = r.partition
        AND partitions.log_start = r.old_log_start
        AND partitions.block_start = r.old_block_start
        AND partitions.remote_end = r.old_remote_end
"""
_CUT = SEGMENTS.shape("topic_id", "partition", segments_end="bigint")
_UNCHAIN = """
    UPDATE segments SET chained = false FROM {rows}
    WHERE segments.topic_id = r.topic_id AND segments.partition = r.partition
        AND segments.chained AND segments.last_offset < r.segments_end
    RETURNING segments.topic_id, segments.partition, segments.segment_id, segments.size_bytes
"""
_FREED = HEADS.shape("topic_id", "partition", freed_bytes="bigint")
_FREE = """
    UPDATE heads SET size_bytes = heads.size_bytes - r.freed_bytes FROM {rows}
    WHERE heads.topic_id = r.topic_id AND heads.partition = r.partition
"""

# Each of the two has an index of its own.
_CHAINED_OF_TOPIC = """
    SELECT segment_id FROM segments WHERE topic_id = $1 AND chained
    ORDER BY partition, last_offset LIMIT $2
"""
_UNCHAINED_OF_TOPIC = f"""
    SELECT segment_id FROM segments
    WHERE topic_id = $1 AND NOT chained AND state <> {SegmentState.DELETE_STARTED:d}
    ORDER BY added_ms LIMIT $2
"""


class Trim(NamedTuple):
    """A new start for a partition, planned from a snapshot of it."""

    state: PartitionState
    log_start: Offset
    block_start: Offset
    """The base of the first row that remains, or the block tier's end."""
    freed_bytes: int
    """Of the rows that fall below `block_start`."""
    segments_end: Offset | None = None
    """Chained segments that end here or before go. None if there are none to go."""

    @property
    def remote_end(self) -> Offset:
        """No segment outlives the rows above it."""
        if self.log_start < self.state.block_start:
            return self.state.remote_end
        return max(self.state.remote_end, self.block_start)

    @property
    def moved(self) -> PartitionState:
        """The partition after the trim."""
        return replace(
            self.state,
            log_start=self.log_start,
            block_start=self.block_start,
            remote_end=self.remote_end,
        )


async def apply_trims(connection: Connection, trims: Sequence[Trim]) -> int:
    """Move the boundaries and unchain the segments below; return how many segments that were."""
    if any(trim.segments_end is not None for trim in trims):
        # Before the heads: this lock may have to wait for a removal of many rows.
        await connection.lock("leases", shared=True)
    await lock_heads(connection, [trim.state.topic_partition for trim in trims])
    moved = [
        (trim.state.topic_partition, trim.block_start)
        for trim in trims
        if trim.block_start > trim.state.block_start
    ]
    if moved and await lies_in_row(connection, moved):
        raise PartitionMovedError
    await _move(connection, trims)
    freed = Counter({trim.state.topic_partition: trim.freed_bytes for trim in trims})
    unchained = await _unchain(connection, trims, freed)
    await connection.execute(
        _FREE, rows=Rows(_FREED, [(*key, freed_bytes) for key, freed_bytes in freed.items()])
    )
    return unchained


async def _move(connection: Connection, trims: Sequence[Trim]) -> None:
    for trim in trims:
        check_boundaries(trim.moved, before=trim.state)
    rows = [
        (
            *trim.state.topic_partition,
            trim.log_start,
            trim.block_start,
            trim.remote_end,
            trim.state.log_start,
            trim.state.block_start,
            trim.state.remote_end,
        )
        for trim in trims
    ]
    moved = await connection.execute(_MOVE, rows=Rows(_TRIM, rows))
    if moved != len(trims):
        raise PartitionMovedError


async def _unchain(
    connection: Connection, trims: Sequence[Trim], freed: Counter[TopicPartition]
) -> int:
    """Take the segments below out of the chain, and add their sizes to `freed`.

    Sizes are counted here and not by the plan: two removers may have found the same leftovers.
    """
    cuts = [
        (*trim.state.topic_partition, trim.segments_end)
        for trim in trims
        if trim.segments_end is not None
    ]
    if not cuts:
        return 0
    rows = await connection.fetch(_UNCHAIN, rows=Rows(_CUT, cuts))
    for row in rows:
        freed[partition_key(row)] += row[3]
    if rows:
        await begin_deletion(connection, [SegmentId(as_uuid(row[2])) for row in rows])
    return len(rows)


async def remove_segments_of_topic(connection: Connection, topic_id: UUID, *, max_rows: int) -> int:
    """Begin the deletion of up to `max_rows` segments of a deleted topic."""
    # Before the segments, as a trim does that was planned while the topic lived.
    await connection.lock("leases", shared=True)
    ids: list[SegmentId] = []
    for query in (_CHAINED_OF_TOPIC, _UNCHAINED_OF_TOPIC):
        rows = await connection.fetch(query, topic_id, max_rows - len(ids))
        ids += [SegmentId(as_uuid(row[0])) for row in rows]
    if ids:
        await connection.execute(
            "UPDATE segments SET chained = false"
            " WHERE segment_id IN (SELECT segment_id FROM {rows})",
            rows=Rows(SEGMENT_ID, [(segment_id,) for segment_id in ids]),
        )
        await begin_deletion(connection, ids)
    return len(ids)


async def remove_rows_below_start(
    connection: Connection, partition: TopicPartition, *, max_rows: int
) -> int:
    """Delete up to `max_rows` rows below the start, to which no read is sent any more."""
    return await remove_rows_below_starts(connection, [partition], max_rows=max_rows)


async def remove_rows_below_starts(
    connection: Connection, partitions: Sequence[TopicPartition], *, max_rows: int
) -> int:
    """Delete up to `max_rows` such rows of several partitions together."""
    objects: list[ObjectId] = []
    for partition in partitions:
        if len(objects) < max_rows:
            objects += await _delete_below_start(connection, partition, max_rows - len(objects))
    if objects:
        await mark_unreferenced(connection, objects)
    return len(objects)


async def remove_rows_of_topic(connection: Connection, topic_id: UUID, *, max_rows: int) -> int:
    objects = await _delete(connection, "topic_id = $1", topic_id, max_rows)
    if objects:
        await mark_unreferenced(connection, objects)
    return len(objects)


async def _delete_below_start(
    connection: Connection, partition: TopicPartition, max_rows: int
) -> list[ObjectId]:
    starts = await connection.fetch(
        "SELECT block_start FROM partitions WHERE topic_id = $1 AND partition = $2", *partition
    )
    if not starts:
        return []
    return await _delete(
        connection,
        "topic_id = $1 AND partition = $3 AND last_offset < $4",
        partition.topic_id,
        max_rows,
        partition.partition,
        starts[0][0],
    )


async def _delete(connection: Connection, condition: str, *args: Any) -> list[ObjectId]:
    """Delete rows, and return their objects, each as often as it had rows."""
    # Rows that another remover holds are its own to finish.
    rows = await connection.fetch(
        f"""
        WITH doomed AS MATERIALIZED (
            SELECT partition, last_offset FROM batches
            WHERE {condition} ORDER BY partition, last_offset LIMIT $2 {{for_update_skip_locked}}
        )
        DELETE FROM batches
        WHERE topic_id = $1
            AND (partition, last_offset) IN (SELECT partition, last_offset FROM doomed)
        RETURNING object_id
        """,
        *args,
    )
    return [ObjectId(as_uuid(row[0])) for row in rows]
