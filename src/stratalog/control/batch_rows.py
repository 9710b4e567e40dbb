"""Rows of batches: how they come into their table, and where they end.

Splits swap rows for others with the same bytes and other edges, whenever nobody holds the head. So
whoever moves a boundary along rows looks for their edges once more when the head is locked.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from stratalog.control.database import Connection, Rows, shape
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
_COLUMNS = ", ".join(ROW.names)
_BOUNDARY = shape(topic_id="uuid", partition="integer", boundary="bigint")


async def insert_rows(
    connection: Connection, values: Iterable[tuple[Any, ...]], *, stamped: bool
) -> None:
    """Values are in the order of `ROW`. Stamped bytes have their offsets and epochs in them."""
    await connection.execute(
        f"INSERT INTO batches ({_COLUMNS}, stamped)"
        f" SELECT {_COLUMNS}, {'true' if stamped else 'false'} FROM {{rows}}",
        rows=Rows(ROW, list(values)),
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
