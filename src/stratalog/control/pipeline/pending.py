"""What partitions have in blocks and split files, counted.

A paused topic may have tens of millions of rows, and a statement has to end before its time is
over. So the rows are walked in chunks, of some partitions at a time, on one snapshot.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from stratalog.control.log.rows import OLDEST_MS
from stratalog.control.sql.database import Connection, Row, Rows, as_uuid, shape
from stratalog.ids import TopicId, TopicPartition

CHUNK_ROWS = 16_384
_GROUP = 64
"""Partitions walked with one statement: with a full chunk each, about a second of work."""

_WALK = shape(
    topic_id="uuid",
    partition="integer",
    first_offset="bigint",
    aged_end="bigint",
    cutoff_ms="bigint",
)
_AGED = "w.committed_ms <= r.cutoff_ms AND w.last_offset < r.aged_end"


@dataclass(slots=True)
class PendingWalk:
    """A partition, and how far its rows were counted."""

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
    """What a topic has that is not converted."""

    rows: int = 0
    bytes: int = 0
    aged_rows: int = 0
    aged_bytes: int = 0
    oldest_ms: int | None = None
    split_files: set[UUID] = field(default_factory=set)


async def count_pending(
    connection: Connection, walks: Sequence[PendingWalk]
) -> Mapping[TopicId, Pending]:
    found: dict[TopicId, Pending] = defaultdict(Pending)
    for i in range(0, len(walks), _GROUP):
        walking = walks[i : i + _GROUP]
        while walking:
            source = Rows(_WALK, [walk.next_chunk for walk in walking])
            chunks = await connection.fetch_each(_chunk(CHUNK_ROWS), source)
            walking = [
                walk
                for walk, groups in zip(walking, chunks, strict=True)
                if _add(walk, groups, found[walk.partition.topic_id])
            ]
    return found


def _chunk(most_rows: int) -> str:
    """Counts the rows of each split file, and those of all blocks together. Only rows of split
    files are stamped."""
    return (
        "SELECT w.file_id, MAX(w.last_offset), COUNT(*), SUM(w.byte_size), MIN(w.oldest_ms),"
        f" SUM(CASE WHEN {_AGED} THEN 1 ELSE 0 END),"
        f" SUM(CASE WHEN {_AGED} THEN w.byte_size ELSE 0 END)"
        f" FROM (SELECT b.last_offset, b.byte_size, b.committed_ms, {OLDEST_MS} AS oldest_ms,"
        " CASE WHEN b.stamped THEN b.object_id END AS file_id FROM batches b"
        " WHERE b.topic_id = r.topic_id AND b.partition = r.partition"
        " AND b.last_offset >= r.first_offset"
        f" ORDER BY b.last_offset LIMIT {most_rows}) w GROUP BY w.file_id"
    )


def _add(walk: PendingWalk, groups: Iterable[Row], pending: Pending) -> bool:
    """Count a chunk, and return whether there may be another."""
    counted = 0
    for file_id, last_offset, rows, byte_size, oldest_ms, aged_rows, aged_bytes in groups:
        counted += rows
        walk.next_offset = max(walk.next_offset, last_offset + 1)
        pending.rows += rows
        pending.bytes += int(byte_size)
        pending.aged_rows += int(aged_rows)
        pending.aged_bytes += int(aged_bytes)
        if pending.oldest_ms is None or oldest_ms < pending.oldest_ms:
            pending.oldest_ms = oldest_ms
        if file_id is not None:
            pending.split_files.add(as_uuid(file_id))
    return counted == CHUNK_ROWS
