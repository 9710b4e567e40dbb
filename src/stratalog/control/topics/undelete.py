"""Deleted topics that are still kept: listed, brought back, or given up early.

A deletion sets one mark, and all rows stay until the purge begins. So an undeletion takes the mark
away: offsets, epochs, sequences, configs and the offsets of groups are there again, as they were.
"""

from functools import partial

from stratalog.control.ledger import Ledger
from stratalog.control.sql.database import Connection
from stratalog.control.topics.errors import TopicExistsError, UnknownTopicError
from stratalog.control.topics.model import DELETED_TOPIC, DeletedTopic
from stratalog.ids import TopicId, kafka_base64

_DELETED = f"""
    SELECT {DELETED_TOPIC.columns} FROM topics
    WHERE topics.deleted_ms IS NOT NULL ORDER BY topics.deleted_ms, topics.topic_id
"""
_UNDELETE = """
    UPDATE topics SET deleted_ms = NULL, name = $2
    WHERE topic_id = $1 AND deleted_ms IS NOT NULL AND purge_ms IS NULL
"""
_ORDER_PURGE = """
    UPDATE topics SET purge_ms = COALESCE(purge_ms, {now_ms})
    WHERE topic_id = $1 AND deleted_ms IS NOT NULL
"""


class UndeleteOperations(Ledger):
    async def deleted(self) -> list[DeletedTopic]:
        """Return the deleted topics of which rows are left, the oldest deletion first."""
        rows = await self._database.read(lambda connection: connection.fetch(_DELETED))
        return DELETED_TOPIC.read_all(rows)

    async def undelete(self, topic_id: TopicId, name: str) -> None:
        """Bring a deleted topic back under this name, which may be another than it had.

        Raises `TopicExistsError` if the name is taken, and `UnknownTopicError` if the topic is not
        deleted, or its removal has begun.
        """
        await self._database.write(partial(_undelete, topic_id=topic_id, name=name))

    async def order_purge(self, topic_id: TopicId) -> None:
        """Have the next janitor remove a deleted topic, however young its deletion is."""
        ordered = await self._database.write(
            lambda connection: connection.execute(_ORDER_PURGE, topic_id)
        )
        if not ordered:
            raise UnknownTopicError(f"no deleted topic has the id {kafka_base64(topic_id)}")


async def _undelete(connection: Connection, topic_id: TopicId, name: str) -> None:
    # Creations share the lock, so that none takes the name between the look and the update.
    await connection.lock("topic names")
    if await connection.fetch("SELECT 1 FROM topics WHERE name = $1 AND deleted_ms IS NULL", name):
        raise TopicExistsError(f"topic {name} exists: give the deleted one another name")
    if not await connection.execute(_UNDELETE, topic_id, name):
        raise UnknownTopicError(
            f"topic {name} with the id {kafka_base64(topic_id)} cannot be undeleted: it is not"
            " deleted, or its removal has begun"
        )
