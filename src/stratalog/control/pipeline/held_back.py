"""Rows in split files of partitions that are held back: parked, or of a paused topic. Other
partitions lose such rows when they are converted; these only ever get more.

Small split files are few beside the rows of a busy topic. So the files are listed, and their rows
are read by file, some files with one statement: none of them reads the rows of blocks.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

from stratalog.control.ledger import Ledger
from stratalog.control.log.model import COORDINATES, Coordinates
from stratalog.control.objects.model import OBJECT_ID, ObjectKind, ObjectState
from stratalog.control.sql.database import Connection, Row, Rows

_CHUNK_FILES = 64
"""Files whose rows are read with one statement."""

_ANY = """
    SELECT 1 FROM pipeline_topics WHERE paused_ms IS NOT NULL
    UNION ALL SELECT 1 FROM claims WHERE parked_ms IS NOT NULL LIMIT 1
"""
_SMALL_FILES = f"""
    SELECT object_id FROM objects
    WHERE kind = '{ObjectKind.SPLIT.value}' AND state = '{ObjectState.LIVE.value}'
        AND size_bytes <= $1 AND (stuck_ms IS NULL OR stuck_ms <= {{now_ms}} - $2)
    ORDER BY object_id
"""
# A cross join keeps SQLite from beginning with the partitions, and so with all their rows.
_HELD_BACK = """
    FROM {rows} CROSS JOIN batches JOIN (
        SELECT partitions.topic_id, partitions.partition, partitions.block_start FROM partitions
        JOIN topics ON topics.topic_id = partitions.topic_id AND topics.deleted_ms IS NULL
        LEFT JOIN pipeline_topics ON pipeline_topics.topic_id = partitions.topic_id
        LEFT JOIN claims ON claims.topic_id = partitions.topic_id
            AND claims.partition = partitions.partition
        WHERE pipeline_topics.paused_ms IS NOT NULL OR claims.parked_ms IS NOT NULL
    ) AS partitions ON partitions.topic_id = batches.topic_id
        AND partitions.partition = batches.partition
        AND partitions.block_start <= batches.last_offset
"""
_OF_FILES = "WHERE batches.object_id = r.object_id"
_FILES = f"SELECT DISTINCT batches.object_id {_HELD_BACK} {_OF_FILES}"
_COUNTS = f"""
    SELECT batches.topic_id, batches.partition, COUNT(*) {_HELD_BACK} {_OF_FILES}
    GROUP BY batches.topic_id, batches.partition
"""
_ROWS = f"""
    SELECT {COORDINATES.columns} {_HELD_BACK}
    JOIN objects ON objects.object_id = batches.object_id {_OF_FILES}
"""


class HeldBackOperations(Ledger):
    async def held_back_rows(
        self, *, max_file_bytes: int, more_than: int, stuck_for_ms: int, limit: int
    ) -> list[Coordinates]:
        """Return the rows of parked partitions, and of partitions of paused topics, in split files
        of no more than so many bytes, by partition and offset.

        The answer is empty unless one of them has more rows there than `more_than`, or there are
        more such files. Files that were noted as stuck are left out for `stuck_for_ms`.
        """
        read = partial(
            _read, small=(max_file_bytes, stuck_for_ms), more_than=more_than, limit=limit
        )
        return await self._database.read(read)


async def _read(
    connection: Connection, small: tuple[int, int], more_than: int, limit: int
) -> list[Coordinates]:
    # Mostly no partition is held back, or it has few rows there: then nothing else is read.
    if not await connection.fetch(_ANY):
        return []
    small_files = [object_id for (object_id,) in await connection.fetch(_SMALL_FILES, *small)]
    files = [object_id for (object_id,) in await _fetch(connection, _FILES, small_files)]
    if len(files) <= more_than and await _most_rows(connection, files) <= more_than:
        return []
    rows = COORDINATES.read_all(await _fetch(connection, _ROWS, files))
    rows.sort(key=lambda row: (row.topic_id, row.partition, row.last_offset))
    return rows[:limit]


async def _most_rows(connection: Connection, files: Sequence[Any]) -> int:
    """Count the rows of the partition that has the most of them."""
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
