"""Moving the start of partitions, and then removing what fell below it.

The two are apart so that no head is held while many rows are deleted. Boundaries move in one short
transaction, on the strength of a scan that was made without a lock; from then on nobody is sent to
the rows below. Those leave in chunks, and what a crash leaves behind the next retention run takes.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from stratalog.control.database import Connection, Rows, as_uuid, shape
from stratalog.control.model import PartitionState
from stratalog.control.objects import mark_unreferenced
from stratalog.control.partitions import lock_heads
from stratalog.ids import ObjectId, Offset, TopicPartition

_TRIM = shape(
    topic_id="uuid",
    partition="integer",
    old_log_start="bigint",
    old_block_start="bigint",
    old_remote_end="bigint",
    log_start="bigint",
    block_start="bigint",
    remote_end="bigint",
    freed_bytes="bigint",
)


class Trim(NamedTuple):
    """A new start for a partition, planned from a snapshot of it."""

    state: PartitionState
    log_start: Offset
    block_start: Offset
    """The base of the first row that remains, or the block tier's end."""
    freed_bytes: int

    @property
    def remote_end(self) -> Offset:
        """No segment outlives the rows above it."""
        if self.log_start < self.state.block_start:
            return self.state.remote_end
        return max(self.state.remote_end, self.block_start)


class PartitionMovedError(Exception):
    """The partition is no longer as the plan found it. Nothing was changed."""


async def apply_trims(connection: Connection, trims: Sequence[Trim]) -> None:
    rows = [
        (
            *trim.state.topic_partition,
            trim.state.log_start,
            trim.state.block_start,
            trim.state.remote_end,
            trim.log_start,
            trim.block_start,
            trim.remote_end,
            trim.freed_bytes,
        )
        for trim in trims
    ]
    source = Rows(_TRIM, rows)
    await lock_heads(connection, [trim.state.topic_partition for trim in trims])
    moved = await connection.execute(
        "UPDATE partitions SET log_start = r.log_start, block_start = r.block_start,"
        " remote_end = r.remote_end FROM {rows} WHERE partitions.topic_id = r.topic_id"
        " AND partitions.partition = r.partition AND partitions.log_start = r.old_log_start"
        " AND partitions.block_start = r.old_block_start"
        " AND partitions.remote_end = r.old_remote_end",
        rows=source,
    )
    if moved != len(trims):
        raise PartitionMovedError
    await connection.execute(
        "UPDATE heads SET size_bytes = heads.size_bytes - r.freed_bytes FROM {rows}"
        " WHERE heads.topic_id = r.topic_id AND heads.partition = r.partition",
        rows=source,
    )


async def remove_rows_below_start(
    connection: Connection, partition: TopicPartition, *, max_rows: int
) -> int:
    """Delete up to `max_rows` rows that nobody is sent to any more."""
    starts = await connection.fetch(
        "SELECT block_start FROM partitions WHERE topic_id = $1 AND partition = $2", *partition
    )
    if not starts:
        return 0
    return await _remove(
        connection,
        "topic_id = $1 AND partition = $3 AND last_offset < $4",
        partition.topic_id,
        max_rows,
        partition.partition,
        starts[0][0],
    )


async def remove_rows_of_topic(connection: Connection, topic_id: UUID, *, max_rows: int) -> int:
    return await _remove(connection, "topic_id = $1", topic_id, max_rows)


async def _remove(connection: Connection, condition: str, *args: Any) -> int:
    # Rows that another remover holds are its own to finish.
    rows = await connection.fetch(
        "WITH doomed AS MATERIALIZED (SELECT partition, last_offset FROM batches"
        f" WHERE {condition} ORDER BY partition, last_offset LIMIT $2"
        " {for_update_skip_locked})"
        " DELETE FROM batches WHERE topic_id = $1 AND (partition, last_offset) IN"
        " (SELECT partition, last_offset FROM doomed) RETURNING object_id",
        *args,
    )
    if rows:
        await mark_unreferenced(connection, (ObjectId(as_uuid(row[0])) for row in rows))
    return len(rows)
