"""Writes Fetch responses. Record data is passed on and never copied."""

import struct
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from stratalog.kafka.wire.primitives import (
    INT32,
    NO_TAGS,
    Buffer,
    array_length,
    string,
    uuid_bytes,
    uvarint,
)
from stratalog.segment.model import AbortedTransaction

_FIRST_FLEXIBLE_VERSION = 12

FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_SESSIONS = 7
_FIRST_VERSION_WITH_LOG_START = 5
FIRST_VERSION_WITH_RACK = 11
"""From this version on, requests have a rack and responses the preferred replica."""
NO_PREFERRED_REPLICA = -1
NO_SESSION = 0
_THROTTLE_ERROR_SESSION = struct.Struct(">ihi")
_UP_TO_LAST_STABLE = struct.Struct(">ihqq")
_UP_TO_LOG_START = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")


class PartitionFetched(NamedTuple):
    partition: int
    error_code: int
    high_watermark: int
    last_stable: int
    log_start: int
    parts: Sequence[Buffer] = ()
    preferred_replica: int = NO_PREFERRED_REPLICA
    """The broker that the consumer should ask instead."""
    aborted: Sequence[AbortedTransaction] = ()


class TopicFetched(NamedTuple):
    name: str | None
    topic_id: UUID | None
    partitions: Sequence[PartitionFetched]


def fetch_response(
    version: int,
    topics: Sequence[TopicFetched],
    *,
    error_code: int = 0,
    session_id: int = NO_SESSION,
    read_committed: bool = False,
) -> list[Buffer]:
    """Consumers that read committed records are sent a list of aborted transactions, empty or not,
    the others none, as Kafka does.
    """
    flexible = version >= _FIRST_FLEXIBLE_VERSION
    buffers: list[Buffer] = [_head(version, error_code, session_id)]
    no_aborted = array_length(0 if read_committed else -1, flexible=flexible)
    tags = NO_TAGS if flexible else b""
    pending = array_length(len(topics), flexible=flexible)
    for topic in topics:
        pending += _topic_head(version, topic)
        for partition in topic.partitions:
            size = sum(len(part) for part in partition.parts)
            size_bytes = uvarint(size + 1) if flexible else INT32.pack(size)
            aborted = no_aborted
            if read_committed and partition.aborted:
                aborted = _aborted(partition.aborted, flexible=flexible)
            head = _partition_head(version, partition) + aborted + _preferred(version, partition)
            buffers.append(pending + head + size_bytes)
            buffers += partition.parts
            pending = tags
        pending += tags
    buffers.append(pending + tags)
    return buffers


def _head(version: int, error_code: int, session_id: int) -> bytes:
    if version < FIRST_VERSION_WITH_SESSIONS:
        return INT32.pack(0)
    return _THROTTLE_ERROR_SESSION.pack(0, error_code, session_id)


def _topic_head(version: int, topic: TopicFetched) -> bytes:
    flexible = version >= _FIRST_FLEXIBLE_VERSION
    count = array_length(len(topic.partitions), flexible=flexible)
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        return uuid_bytes(topic.topic_id) + count
    return string(topic.name, flexible=flexible) + count


def _partition_head(version: int, partition: PartitionFetched) -> bytes:
    if version < _FIRST_VERSION_WITH_LOG_START:
        return _UP_TO_LAST_STABLE.pack(*partition[:4])
    return _UP_TO_LOG_START.pack(*partition[:5])


def _aborted(transactions: Sequence[AbortedTransaction], *, flexible: bool) -> bytes:
    tags = NO_TAGS if flexible else b""
    entries = [_ABORTED.pack(one.producer_id, one.first_offset) + tags for one in transactions]
    return array_length(len(entries), flexible=flexible) + b"".join(entries)


def _preferred(version: int, partition: PartitionFetched) -> bytes:
    if version < FIRST_VERSION_WITH_RACK:
        return b""
    return INT32.pack(partition.preferred_replica)
