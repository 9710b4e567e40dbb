"""Pending rows: the count of rows of partitions that are not converted.

A paused topic may have tens of millions of rows, and a statement has to end before its time is
over. So the rows are counted in chunks, of some partitions at a time, on one snapshot.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from stratalog.control.log.model import BATCHES, OLDEST_MS
from stratalog.control.sql.database import Connection, Row, Rows, as_uuid
from stratalog.ids import TopicId, TopicPartition

CHUNK_ROWS = 16_384
_GROUP = 64
"""Partitions counted with one statement: with a full chunk each, about a second of work."""

_COUNTED = BATCHES.shape(
    "topic_id", "partition", first_offset="bigint", aged_end="bigint", cutoff_ms="bigint"
)
_AGED = "committed_ms <= r.cutoff_ms AND last_offset < r.aged_end"


@dataclass(slots=True)
class PendingCount:
    """A partition, and the offset up to which its rows were counted."""

    partition: TopicPartition
    next_offset: int
    aged_end: int
    """Rows that do not end before this have not aged, however old they are."""
    cutoff_ms: int

    @property
    def next_chunk(self) -> Row:
        return (*self.partition, self.next_offset, self.aged_end, self.cutoff_ms)


@dataclass(slots=True)
class Pending:
    """The rows of a topic that are not converted."""

    rows: int = 0
    bytes: int = 0
    aged_rows: int = 0
    aged_bytes: int = 0
    oldest_ms: int | None = None
    split_files: set[UUID] = field(default_factory=set)


async def count_pending(
    connection: Connection, counts: Sequence[PendingCount]
) -> Mapping[TopicId, Pending]:
    found: dict[TopicId, Pending] = defaultdict(Pending)
    for i in range(0, len(counts), _GROUP):
        unfinished = counts[i : i + _GROUP]
        while unfinished:
            source = Rows(_COUNTED, [count.next_chunk for count in unfinished])
            chunks = await connection.fetch_each(_chunk(CHUNK_ROWS), source)
            unfinished = [
                count
                for count, groups in zip(unfinished, chunks, strict=True)
                if _add(count, groups, found[count.partition.topic_id])
            ]
    return found


def _chunk(most_rows: int) -> str:
    """Return a query that counts the rows of each split file, and of all blocks together.

    Only rows of split files are stamped.
    """
    return f"""
        SELECT file_id, MAX(last_offset), COUNT(*), SUM(byte_size), MIN(oldest_ms),
            SUM(CASE WHEN {_AGED} THEN 1 ELSE 0 END),
            SUM(CASE WHEN {_AGED} THEN byte_size ELSE 0 END)
        FROM (
            SELECT last_offset, byte_size, committed_ms, {OLDEST_MS} AS oldest_ms,
                CASE WHEN stamped THEN object_id END AS file_id
            FROM batches
            WHERE batches.topic_id = r.topic_id AND batches.partition = r.partition
                AND batches.last_offset >= r.first_offset
            ORDER BY last_offset LIMIT {most_rows}
        ) AS chunk
        GROUP BY file_id
    """


def _add(count: PendingCount, groups: Iterable[Row], pending: Pending) -> bool:
    """Count a chunk, and return True if there may be another."""
    counted = 0
    for file_id, last_offset, rows, byte_size, oldest_ms, aged_rows, aged_bytes in groups:
        counted += rows
        count.next_offset = max(count.next_offset, last_offset + 1)
        pending.rows += rows
        pending.bytes += int(byte_size)
        pending.aged_rows += int(aged_rows)
        pending.aged_bytes += int(aged_bytes)
        if pending.oldest_ms is None or oldest_ms < pending.oldest_ms:
            pending.oldest_ms = oldest_ms
        if file_id is not None:
            pending.split_files.add(as_uuid(file_id))
    return counted == CHUNK_ROWS
