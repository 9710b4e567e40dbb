"""The edges of rows.

A split swaps rows for others with the same bytes and other edges, whenever the head is free. So a
transaction that moves a boundary along rows looks for their edges again under the head's lock.
"""

from collections.abc import Sequence

from stratalog.control.log.model import BATCHES
from stratalog.control.sql.database import Connection, Rows
from stratalog.ids import Offset, TopicPartition

_BOUNDARY = BATCHES.shape("topic_id", "partition", boundary="bigint")
_ROW_AT = """
    SELECT batches.base_offset FROM batches
    WHERE batches.topic_id = r.topic_id AND batches.partition = r.partition
        AND batches.last_offset >= r.boundary
    ORDER BY batches.last_offset LIMIT 1
"""


async def lies_in_row(
    connection: Connection, boundaries: Sequence[tuple[TopicPartition, Offset]]
) -> bool:
    """Return True if a row begins before one of these offsets, and ends there or after it."""
    found = await connection.fetch_each(
        _ROW_AT, Rows(_BOUNDARY, [(*partition, offset) for partition, offset in boundaries])
    )
    return any(
        base_offset < boundary
        for (_, boundary), rows in zip(boundaries, found, strict=True)
        for (base_offset,) in rows
    )
