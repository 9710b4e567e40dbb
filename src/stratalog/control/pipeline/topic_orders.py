"""Orders of people to the pipeline, per topic: to leave it alone, or not to wait any longer.

A trigger is a time. A run does not use it up, because a run may do a part of the work or fail: all
batches committed before the trigger are due until they are converted, and then none is left.
"""

from collections.abc import Iterable
from functools import partial

from stratalog.control.ledger import Ledger
from stratalog.control.pipeline.model import PIPELINE_TOPICS, TOPIC_ORDERS, TopicOrders
from stratalog.control.sql.database import Connection, Rows, as_uuid
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.ids import TopicId, kafka_base64

_TOPIC_ID = PIPELINE_TOPICS.shape("topic_id")
_READ = f"""
    SELECT pipeline_topics.topic_id, {TOPIC_ORDERS.columns} FROM {{rows}}
    JOIN pipeline_topics ON pipeline_topics.topic_id = r.topic_id
"""


class TopicOrderOperations(Ledger):
    async def pause(self, topic_id: TopicId) -> None:
        """Convert nothing of the topic from now on. Claimed ranges are still finished."""
        await self._order(topic_id, "paused_ms = COALESCE(paused_ms, {now_ms})")

    async def resume(self, topic_id: TopicId) -> None:
        await self._order(topic_id, "paused_ms = NULL")

    async def trigger(self, topic_id: TopicId) -> bool:
        """Have all present batches converted, whatever their age and however few they are. The
        trigger ends when that is done; later batches wait as always.

        Returns True if that begins now: a paused topic waits until it is resumed."""
        orders = await self._order(topic_id, "triggered_ms = {now_ms}")
        return orders.paused_ms is None

    async def _order(self, topic_id: TopicId, change: str) -> TopicOrders:
        return await self._database.write(partial(_order, topic_id=topic_id, change=change))


async def read_orders(
    connection: Connection, topic_ids: Iterable[TopicId]
) -> dict[TopicId, TopicOrders]:
    """Return the orders about these topics. Topics without any order are left out."""
    rows = await connection.fetch(
        _READ, rows=Rows(_TOPIC_ID, [(topic_id,) for topic_id in topic_ids])
    )
    return {TopicId(as_uuid(row[0])): TOPIC_ORDERS.read(row[1:]) for row in rows}


async def _order(connection: Connection, topic_id: TopicId, change: str) -> TopicOrders:
    # Locked, so that a purge of the topic comes after it.
    alive = await connection.fetch(
        "SELECT 1 FROM topics WHERE topic_id = $1 AND deleted_ms IS NULL {for_update}", topic_id
    )
    if not alive:
        raise UnknownTopicError(f"no topic has the id {kafka_base64(topic_id)}")
    await connection.execute(
        "INSERT INTO pipeline_topics (topic_id) VALUES ($1) ON CONFLICT (topic_id) DO NOTHING",
        topic_id,
    )
    [row] = await connection.fetch(
        f"UPDATE pipeline_topics SET {change} WHERE topic_id = $1 RETURNING {TOPIC_ORDERS.columns}",
        topic_id,
    )
    return TOPIC_ORDERS.read(row)
