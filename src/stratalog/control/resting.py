"""Partitions that nobody converts, because their topic is paused or they are parked, and what they
have in split files. Others lose such rows when they are converted; these only ever get more."""

from functools import partial

from stratalog.control.database import Connection
from stratalog.control.model import Coordinates, ObjectKind
from stratalog.control.objects import ObjectState
from stratalog.control.operations import Operations
from stratalog.control.reads import ROW_COLUMNS, coordinates_of

_ANY = (
    "SELECT 1 FROM pipeline_topics WHERE paused_ms IS NOT NULL"
    " UNION ALL SELECT 1 FROM claims WHERE parked_ms IS NOT NULL LIMIT 1"
)
_PIECES = (
    " FROM objects o JOIN batches b ON b.object_id = o.object_id"
    " JOIN partitions p ON p.topic_id = b.topic_id AND p.partition = b.partition"
    " AND p.block_start <= b.last_offset"
    " JOIN topics t ON t.topic_id = b.topic_id AND t.deleted_ms IS NULL"
    " LEFT JOIN pipeline_topics q ON q.topic_id = b.topic_id"
    " LEFT JOIN claims c ON c.topic_id = b.topic_id AND c.partition = b.partition"
    f" WHERE o.kind = '{ObjectKind.SPLIT.value}' AND o.state = '{ObjectState.LIVE.value}'"
    " AND o.size_bytes <= $1 AND (o.stuck_ms IS NULL OR o.stuck_ms <= {now_ms} - $2)"
    " AND (q.paused_ms IS NOT NULL OR c.parked_ms IS NOT NULL)"
)
_MOST_ROWS = (
    "SELECT MAX(g.piece_count) FROM (SELECT COUNT(*) AS piece_count"
    f"{_PIECES} GROUP BY b.topic_id, b.partition) g"
)
_FILES = f"SELECT COUNT(DISTINCT b.object_id){_PIECES}"
_ROWS = f"SELECT {ROW_COLUMNS}{_PIECES} ORDER BY b.topic_id, b.partition, b.last_offset LIMIT $3"


class RestingOperations(Operations):
    async def resting_rows(
        self, *, max_file_bytes: int, more_than: int, stuck_for_ms: int, limit: int
    ) -> list[Coordinates]:
        read = partial(
            _read, files=(max_file_bytes, stuck_for_ms), more_than=more_than, limit=limit
        )
        return await self._database.read(read)


async def _read(
    connection: Connection, files: tuple[int, int], more_than: int, limit: int
) -> list[Coordinates]:
    # Mostly nothing rests, and what does has few pieces: then nothing else is read.
    if not await connection.fetch(_ANY):
        return []
    [(most_rows,)] = await connection.fetch(_MOST_ROWS, *files)
    [(count,)] = await connection.fetch(_FILES, *files)
    if max(most_rows or 0, count) <= more_than:
        return []
    return [coordinates_of(row) for row in await connection.fetch(_ROWS, *files, limit)]
