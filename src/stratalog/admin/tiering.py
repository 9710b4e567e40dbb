"""Orders to the pipeline about a topic, and the runs that it has made."""

from stratalog.admin.authorizer import Authorizer
from stratalog.admin.principal import Principal
from stratalog.admin.rights import ALTER_TOPIC, DESCRIBE_CLUSTER
from stratalog.admin.topics import TopicAdmin
from stratalog.control.pipeline.model import Run
from stratalog.control.plane import ControlPlane
from stratalog.ids import PartitionIndex, TopicId


class TieringAdmin:
    def __init__(
        self, *, control: ControlPlane, topics: TopicAdmin, authorizer: Authorizer
    ) -> None:
        self._control = control
        self._topics = topics
        self._authorizer = authorizer

    async def pause(self, principal: Principal, topic: str) -> None:
        """Keep the next runs from converting the topic. A run in progress finishes its work."""
        await self._control.pipeline.pause(await self._alterable(principal, topic))

    async def resume(self, principal: Principal, topic: str) -> None:
        await self._control.pipeline.resume(await self._alterable(principal, topic))

    async def trigger(self, principal: Principal, topic: str) -> bool:
        """Have the next runs convert all present records of the topic, aged or not.

        Returns False if the topic is paused, so that nothing happens before it is resumed.
        """
        return await self._control.pipeline.trigger(await self._alterable(principal, topic))

    async def unpark(
        self, principal: Principal, topic: str, partition: PartitionIndex | None = None
    ) -> int:
        """Try parked partitions again: one, or all. Returns their number."""
        topic_id = await self._alterable(principal, topic)
        return await self._control.pipeline.unpark(topic_id, partition)

    async def runs(self, principal: Principal, *, limit: int) -> list[Run]:
        """Return the last runs, the newest first."""
        self._authorizer.authorize_on_cluster(principal, DESCRIBE_CLUSTER)
        return await self._control.pipeline.runs(limit=limit)

    async def _alterable(self, principal: Principal, topic: str) -> TopicId:
        self._authorizer.authorize(principal, ALTER_TOPIC, topic)
        return (await self._topics.find(principal, topic)).id
