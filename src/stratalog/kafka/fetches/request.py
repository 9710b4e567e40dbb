"""Fetch requests, and their partitions as a flat list."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias
from uuid import UUID

from stratalog.ids import TopicId
from stratalog.kafka.wire.fetch_response import FIRST_VERSION_WITH_TOPIC_IDS

TopicKey: TypeAlias = str | TopicId | None
"""A topic as the request names it. None is an id of zeros."""


class FetchPartition(NamedTuple):
    partition: int
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int = -1


class FetchTopic(NamedTuple):
    partitions: Sequence[FetchPartition]
    topic: str = ""
    topic_id: UUID | None = None


class ForgottenTopic(NamedTuple):
    partitions: Sequence[int]
    topic: str = ""
    topic_id: UUID | None = None


class FetchBody(NamedTuple):
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    topics: Sequence[FetchTopic]
    session_id: int = 0
    session_epoch: int = -1
    forgotten_topics_data: Sequence[ForgottenTopic] = ()
    rack_id: str = ""


class PlaceKey(NamedTuple):
    """One partition as the request names it."""

    topic: TopicKey
    partition: int


def asked_for(version: int, body: FetchBody) -> dict[PlaceKey, FetchPartition]:
    """Return each partition once however often it is named, with its last entry, as Kafka does.

    No client repeats a partition. Each repeat would cost a look, and hold bytes of the answer.
    """
    return {
        PlaceKey(_key(version, topic), one.partition): one
        for topic in body.topics
        for one in topic.partitions
    }


def forgotten(version: int, body: FetchBody) -> Iterator[PlaceKey]:
    for topic in body.forgotten_topics_data:
        for partition in topic.partitions:
            yield PlaceKey(_key(version, topic), partition)


def _key(version: int, topic: FetchTopic | ForgottenTopic) -> TopicKey:
    if version < FIRST_VERSION_WITH_TOPIC_IDS:
        return topic.topic
    return TopicId(topic.topic_id) if topic.topic_id else None
