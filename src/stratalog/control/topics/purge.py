"""The end of deleted topics: their rows and segments in chunks, then all that bears their id.

A topic is kept for a window after its deletion (`undelete.py`). Its removal begins with a note in
its row, in a transaction of its own. An undeletion looks for the note under the same row's lock, so
that a topic that comes back has all its rows.

The rows of segments whose deletion has begun remain until their objects are gone from the store.
"""

from typing import NamedTuple
from uuid import UUID

from stratalog.control.ledger import Ledger
from stratalog.control.log.trims import remove_rows_of_topic, remove_segments_of_topic
from stratalog.control.sql.database import Connection, as_uuid

_TABLES = (
    "group_offsets",
    "producers",
    "epochs",
    "claims",
    "lost_ranges",
    "pipeline_topics",
    "partitions",
    "heads",
    "topics",
)
_HELD = ("batches WHERE topic_id = $1", "segments WHERE topic_id = $1 AND chained")


_DUE = """
    SELECT topic_id, deleted_ms, purge_ms FROM topics
    WHERE deleted_ms IS NOT NULL AND (purge_ms IS NOT NULL OR deleted_ms <= {now_ms} - $1)
    ORDER BY deleted_ms
"""
_BEGIN = """
    UPDATE topics SET purge_ms = {now_ms}
    WHERE topic_id = $1 AND deleted_ms = $2 AND purge_ms IS NULL
"""


class _DueTopic(NamedTuple):
    topic_id: UUID
    deleted_ms: int
    purge_ms: int | None


class PurgeOperations(Ledger):
    async def purge_deleted(self, *, window_ms: int, max_rows: int) -> int:
        """Remove up to `max_rows` coordinates of topics that were deleted longer ago than the
        window, or whose removal was ordered. 0 means that none are left."""
        removed = 0
        for topic in await self._due_topics(window_ms):
            if not await self._begin(topic):
                continue
            removed += await self._purge(topic.topic_id, max_rows - removed)
            if removed >= max_rows:
                break
        return removed

    async def _due_topics(self, window_ms: int) -> list[_DueTopic]:
        rows = await self._database.read(lambda connection: connection.fetch(_DUE, window_ms))
        return [_DueTopic(as_uuid(row[0]), row[1], row[2]) for row in rows]

    async def _begin(self, topic: _DueTopic) -> bool:
        """Return False if the topic was undeleted, or another janitor was faster."""
        if topic.purge_ms is not None:
            return True
        begun = await self._database.write(
            lambda connection: connection.execute(_BEGIN, topic.topic_id, topic.deleted_ms)
        )
        return begun > 0

    async def _purge(self, topic_id: UUID, max_rows: int) -> int:
        removed = await self._database.write(
            lambda connection: remove_rows_of_topic(connection, topic_id, max_rows=max_rows)
        )
        if removed < max_rows:
            rest = max_rows - removed
            removed += await self._database.write(
                lambda connection: remove_segments_of_topic(connection, topic_id, max_rows=rest)
            )
        if removed < max_rows:
            await self._database.write(lambda connection: _forget(connection, topic_id))
        return removed


async def _forget(connection: Connection, topic_id: UUID) -> None:
    """Remove the topic itself, unless a commit that began before its deletion added a row."""
    await connection.fetch(
        "SELECT partition FROM heads WHERE topic_id = $1 ORDER BY topic_id, partition {for_update}",
        topic_id,
    )
    for held in _HELD:
        if await connection.fetch(f"SELECT 1 FROM {held} LIMIT 1", topic_id):
            return
    for table in _TABLES:
        await connection.execute(f"DELETE FROM {table} WHERE topic_id = $1", topic_id)
