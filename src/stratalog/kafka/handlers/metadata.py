"""Metadata: the brokers, the topics, and the leader of each partition.

A client that names its zone is given leaders of that zone, if it has any broker.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from stratalog.admin.authorizer import CLUSTER
from stratalog.admin.rights import CREATE_TOPIC, DESCRIBE_TOPIC, Resource
from stratalog.admin.topic_names import check_topic_name
from stratalog.control.brokers.model import BrokerInfo
from stratalog.control.topics.model import Topic
from stratalog.errors import RetriableError, StratalogError
from stratalog.ids import LeaderEpoch, PartitionIndex, TopicId, TopicPartition, kafka_base64
from stratalog.kafka.handlers.shared.authorized_operations import authorized_operations
from stratalog.kafka.handlers.shared.client_zones import zone_of_client
from stratalog.kafka.server.components import Components
from stratalog.kafka.server.error_codes import code_of
from stratalog.kafka.server.handler import Body, Handler, Request
from stratalog.kafka.wire.api import ApiKey, Versions
from stratalog.kafka.wire.metadata_response import (
    BrokerDescribed,
    TopicDescribed,
    metadata_response,
    topic_part,
)

_FIRST_VERSION_WITH_CREATION_FLAG = 4
_FIRST_VERSION_WITH_TOPIC_IDS = 10
_MAX_CACHED_BYTES = 32 << 20
_MANY_TOPICS = 50
"""A request that names more is heavy: a topic of 10,000 partitions takes 300 KiB of the answer."""
_CACHED_PART_BYTES = 500
"""The memory of a cached part beside its bytes."""
_PARTS_PER_STEP = 100
"""The topics that are described in one turn of the event loop."""


class MetadataTopic(NamedTuple):
    name: str | None
    topic_id: UUID | None = None


class MetadataBody(NamedTuple):
    topics: Sequence[MetadataTopic] | None
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False


class MetadataHandler(Handler[MetadataBody]):
    key = ApiKey.METADATA
    versions = Versions(0, 13, 9)
    rights = (DESCRIBE_TOPIC, CREATE_TOPIC)
    body = MetadataBody

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self._catalog = components.catalog
        self._membership = components.membership
        self._topics = components.admin.topics
        self._authorizer = components.admin.authorizer
        self._creates = components.settings.broker.auto_create_topics
        self._parts = _PartCache()

    def is_heavy(self, body: MetadataBody) -> bool:
        return body.topics is None or len(body.topics) > _MANY_TOPICS

    async def handle(self, request: Request, body: MetadataBody) -> Body:
        version = request.version
        if body.topics is None or (version == 0 and not body.topics):
            parts = []
            for place, topic in enumerate(await self._catalog.all()):
                if place % _PARTS_PER_STEP == _PARTS_PER_STEP - 1:
                    await asyncio.sleep(0)
                parts.append(self._known(request, body, topic))
        else:
            parts = await self._asked(request, body, body.topics)
        return self._response(request, body, parts)

    def refuse(self, request: Request, body: MetadataBody, error: Exception) -> Body:
        code = code_of(error)
        parts = [
            topic_part(
                request.version, TopicDescribed(code, asked.name, _asked_id(request, asked), [])
            )
            for asked in body.topics or []
        ]
        return self._response(request, body, parts)

    def _response(self, request: Request, body: MetadataBody, parts: Sequence[bytes]) -> Body:
        live = self._membership.live()
        return metadata_response(
            request.version,
            brokers=[_described(broker) for broker in live],
            cluster_id=kafka_base64(self._membership.cluster_id),
            controller_id=min(broker.broker_id for broker in live),
            topics=parts,
            operations=authorized_operations(
                self._authorizer,
                request.principal,
                Resource.CLUSTER,
                CLUSTER,
                asked=body.include_cluster_authorized_operations,
            ),
        )

    async def _asked(
        self, request: Request, body: MetadataBody, topics: Sequence[MetadataTopic]
    ) -> list[bytes]:
        topics = list(dict.fromkeys(topics))
        names = [asked.name for asked in topics if asked.name is not None]
        # Not from the cache: a client that has just created or grown a topic through another
        # broker asks here next, and Metadata requests are rare.
        named = await self._named(list(dict.fromkeys(names))) if names else {}
        ids = [key for asked in topics if (key := _asked_id(request, asked)) is not None]
        identified = await self._catalog.with_ids(ids) if ids else {}
        parts = []
        for place, asked in enumerate(topics):
            if place % _PARTS_PER_STEP == _PARTS_PER_STEP - 1:
                await asyncio.sleep(0)
            key = _asked_id(request, asked)
            topic = named.get(asked.name) if asked.name is not None else None
            if key is not None:
                topic = identified.get(key)
            if topic is not None:
                parts.append(self._known(request, body, topic))
            elif key is not None:
                unknown = TopicDescribed(ErrorCode.unknown_topic_id, None, key, [])
                parts.append(topic_part(request.version, unknown))
            else:
                parts.append(await self._missing(request, body, asked.name or ""))
        return parts

    async def _named(self, names: list[str]) -> dict[str, Topic]:
        """Look the topics up in the control plane and, while it is away, in the cache: so producers
        and consumers keep their broker and wait there."""
        try:
            return await self._catalog.refreshed(names)
        except RetriableError:
            return await self._catalog.named(names)

    async def _missing(self, request: Request, body: MetadataBody, name: str) -> bytes:
        try:
            check_topic_name(name)
            if self._creates and _allows_creation(request, body):
                created = await self._topics.create_on_first_use(request.principal, name)
                return self._known(request, body, created)
            code = ErrorCode.unknown_topic_or_partition
        except StratalogError as error:
            code = code_of(error)
        return topic_part(request.version, TopicDescribed(code, name, None, []))

    def _known(self, request: Request, body: MetadataBody, topic: Topic) -> bytes:
        zone = self._membership.known_zone(zone_of_client(request.client_id))
        epochs = tuple(sorted(topic.leader_epochs.items()))
        operations = authorized_operations(
            self._authorizer,
            request.principal,
            Resource.TOPIC,
            topic.name,
            asked=body.include_topic_authorized_operations,
        )
        key = _PartKey(request.version, topic.id, topic.partition_count, zone, epochs, operations)
        part = self._parts.get(key, self._membership.live())
        if part is None:
            leaders = self._leaders(topic, zone)
            described = TopicDescribed(
                0, topic.name, topic.id, leaders, topic.leader_epochs, operations
            )
            part = self._parts.put(key, topic_part(request.version, described))
        return part

    def _leaders(self, topic: Topic, zone: str | None) -> list[int]:
        leader_of = self._membership.leader_of
        return [
            leader_of(TopicPartition(topic.id, PartitionIndex(index)), zone).broker_id
            for index in range(topic.partition_count)
        ]


class _PartKey(NamedTuple):
    version: int
    topic_id: TopicId
    partition_count: int
    zone: str | None
    epochs: tuple[tuple[PartitionIndex, LeaderEpoch], ...]
    operations: int


class _PartCache:
    """The encoded parts of topics. They are valid as long as the same brokers live, because leaders
    depend on nothing else. A new leader epoch makes another key."""

    def __init__(self) -> None:
        self._parts: dict[_PartKey, bytes] = {}
        self._size_bytes = 0
        self._live: Sequence[BrokerInfo] = ()

    def get(self, key: _PartKey, live: Sequence[BrokerInfo]) -> bytes | None:
        if live is not self._live or self._size_bytes > _MAX_CACHED_BYTES:
            self._parts.clear()
            self._size_bytes = 0
            self._live = live
        return self._parts.get(key)

    def put(self, key: _PartKey, part: bytes) -> bytes:
        self._parts[key] = part
        self._size_bytes += len(part) + _CACHED_PART_BYTES
        return part


def _allows_creation(request: Request, body: MetadataBody) -> bool:
    if request.version < _FIRST_VERSION_WITH_CREATION_FLAG:
        return True
    return bool(body.allow_auto_topic_creation)


def _asked_id(request: Request, asked: MetadataTopic) -> TopicId | None:
    if request.version < _FIRST_VERSION_WITH_TOPIC_IDS or asked.topic_id is None:
        return None
    return TopicId(asked.topic_id)


def _described(broker: BrokerInfo) -> BrokerDescribed:
    return BrokerDescribed(broker.broker_id, broker.host, broker.port, broker.rack)
