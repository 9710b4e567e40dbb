"""What people asked of the pipeline, per topic: to leave it alone, or not to wait any longer.

A trigger is a time. It is not used up by a run, which may do a part of the work or fail: what was
committed before it is wanted until it is converted, and then nothing is before it any more.
"""

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from stratalog.control.ledger import Ledger
from stratalog.control.sql.database import Connection, Rows, as_uuid, shape
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.ids import TopicId, kafka_base64

_TOPIC_ID = shape(topic_id="uuid")


class TopicOrders(NamedTuple):
    paused_ms: int | None = None
    triggered_ms: int | None = None
    """Nothing takes a trigger back: it ends when all that is older is converted."""


class TopicOrderOperations(Ledger):
    async def pause(self, topic_id: TopicId) -> None:
        """Convert nothing of the topic from now on. What is claimed already is finished."""
        await self._order(topic_id, "paused_ms = COALESCE(paused_ms, {now_ms})")

    async def resume(self, topic_id: TopicId) -> None:
        await self._order(topic_id, "paused_ms = NULL")

    async def trigger(self, topic_id: TopicId) -> bool:
        """Have all that is there now converted, whatever its age and however little it is. The
        trigger ends when that is done; what is written later waits as always.

        Returns whether that begins now: a paused topic waits until it is resumed."""
        orders = await self._order(topic_id, "triggered_ms = {now_ms}")
        return orders.paused_ms is None

    async def _order(self, topic_id: TopicId, change: str) -> TopicOrders:
        return await self._database.write(partial(_order, topic_id=topic_id, change=change))


async def read_orders(
    connection: Connection, topic_ids: Iterable[TopicId]
) -> dict[TopicId, TopicOrders]:
    """Of those topics about which anything was ever asked."""
    rows = await connection.fetch(
        "SELECT o.topic_id, o.paused_ms, o.triggered_ms FROM {rows}"
        " JOIN pipeline_topics o ON o.topic_id = r.topic_id",
        rows=Rows(_TOPIC_ID, [(topic_id,) for topic_id in topic_ids]),
    )
    return {TopicId(as_uuid(row[0])): TopicOrders(row[1], row[2]) for row in rows}


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
        f"UPDATE pipeline_topics SET {change} WHERE topic_id = $1"
        " RETURNING paused_ms, triggered_ms",
        topic_id,
    )
    return TopicOrders(*row)
