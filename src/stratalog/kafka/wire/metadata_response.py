"""Writes Metadata responses. Each topic is a part of its own, so that it can be cached."""

import struct
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from stratalog.ids import LeaderEpoch, PartitionIndex
from stratalog.kafka.wire.primitives import INT16, INT32, NO_TAGS, array_length, string, uuid_bytes

_FIRST_FLEXIBLE_VERSION = 9
_JOINED_PARTS = 1000

NO_OPERATIONS = -(2**31)
"""The number for "not known". Clients ask for the operations that they are authorized for."""


class BrokerDescribed(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


class TopicDescribed(NamedTuple):
    """`name` is None only for an id that is not known, `topic_id` only for such a name."""

    error_code: int
    name: str | None
    topic_id: UUID | None
    leaders: Sequence[int]
    """The node id of each partition's leader, by partition index."""
    epochs: Mapping[PartitionIndex, LeaderEpoch] = MappingProxyType({})
    """The leader epochs that are not 0."""
    operations: int = NO_OPERATIONS
    """The bits of the operations that the client is authorized for."""


def metadata_response(
    version: int,
    *,
    brokers: Sequence[BrokerDescribed],
    cluster_id: str,
    controller_id: int,
    topics: Sequence[bytes],
    operations: int = NO_OPERATIONS,
) -> list[bytes]:
    """`topics` are results of `topic_part` for the same version."""
    flexible = version >= _FIRST_FLEXIBLE_VERSION
    head = INT32.pack(0) if version >= 3 else b""
    head += array_length(len(brokers), flexible=flexible)
    head += b"".join(_broker(version, broker) for broker in brokers)
    if version >= 2:
        head += string(cluster_id, flexible=flexible)
    if version >= 1:
        head += INT32.pack(controller_id)
    head += array_length(len(topics), flexible=flexible)
    return [head, *_joined(topics), _tail(version, operations)]


def _joined(topics: Sequence[bytes]) -> Iterator[bytes]:
    """Join small parts: an event loop does not write a million of them at once."""
    for start in range(0, len(topics), _JOINED_PARTS):
        yield b"".join(topics[start : start + _JOINED_PARTS])


def _tail(version: int, operations: int) -> bytes:
    tail = INT32.pack(operations) if 8 <= version <= 10 else b""
    if version >= 13:
        tail += INT16.pack(0)
    return tail + NO_TAGS if version >= _FIRST_FLEXIBLE_VERSION else tail


def _broker(version: int, broker: BrokerDescribed) -> bytes:
    flexible = version >= _FIRST_FLEXIBLE_VERSION
    written = INT32.pack(broker.node_id) + string(broker.host, flexible=flexible)
    written += INT32.pack(broker.port)
    if version >= 1:
        written += string(broker.rack, flexible=flexible)
    return written + NO_TAGS if flexible else written


def topic_part(version: int, topic: TopicDescribed) -> bytes:
    flexible = version >= _FIRST_FLEXIBLE_VERSION
    name = topic.name if version >= 12 else topic.name or ""
    head = INT16.pack(topic.error_code) + string(name, flexible=flexible)
    if version >= 10:
        head += uuid_bytes(topic.topic_id)
    if version >= 1:
        head += b"\x00"
    head += array_length(len(topic.leaders), flexible=flexible)
    tail = INT32.pack(topic.operations) if version >= 8 else b""
    if flexible:
        tail += NO_TAGS
    return b"".join([head, *_partitions(version, topic), tail])


def _partitions(version: int, topic: TopicDescribed) -> list[bytes]:
    """No error, index, leader, its epoch, and the leader as the only replica, which is in sync."""
    one = array_length(1, flexible=version >= _FIRST_FLEXIBLE_VERSION)
    none = array_length(0, flexible=version >= _FIRST_FLEXIBLE_VERSION)
    nodes = f"{len(one)}si{len(one)}si"
    if version >= 9:
        layout = struct.Struct(f">hiii{nodes}{len(none)}s1s")
        return [
            layout.pack(0, i, n, epoch, one, n, one, n, none, NO_TAGS)
            for i, n, epoch in _each(topic)
        ]
    if version >= 7:
        layout = struct.Struct(f">hiii{nodes}{len(none)}s")
        return [layout.pack(0, i, n, epoch, one, n, one, n, none) for i, n, epoch in _each(topic)]
    if version >= 5:
        layout = struct.Struct(f">hii{nodes}{len(none)}s")
        return [layout.pack(0, i, n, one, n, one, n, none) for i, n, _ in _each(topic)]
    layout = struct.Struct(f">hii{nodes}")
    return [layout.pack(0, i, n, one, n, one, n) for i, n, _ in _each(topic)]


def _each(topic: TopicDescribed) -> Iterator[tuple[int, int, int]]:
    """Index, leader and leader epoch of the partitions."""
    for index, leader in enumerate(topic.leaders):
        yield index, leader, topic.epochs.get(PartitionIndex(index), 0)
