"""The end of deleted topics: their rows and segments in chunks, then all that bears their id.

The rows of segments whose deletion has begun remain until their objects are gone from the store.
"""

from uuid import UUID

from stratalog.control.ledger import Ledger
from stratalog.control.log.trims import remove_rows_of_topic, remove_segments_of_topic
from stratalog.control.sql.database import Connection, as_uuid

_TABLES = (
    "group_offsets",
    "producers",
    "epochs",
    "claims",
    "pipeline_topics",
    "partitions",
    "heads",
    "topics",
)
_HELD = ("batches WHERE topic_id = $1", "segments WHERE topic_id = $1 AND chained")


class PurgeOperations(Ledger):
    async def purge_deleted(self, *, max_rows: int) -> int:
        """Remove up to `max_rows` coordinates of deleted topics. 0 means that none are left."""
        removed = 0
        for topic_id in await self._deleted_topics():
            removed += await self._purge(topic_id, max_rows - removed)
            if removed >= max_rows:
                break
        return removed

    async def _deleted_topics(self) -> list[UUID]:
        rows = await self._database.read(
            lambda connection: connection.fetch(
                "SELECT topic_id FROM topics WHERE deleted_ms IS NOT NULL ORDER BY deleted_ms"
            )
        )
        return [as_uuid(row[0]) for row in rows]

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
