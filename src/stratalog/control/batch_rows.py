"""How rows of batches come into their table: those of fresh blocks, and those of split files."""

from collections.abc import Iterable
from typing import Any

from stratalog.control.database import Connection, Rows, shape

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


async def insert_rows(
    connection: Connection, values: Iterable[tuple[Any, ...]], *, stamped: bool
) -> None:
    """Values are in the order of `ROW`. Stamped bytes have their offsets and epochs in them."""
    await connection.execute(
        f"INSERT INTO batches ({_COLUMNS}, stamped)"
        f" SELECT {_COLUMNS}, {'true' if stamped else 'false'} FROM {{rows}}",
        rows=Rows(ROW, list(values)),
    )
