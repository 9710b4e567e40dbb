"""Creating, growing and deleting topics."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import NamedTuple
from uuid import UUID

from stratalog.admin.authorizer import CLUSTER, Authorizer
from stratalog.admin.config_description import DescribedConfig, describe_topic
from stratalog.admin.entries import DONE, Done, each_once
from stratalog.admin.errors import (
    ReplicationFactorError,
    UnknownTopicIdError,
)
from stratalog.admin.principal import Principal
from stratalog.admin.replica_assignments import (
    AssignedPartition,
    check_new_partitions,
    check_new_topic,
)
from stratalog.admin.rights import (
    ALTER_TOPIC,
    CREATE_ON_CLUSTER,
    CREATE_TOPIC,
    DELETE_TOPIC,
    DESCRIBE_TOPIC,
)
from stratalog.admin.topic_limits import TopicLimits, check_request
from stratalog.admin.topic_names import check_no_collision, check_topic_name, may_collide
from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.control.log.model import PartitionState
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.errors import (
    PartitionCountError,
    TopicExistsError,
    UnknownTopicError,
)
from stratalog.control.topics.model import MAX_PARTITIONS, Topic
from stratalog.errors import CallError, StratalogError
from stratalog.ids import TopicId, kafka_base64
from stratalog.recovery.deletion_notes import DeletionNotes
from stratalog.settings import Settings
from stratalog.topic.catalog import TopicCatalog
from stratalog.topic_configs import check_configs

log = logging.getLogger(__name__)

DEFAULT_COUNT = -1
"""Kafka's number for "as many partitions as the broker's settings say"."""
DEFAULT_FACTOR = -1
REPLICATION_FACTOR = 1
"""Of every topic, whatever was asked for: the object store replicates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create."""

    name: str
    partition_count: int = DEFAULT_COUNT
    replication_factor: int = DEFAULT_FACTOR
    assigned: Sequence[AssignedPartition] = ()
    """Replicas on brokers, instead of the two numbers."""
    configs: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def asked_count(self) -> int:
        return len(self.assigned) or self.partition_count


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    name: str
    topic_id: TopicId | None
    """None if the request was only validated."""
    partition_count: int
    configs: Sequence[DescribedConfig]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionGrowth:
    """A topic that is to have more partitions."""

    topic: str
    partition_count: int
    """All partitions, the existing ones included."""
    assigned: Sequence[Sequence[int]] | None = None
    """The brokers of each new partition."""


class TopicName(NamedTuple):
    """A topic by its name or by its id, never by both."""

    name: str | None = None
    topic_id: UUID | None = None

    def __str__(self) -> str:
        return self.name if self.name is not None else str(self.topic_id)


class TopicAdmin:
    def __init__(
        self,
        *,
        control: ControlPlane,
        catalog: TopicCatalog,
        settings: Settings,
        authorizer: Authorizer,
        notes: DeletionNotes | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._control = control
        self._notes = notes
        self._limits = TopicLimits(control=control, settings=settings.broker, clock=clock)
        self._catalog = catalog
        self._default_partitions = settings.broker.default_partitions
        self._default_configs = settings.topic
        self._authorizer = authorizer

    async def find(self, principal: Principal, name: str) -> Topic:
        """Return the topic as the control plane knows it now.

        Raises `UnknownTopicError`, which names the topic that was probably meant.
        """
        self._authorizer.authorize(principal, DESCRIBE_TOPIC, name)
        found = await self._catalog.refreshed([name])
        if name in found:
            return found[name]
        close = get_close_matches(name, [each.name for each in await self._catalog.all()], n=1)
        hint = f'did you mean "{close[0]}"?' if close else "is this the control plane you mean?"
        raise UnknownTopicError(f'there is no topic "{name}" at {self._control.url}: {hint}')

    async def partition_states(self, principal: Principal, name: str) -> list[PartitionState]:
        """Return the boundaries and sizes of all partitions of a topic."""
        topic = await self.find(principal, name)
        return await self._control.log.topic_partitions(topic.id)

    async def create(
        self, principal: Principal, wanted: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic | StratalogError]:
        """Create topics and return the outcomes by name."""

        asked = 0

        async def create_one(new: NewTopic) -> CreatedTopic:
            nonlocal asked
            if new.asked_count <= MAX_PARTITIONS:
                asked += max(new.asked_count, 1)
            check_request(asked)
            return await self._create(principal, new, validate_only=validate_only)

        return await each_once(((new.name, new) for new in wanted), create_one, noun="topic")

    async def create_on_first_use(self, principal: Principal, name: str) -> Topic:
        """Create a topic with defaults, or find it if another client created it first."""
        new = NewTopic(name=name)
        self._authorize_creation(principal, name)
        try:
            count = await self._checked_count(new)
            self._limits.take_first_use(name)
            return await self._created(principal, new, count)
        except TopicExistsError:
            found = await self._catalog.refreshed([name])
            if name in found:
                return found[name]
            raise

    async def add_partitions(
        self,
        principal: Principal,
        wanted: Sequence[PartitionGrowth],
        *,
        validate_only: bool = False,
    ) -> dict[str, Done | StratalogError]:
        """Give topics more partitions and return the outcomes by the names of the topics."""

        async def add(growth: PartitionGrowth) -> Done:
            self._authorizer.authorize(principal, ALTER_TOPIC, growth.topic)
            topic = await self._growing(growth)
            await self._limits.check_partitions(growth.partition_count - topic.partition_count)
            if not validate_only:
                await self._catalog.add_partitions(topic, partition_count=growth.partition_count)
                log.info(
                    "%s gave topic %r %d partitions; it had %d.",
                    principal.with_client,
                    topic.name,
                    growth.partition_count,
                    topic.partition_count,
                )
            return DONE

        return await each_once(((one.topic, one) for one in wanted), add, noun="topic")

    async def delete(
        self, principal: Principal, wanted: Sequence[TopicName]
    ) -> dict[TopicName, Topic | StratalogError]:
        """Delete topics with all their records. The outcome of a success is the deleted topic.

        Their rows are kept for a while, and `DeletedTopicAdmin` can bring them back.
        """

        async def delete_one(name: TopicName) -> Topic:
            topic = await self._deletable(principal, name)
            await self._catalog.delete(topic)
            log.warning(
                "%s deleted topic %r with the id %s and %d partitions.",
                principal.with_client,
                topic.name,
                kafka_base64(topic.id),
                topic.partition_count,
            )
            return topic

        outcomes = await each_once(((name, name) for name in wanted), delete_one, noun="topic")
        if self._notes is not None:
            deleted = [one.id for one in outcomes.values() if isinstance(one, Topic)]
            await self._notes.topics_deleted(deleted)
        return outcomes

    async def _create(
        self, principal: Principal, new: NewTopic, *, validate_only: bool
    ) -> CreatedTopic:
        self._authorize_creation(principal, new.name)
        count = await self._checked_count(new)
        topic = None if validate_only else await self._created(principal, new, count)
        configs = check_configs(new.configs)
        return CreatedTopic(
            name=new.name,
            topic_id=None if topic is None else topic.id,
            partition_count=count,
            configs=describe_topic(self._default_configs, configs),
        )

    def _authorize_creation(self, principal: Principal, name: str) -> None:
        """The right to create on the cluster stands for the right to create any topic."""
        if not self._authorizer.allows(principal, CREATE_ON_CLUSTER, CLUSTER):
            self._authorizer.authorize(principal, CREATE_TOPIC, name)

    async def _checked_count(self, new: NewTopic) -> int:
        """Raise if the topic cannot be created; return its number of partitions.

        As in Kafka, the error about an existing topic goes before all others: scripts that create
        a topic unless it is there look for it.
        """
        check_topic_name(new.name)
        if new.name in await self._catalog.refreshed([new.name]):
            raise TopicExistsError(f"topic {new.name!r} exists")
        await self._check_replicas(new)
        count = new.asked_count
        if count == DEFAULT_COUNT:
            count = self._default_partitions
        _check_partition_count(count)
        check_configs(new.configs)
        await self._limits.check_partitions(count)
        if may_collide(new.name):
            existing = [topic.name for topic in await self._catalog.all()]
            check_no_collision(new.name, existing)
        return count

    async def _created(self, principal: Principal, new: NewTopic, partition_count: int) -> Topic:
        topic = await self._catalog.create(
            new.name, partition_count=partition_count, configs=check_configs(new.configs)
        )
        log.info(
            "%s created topic %r with the id %s and %d partitions.",
            principal.with_client,
            topic.name,
            kafka_base64(topic.id),
            topic.partition_count,
        )
        return topic

    async def _growing(self, growth: PartitionGrowth) -> Topic:
        """Return the topic if it can grow so much."""
        count = growth.partition_count
        _check_partition_count(count)
        topic = await self._named(growth.topic)
        if count <= topic.partition_count:
            raise PartitionCountError(
                f"topic {topic.name!r} has {topic.partition_count} partitions and can only grow:"
                f" it cannot be given {count}"
            )
        if growth.assigned is not None:
            check_new_partitions(
                growth.assigned,
                registered=await self._registered(),
                new_partitions=count - topic.partition_count,
            )
        return topic

    async def _check_replicas(self, new: NewTopic) -> None:
        if new.assigned:
            check_new_topic(
                new.assigned,
                registered=await self._registered(),
                partition_count=new.partition_count,
                replication_factor=new.replication_factor,
            )
        if new.replication_factor < 1 and new.replication_factor != DEFAULT_FACTOR:
            raise ReplicationFactorError(
                f"a replication factor of {new.replication_factor}: it must be positive, or -1"
            )

    async def _registered(self) -> frozenset[int]:
        return frozenset(broker.broker_id for broker in await self._control.brokers.all())

    async def _deletable(self, principal: Principal, wanted: TopicName) -> Topic:
        name, topic_id = wanted
        if (name is None) == (topic_id is None):
            raise CallError("name a topic either by its name or by its id")
        if name is not None:
            self._authorizer.authorize(principal, DELETE_TOPIC, name)
            return await self._named(name)
        assert topic_id is not None
        found = (await self._catalog.with_ids([TopicId(topic_id)])).get(TopicId(topic_id))
        if found is None:
            raise UnknownTopicIdError(f"no topic has the id {topic_id}")
        self._authorizer.authorize(principal, DELETE_TOPIC, found.name)
        return found

    async def _named(self, name: str) -> Topic:
        found = await self._catalog.refreshed([name])
        if name not in found:
            raise UnknownTopicError(f"there is no topic {name!r}")
        return found[name]


def _check_partition_count(count: int) -> None:
    if not 1 <= count <= MAX_PARTITIONS:
        raise PartitionCountError(f"{count} partitions: a topic has from 1 to {MAX_PARTITIONS}")
