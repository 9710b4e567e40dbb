"""Rows of batches: how they come into their table, and where they end.

Splits swap rows for others with the same bytes and other edges, whenever nobody holds the head. So
whoever moves a boundary along rows looks for their edges once more when the head is locked.
"""

from collections.abc import Sequence

from stratalog.control.sql.database import Connection, Rows, Shape, shape
from stratalog.ids import Offset, TopicPartition

ROW = shape(
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
"""A row of a block. All its batches were committed at the same time."""
JOINED_ROW = Shape((*ROW.names, "oldest_ms"), (*ROW.types, "bigint"))
"""A row of a split file."""
OLDEST_MS = "COALESCE(b.oldest_ms, b.committed_ms)"
"""When the oldest batch of a row was committed: `Coordinates.oldest_commit_ms`."""
_BOUNDARY = shape(topic_id="uuid", partition="integer", boundary="bigint")


async def insert_rows(connection: Connection, rows: Rows, *, stamped: bool) -> None:
    """Stamped bytes have their offsets and epochs in them."""
    columns = ", ".join(rows.shape.names)
    await connection.execute(
        f"INSERT INTO batches ({columns}, stamped)"
        f" SELECT {columns}, {'true' if stamped else 'false'} FROM {{rows}}",
        rows=rows,
    )


async def lies_in_row(
    connection: Connection, boundaries: Sequence[tuple[TopicPartition, Offset]]
) -> bool:
    """Whether a row begins before one of these offsets, and ends there or after it."""
    found = await connection.fetch_each(
        "SELECT b.base_offset FROM batches b WHERE b.topic_id = r.topic_id"
        " AND b.partition = r.partition AND b.last_offset >= r.boundary"
        " ORDER BY b.last_offset LIMIT 1",
        Rows(_BOUNDARY, [(*partition, offset) for partition, offset in boundaries]),
    )
    return any(
        base_offset < boundary
        for (_, boundary), rows in zip(boundaries, found, strict=True)
        for (base_offset,) in rows
    )
