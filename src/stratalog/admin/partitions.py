"""Partitions as a cluster spreads them over brokers: leaders, replicas, sizes and producers.

Brokers keep no data. A partition has no replicas to move and no leader to elect: its leader
follows from the brokers that are alive, and every broker takes any write.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from stratalog.admin.authorizer import Authorizer
from stratalog.admin.entries import (
    DONE,
    Done,
    PartitionName,
    attempt,
    partition_in,
    topic_names,
)
from stratalog.admin.errors import (
    ElectionNotNeededError,
    NoReassignmentError,
    PartitionAssignmentError,
)
from stratalog.admin.principal import Principal
from stratalog.admin.rights import ALTER_CLUSTER, DESCRIBE_CLUSTER, READ_TOPIC
from stratalog.cluster.membership import Membership
from stratalog.control.log.model import ActiveProducer
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.model import Topic
from stratalog.errors import StratalogError
from stratalog.ids import PartitionIndex, TopicPartition
from stratalog.topic.catalog import TopicCatalog


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    partition: PartitionName
    replicas: Sequence[int] | None
    """Broker ids. None cancels a reassignment that is under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSize:
    partition: PartitionIndex
    size_bytes: int


class PartitionAdmin:
    def __init__(
        self,
        *,
        control: ControlPlane,
        catalog: TopicCatalog,
        membership: Membership,
        authorizer: Authorizer,
    ) -> None:
        self._control = control
        self._catalog = catalog
        self._membership = membership
        self._authorizer = authorizer

    async def elect_leaders(
        self, principal: Principal, wanted: Sequence[PartitionName]
    ) -> list[StratalogError]:
        """Refuse to elect leaders, and return the reason for each partition."""
        self._authorizer.authorize_on_cluster(principal, ALTER_CLUSTER)
        topics = await self._catalog.named(topic_names(wanted))
        return [_no_election(topics, name) for name in wanted]

    async def reassign(
        self, principal: Principal, wanted: Sequence[Reassignment]
    ) -> list[Done | StratalogError]:
        """Accept each partition that shall stay with its leader, and refuse every other move."""
        self._authorizer.authorize_on_cluster(principal, ALTER_CLUSTER)
        topics = await self._catalog.named(topic_names([one.partition for one in wanted]))
        return [attempt(partial(self._reassign, topics, one)) for one in wanted]

    def reassignments(self, principal: Principal) -> list[Reassignment]:
        """Return the reassignments that are under way: never any."""
        self._authorizer.authorize_on_cluster(principal, DESCRIBE_CLUSTER)
        return []

    async def led_sizes(
        self, principal: Principal, wanted: Mapping[str, Sequence[int]] | None = None
    ) -> dict[str, list[PartitionSize]]:
        """Return the sizes of the partitions that this broker leads, by topic.

        `wanted` are partitions by topic, None all. Each partition has one leader, so the sum over
        all brokers counts every partition once.
        """
        self._authorizer.authorize_on_cluster(principal, DESCRIBE_CLUSTER)
        led = await self._led(wanted)
        states = await self._control.log.partitions(list(led))
        sizes: dict[str, list[PartitionSize]] = {}
        for key in sorted(states, key=lambda key: (led[key], key.partition)):
            size = PartitionSize(partition=key.partition, size_bytes=states[key].size_bytes)
            sizes.setdefault(led[key], []).append(size)
        return sizes

    async def active_producers(
        self, principal: Principal, wanted: Sequence[PartitionName]
    ) -> list[Sequence[ActiveProducer] | StratalogError]:
        """Return the idempotent producers whose sequences are remembered, by partition."""
        topics = await self._catalog.named(topic_names(wanted))

        def find(name: PartitionName) -> TopicPartition:
            self._authorizer.authorize(principal, READ_TOPIC, name.topic)
            return partition_in(topics, name)

        keys = [attempt(partial(find, name)) for name in wanted]
        known = [key for key in keys if not isinstance(key, StratalogError)]
        found = await self._control.log.active_producers(known)
        return [key if isinstance(key, StratalogError) else found[key] for key in keys]

    def _reassign(self, topics: Mapping[str, Topic], wanted: Reassignment) -> Done:
        key = partition_in(topics, wanted.partition)
        if wanted.replicas is None:
            raise NoReassignmentError(f"no reassignment of {wanted.partition} is under way")
        if list(wanted.replicas) != [self._membership.leader_of(key).broker_id]:
            raise PartitionAssignmentError(
                "replicas cannot be assigned: brokers keep no data, and any of them serves"
            )
        return DONE

    async def _led(self, wanted: Mapping[str, Sequence[int]] | None) -> dict[TopicPartition, str]:
        """Return the partitions that this broker leads, with the names of their topics."""
        if wanted is None:
            topics = await self._catalog.all()
            wanted = {topic.name: range(topic.partition_count) for topic in topics}
        else:
            topics = list((await self._catalog.named(list(wanted))).values())
        return {
            key: topic.name
            for topic in topics
            for key in _existing(topic, wanted[topic.name])
            if self._membership.leader_of(key).broker_id == self._membership.broker_id
        }


def _existing(topic: Topic, indexes: Sequence[int]) -> list[TopicPartition]:
    return [
        TopicPartition(topic.id, PartitionIndex(index))
        for index in indexes
        if 0 <= index < topic.partition_count
    ]


def _no_election(topics: Mapping[str, Topic], name: PartitionName) -> StratalogError:
    found = attempt(lambda: partition_in(topics, name))
    if isinstance(found, StratalogError):
        return found
    return ElectionNotNeededError(
        "leaders follow from the brokers that are alive: there is nothing to elect"
    )
