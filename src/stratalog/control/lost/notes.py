"""The notes of lost ranges, inside the transaction of their caller."""

from collections.abc import Sequence

from stratalog.control.lost.model import LOST_RANGES, RangeToNote
from stratalog.control.sql.database import Connection
from stratalog.control.sql.table import rows_from

_NOTE = LOST_RANGES.shape_without("noted_ms")
_INSERT = LOST_RANGES.insert(_NOTE, noted_ms="{now_ms}")


async def note_lost(connection: Connection, ranges: Sequence[RangeToNote]) -> None:
    if ranges:
        await connection.execute(
            f"{_INSERT} ON CONFLICT (topic_id, partition, first_offset, end_offset) DO NOTHING",
            rows=rows_from(_NOTE, ranges, objects="objects_json"),
        )
