"""Partitions that nobody converts, because their topic is paused or they are parked, and what they
have in split files. Others lose such rows when they are converted; these only ever get more.

Small split files are few beside the rows of a busy topic. So the files are listed, and their rows
are read by file, some files with one statement: none of them reads the rows of blocks.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

from stratalog.control.ledger import Ledger
from stratalog.control.log.model import Coordinates
from stratalog.control.log.reads import ROW_COLUMNS, coordinates_of
from stratalog.control.objects.ledger import OBJECT_ID
from stratalog.control.objects.model import ObjectKind, ObjectState
from stratalog.control.sql.database import Connection, Row, Rows

_CHUNK_FILES = 64
"""Files whose rows are read with one statement."""

_ANY = (
    "SELECT 1 FROM pipeline_topics WHERE paused_ms IS NOT NULL"
    " UNION ALL SELECT 1 FROM claims WHERE parked_ms IS NOT NULL LIMIT 1"
)
_SMALL_FILES = (
    f"SELECT object_id FROM objects WHERE kind = '{ObjectKind.SPLIT.value}'"
    f" AND state = '{ObjectState.LIVE.value}' AND size_bytes <= $1"
    " AND (stuck_ms IS NULL OR stuck_ms <= {now_ms} - $2) ORDER BY object_id"
)
# A cross join keeps SQLite from beginning with the partitions, and so with all their rows.
_PIECES = (
    " FROM {rows} CROSS JOIN batches b JOIN (SELECT p.topic_id, p.partition, p.block_start"
    " FROM partitions p JOIN topics t ON t.topic_id = p.topic_id AND t.deleted_ms IS NULL"
    " LEFT JOIN pipeline_topics q ON q.topic_id = p.topic_id"
    " LEFT JOIN claims c ON c.topic_id = p.topic_id AND c.partition = p.partition"
    " WHERE q.paused_ms IS NOT NULL OR c.parked_ms IS NOT NULL) w"
    " ON w.topic_id = b.topic_id AND w.partition = b.partition AND w.block_start <= b.last_offset"
)
_OF_FILES = " WHERE b.object_id = r.object_id"
_FILES = f"SELECT DISTINCT b.object_id{_PIECES}{_OF_FILES}"
_COUNTS = (
    f"SELECT b.topic_id, b.partition, COUNT(*){_PIECES}{_OF_FILES} GROUP BY b.topic_id, b.partition"
)
_ROWS = f"SELECT {ROW_COLUMNS}{_PIECES} JOIN objects o ON o.object_id = b.object_id{_OF_FILES}"


class RestingOperations(Ledger):
    async def held_back_rows(
        self, *, max_file_bytes: int, more_than: int, stuck_for_ms: int, limit: int
    ) -> list[Coordinates]:
        """What partitions that are parked, or whose topic is paused, have in split files of no more
        than so many bytes, by partition and offset. Nothing, unless one of them has more rows there
        than `more_than`, or there are more such files. Files that were noted as stuck are left
        out for `stuck_for_ms`."""
        read = partial(
            _read, small=(max_file_bytes, stuck_for_ms), more_than=more_than, limit=limit
        )
        return await self._database.read(read)


async def _read(
    connection: Connection, small: tuple[int, int], more_than: int, limit: int
) -> list[Coordinates]:
    # Mostly nothing rests, and what does has few pieces: then nothing else is read.
    if not await connection.fetch(_ANY):
        return []
    small_files = [object_id for (object_id,) in await connection.fetch(_SMALL_FILES, *small)]
    files = [object_id for (object_id,) in await _fetch(connection, _FILES, small_files)]
    if len(files) <= more_than and await _most_rows(connection, files) <= more_than:
        return []
    rows = [coordinates_of(row) for row in await _fetch(connection, _ROWS, files)]
    rows.sort(key=lambda row: (row.topic_id, row.partition, row.last_offset))
    return rows[:limit]


async def _most_rows(connection: Connection, files: Sequence[Any]) -> int:
    """How many rows the partition has that has the most of them."""
    counts: Counter[tuple[Any, int]] = Counter()
    for topic_id, partition, count in await _fetch(connection, _COUNTS, files):
        counts[topic_id, partition] += count
    return max(counts.values(), default=0)


async def _fetch(connection: Connection, sql: str, files: Sequence[Any]) -> list[Row]:
    answers = [await connection.fetch(sql, rows=rows) for rows in _chunks(files)]
    return [*chain.from_iterable(answers)]


def _chunks(files: Sequence[Any]) -> Iterator[Rows]:
    for i in range(0, len(files), _CHUNK_FILES):
        yield Rows(OBJECT_ID, [(object_id,) for object_id in files[i : i + _CHUNK_FILES]])
