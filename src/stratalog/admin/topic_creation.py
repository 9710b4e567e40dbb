"""Creating topics, on request and on first use, by one set of rules."""

from collections.abc import Mapping

from stratalog.admin.topic_names import check_no_collision, check_topic_name, may_collide
from stratalog.control.topics.errors import PartitionCountError, TopicExistsError
from stratalog.control.topics.model import MAX_PARTITIONS, Topic
from stratalog.topic.catalog import TopicCatalog
from stratalog.topic_configs import check_configs

_DEFAULT_COUNT = -1


class TopicCreation:
    def __init__(self, catalog: TopicCatalog, *, default_partitions: int) -> None:
        self._catalog = catalog
        self._default_partitions = default_partitions

    async def check(
        self, name: str, *, partition_count: int, configs: Mapping[str, str | None]
    ) -> int:
        """Raise if the topic cannot be created; return its number of partitions."""
        check_topic_name(name)
        if partition_count == _DEFAULT_COUNT:
            partition_count = self._default_partitions
        check_partition_count(partition_count)
        check_configs(configs)
        if name in await self._catalog.refreshed([name]):
            raise TopicExistsError(f"topic {name!r} exists")
        if may_collide(name):
            check_no_collision(name, [topic.name for topic in await self._catalog.all()])
        return partition_count

    async def create(
        self, name: str, *, partition_count: int, configs: Mapping[str, str | None]
    ) -> Topic:
        count = await self.check(name, partition_count=partition_count, configs=configs)
        return await self._catalog.create(
            name, partition_count=count, configs=check_configs(configs)
        )

    async def on_first_use(self, name: str) -> Topic:
        """Create a topic with defaults, or find it if another client created it first."""
        try:
            return await self.create(name, partition_count=_DEFAULT_COUNT, configs={})
        except TopicExistsError:
            found = await self._catalog.refreshed([name])
            if name in found:
                return found[name]
            raise


def check_partition_count(count: int) -> None:
    if not 1 <= count <= MAX_PARTITIONS:
        raise PartitionCountError(f"{count} partitions: a topic has from 1 to {MAX_PARTITIONS}")
