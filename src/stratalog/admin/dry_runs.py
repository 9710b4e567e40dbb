"""How much a deletion or another retention would take away, without taking it."""

from collections.abc import Mapping
from typing import NamedTuple

from stratalog.admin.authorizer import Authorizer
from stratalog.admin.entries import PartitionName, partition_in
from stratalog.admin.principal import Principal
from stratalog.admin.rights import DESCRIBE_TOPIC
from stratalog.control.log.dry_runs import WouldGo
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.control.topics.model import Topic
from stratalog.ids import Offset, PartitionIndex, TopicPartition
from stratalog.topic.configs import effective
from stratalog.topic_configs import check_configs


class EarlierLimit(NamedTuple):
    """A limit of retention that was changed, and that still counts."""

    name: str
    value: str | None
    """None: the cluster's default."""
    until_ms: int
    counts_until_ms: int


class DryRunAdmin:
    def __init__(self, *, control: ControlPlane, authorizer: Authorizer) -> None:
        self._control = control
        self._authorizer = authorizer

    async def topic_deletion(self, principal: Principal, name: str) -> WouldGo:
        """Return how much the deletion of a topic takes away, once it is purged."""
        total = WouldGo()
        for key in _partitions(await self._topic(principal, name)):
            total += await self._control.log.would_go(key)
        return total

    async def record_deletion(
        self, principal: Principal, name: PartitionName, before: Offset
    ) -> WouldGo:
        """Return how much DeleteRecords up to an offset takes away."""
        topic = await self._topic(principal, name.topic)
        key = partition_in({topic.name: topic}, name)
        return await self._control.log.would_go(key, before)

    async def retention(
        self,
        principal: Principal,
        name: str,
        changes: Mapping[str, str | None],
        *,
        defaults: Mapping[str, str],
    ) -> WouldGo:
        """Return how much goes by a topic's retention after these changes of its configs, when the
        earlier limits do not count any more."""
        topic = await self._topic(principal, name)
        given = {key: value for key, value in changes.items() if value is not None}
        merged = {**topic.configs, **check_configs(given)}
        configs = {
            key: value for key, value in merged.items() if changes.get(key, value) is not None
        }
        limits = effective(defaults, configs)
        total = WouldGo()
        for key in _partitions(topic):
            total += await self._control.log.would_expire(
                key, retention_ms=limits.retention_ms, retention_bytes=limits.retention_bytes
            )
        return total

    async def earlier_limits(
        self, principal: Principal, name: str, *, window_ms: int
    ) -> list[EarlierLimit]:
        """Return the earlier limits of a topic that still count, because their window has not
        passed. Of these and the present limit, the largest decides."""
        topic = await self._topic(principal, name)
        now_ms = (await self._control.settings.now()).now_ms
        return [
            EarlierLimit(config, entry.value, entry.until_ms, entry.until_ms + window_ms)
            for config, history in sorted(topic.earlier_retention.items())
            for entry in history
            if entry.until_ms + window_ms > now_ms
        ]

    async def _topic(self, principal: Principal, name: str) -> Topic:
        self._authorizer.authorize(principal, DESCRIBE_TOPIC, name)
        found = await self._control.topics.named([name])
        if not found:
            raise UnknownTopicError(f"there is no topic {name!r}")
        return found[0]


def _partitions(topic: Topic) -> list[TopicPartition]:
    return [
        TopicPartition(topic.id, PartitionIndex(index)) for index in range(topic.partition_count)
    ]
