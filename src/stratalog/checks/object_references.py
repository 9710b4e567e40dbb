"""The references of all partitions' rows to objects, sorted by object.

Rows are read partition by partition, and objects by id. To compare both in bounded memory, the
references are sorted on disk, in a temporary database that is deleted when it is closed.
"""

import sqlite3
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from uuid import UUID

from stratalog.control.log.model import Coordinates
from stratalog.ids import ObjectId, Offset, PartitionIndex, TopicId, TopicPartition

_SCHEMA = """
CREATE TABLE refs (
    object_id BLOB PRIMARY KEY,
    byte_end INTEGER NOT NULL,
    topic_id BLOB NOT NULL,
    partition INTEGER NOT NULL,
    base_offset INTEGER NOT NULL
) WITHOUT ROWID
"""
_UPSERT = """
INSERT INTO refs VALUES (?, ?, ?, ?, ?)
ON CONFLICT (object_id) DO UPDATE SET
    byte_end = excluded.byte_end,
    topic_id = excluded.topic_id,
    partition = excluded.partition,
    base_offset = excluded.base_offset
WHERE excluded.byte_end > byte_end
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectReference:
    """The row that reaches furthest into an object."""

    object_id: ObjectId
    byte_end: int
    partition: TopicPartition
    base_offset: Offset


class ObjectReferences:
    def __init__(self) -> None:
        # With an empty name, SQLite keeps the database in a temporary file, which it deletes.
        self._database = sqlite3.connect("")
        self._database.execute(_SCHEMA)

    def close(self) -> None:
        self._database.close()

    def add(self, rows: Iterable[Coordinates]) -> None:
        self._database.executemany(_UPSERT, map(_as_row, rows))

    async def sorted(self) -> AsyncIterator[tuple[ObjectId, ObjectReference]]:
        query = "SELECT object_id, byte_end, topic_id, partition, base_offset FROM refs ORDER BY 1"
        for object_id, byte_end, topic_id, partition, base in self._database.execute(query):
            reference = ObjectReference(
                object_id=ObjectId(UUID(bytes=object_id)),
                byte_end=byte_end,
                partition=TopicPartition(TopicId(UUID(bytes=topic_id)), PartitionIndex(partition)),
                base_offset=Offset(base),
            )
            yield reference.object_id, reference


def _as_row(row: Coordinates) -> tuple[bytes, int, bytes, int, int]:
    byte_end = row.byte_offset + row.byte_size
    return row.object_id.bytes, byte_end, row.topic_id.bytes, row.partition, row.base_offset
