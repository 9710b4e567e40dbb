"""Metadata: the brokers, the topics, and which broker each partition is written to."""

from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from stratalog.control.model import BrokerInfo, Topic
from stratalog.errors import StratalogError
from stratalog.ids import PartitionIndex, TopicId, TopicPartition, kafka_base64
from stratalog.kafka.components import Components
from stratalog.kafka.error_codes import code_of
from stratalog.kafka.handler import Body
from stratalog.kafka.metadata_response import (
    BrokerDescribed,
    TopicDescribed,
    metadata_response,
    topic_part,
)
from stratalog.kafka.request import Request
from stratalog.kafka.topic_creation import TopicCreation
from stratalog.kafka.topic_names import check_topic_name

_FIRST_VERSION_WITH_CREATION_FLAG = 4
_FIRST_VERSION_WITH_TOPIC_IDS = 10
_MAX_CACHED_PARTS = 20_000


class MetadataHandler:
    def __init__(self, components: Components, creation: TopicCreation) -> None:
        self._catalog = components.catalog
        self._membership = components.membership
        self._creation = creation
        self._creates = components.settings.broker.auto_create_topics
        self._parts = _PartCache()

    async def handle(self, request: Request, body: Any) -> Body:
        version = request.version
        if body.topics is None or (version == 0 and not body.topics):
            parts = [self._known(version, topic) for topic in await self._catalog.all()]
        else:
            parts = await self._asked(request, body)
        return self._response(version, parts)

    def refuse(self, request: Request, body: Any, error: Exception) -> Body:
        code = code_of(error)
        parts = [
            topic_part(
                request.version, TopicDescribed(code, asked.name, _asked_id(request, asked), [])
            )
            for asked in body.topics or []
        ]
        return self._response(request.version, parts)

    def _response(self, version: int, parts: Sequence[bytes]) -> Body:
        live = self._membership.live()
        return metadata_response(
            version,
            brokers=[_described(broker) for broker in live],
            cluster_id=kafka_base64(self._membership.cluster_id),
            controller_id=min(broker.broker_id for broker in live),
            topics=parts,
        )

    async def _asked(self, request: Request, body: Any) -> list[bytes]:
        names = [asked.name for asked in body.topics if asked.name is not None]
        named = await self._catalog.named(list(dict.fromkeys(names)))
        ids = [key for asked in body.topics if (key := _asked_id(request, asked)) is not None]
        identified = await self._catalog.with_ids(ids) if ids else {}
        parts = []
        for asked in body.topics:
            key = _asked_id(request, asked)
            topic = named.get(asked.name) if asked.name is not None else None
            if key is not None:
                topic = identified.get(key)
            if topic is not None:
                parts.append(self._known(request.version, topic))
            elif key is not None:
                unknown = TopicDescribed(ErrorCode.unknown_topic_id, None, key, [])
                parts.append(topic_part(request.version, unknown))
            else:
                parts.append(await self._missing(request, body, asked.name or ""))
        return parts

    async def _missing(self, request: Request, body: Any, name: str) -> bytes:
        try:
            check_topic_name(name)
            if self._creates and _allows_creation(request, body):
                return self._known(request.version, await self._creation.on_first_use(name))
            code = ErrorCode.unknown_topic_or_partition
        except StratalogError as error:
            code = code_of(error)
        return topic_part(request.version, TopicDescribed(code, name, None, []))

    def _known(self, version: int, topic: Topic) -> bytes:
        return self._parts.get(version, topic, self._membership.live()) or self._parts.put(
            version, topic, self._leaders(topic)
        )

    def _leaders(self, topic: Topic) -> list[int]:
        leader_of = self._membership.leader_of
        return [
            leader_of(TopicPartition(topic.id, PartitionIndex(index))).broker_id
            for index in range(topic.partition_count)
        ]


class _PartCache:
    """The written parts of topics. They hold as long as the same brokers live, because leaders
    follow from those alone."""

    def __init__(self) -> None:
        self._parts: dict[tuple[int, TopicId, int], bytes] = {}
        self._live: Sequence[BrokerInfo] = ()

    def get(self, version: int, topic: Topic, live: Sequence[BrokerInfo]) -> bytes | None:
        if live is not self._live or len(self._parts) > _MAX_CACHED_PARTS:
            self._parts.clear()
            self._live = live
        return self._parts.get((version, topic.id, topic.partition_count))

    def put(self, version: int, topic: Topic, leaders: Sequence[int]) -> bytes:
        part = topic_part(version, TopicDescribed(0, topic.name, topic.id, leaders))
        self._parts[version, topic.id, topic.partition_count] = part
        return part


def _allows_creation(request: Request, body: Any) -> bool:
    if request.version < _FIRST_VERSION_WITH_CREATION_FLAG:
        return True
    return bool(body.allow_auto_topic_creation)


def _asked_id(request: Request, asked: Any) -> TopicId | None:
    if request.version < _FIRST_VERSION_WITH_TOPIC_IDS or asked.topic_id is None:
        return None
    return TopicId(asked.topic_id)


def _described(broker: BrokerInfo) -> BrokerDescribed:
    return BrokerDescribed(broker.broker_id, broker.host, broker.port, broker.rack)
