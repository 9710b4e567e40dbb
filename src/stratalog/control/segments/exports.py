"""The exported topics: from the export on, Kafka may put segments of its own beside ours.

A Kafka cluster has one store for all its tiered topics. To read an exported topic it must share the
store of our segments, so that the segments of its other topics come there, too.
"""

from collections.abc import Sequence
from functools import partial

from stratalog.control.ledger import Ledger
from stratalog.control.sql.database import Connection, Rows, as_uuid
from stratalog.control.sql.table import Table
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.ids import TopicId, kafka_base64

EXPORTED_TOPICS = Table("exported_topics", topic_id="uuid", exported_ms="bigint")
_TOPIC = EXPORTED_TOPICS.shape("topic_id")
_SHARED = """
    SELECT r.topic_id FROM {rows}
    WHERE r.topic_id IN (SELECT topic_id FROM exported_topics)
        OR (
            EXISTS (SELECT 1 FROM exported_topics)
            AND r.topic_id NOT IN (SELECT topic_id FROM topics)
        )
"""


class ExportOperations(Ledger):
    async def mark_exported(self, topic_id: TopicId) -> None:
        """Note that a topic's segments are about to be announced to Kafka. May be repeated."""
        await self._database.write(partial(_mark, topic_id=topic_id))

    async def shared_topics(self, ids: Sequence[TopicId]) -> set[TopicId]:
        """Return the topics of which Kafka may have put segments beside ours: the exported ones
        and, once there is an exported one, all that are unknown here."""
        rows = await self._database.read(
            lambda connection: connection.fetch(
                _SHARED,
                rows=Rows(_TOPIC, [(topic_id,) for topic_id in ids]),
            )
        )
        return {TopicId(as_uuid(row[0])) for row in rows}


async def _mark(connection: Connection, topic_id: TopicId) -> None:
    topics = await connection.fetch(
        "SELECT 1 FROM topics WHERE topic_id = $1 AND deleted_ms IS NULL", topic_id
    )
    if not topics:
        raise UnknownTopicError(f"no topic has the id {kafka_base64(topic_id)}")
    await connection.execute(
        "INSERT INTO exported_topics (topic_id, exported_ms) VALUES ($1, {now_ms})"
        " ON CONFLICT (topic_id) DO NOTHING",
        topic_id,
    )
