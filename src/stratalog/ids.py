"""Identifiers and coordinates as distinct types, new identifiers, and the one door to randomness.

A room takes `Entropy` as an argument, with `system_entropy` as its default.
"""

import os
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import NamedTuple, NewType
from uuid import UUID

Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
PartitionIndex = NewType("PartitionIndex", int)
BrokerId = NewType("BrokerId", int)
ProducerId = NewType("ProducerId", int)
TopicId = NewType("TopicId", UUID)
ObjectId = NewType("ObjectId", UUID)
SegmentId = NewType("SegmentId", UUID)
WriterTag = NewType("WriterTag", int)
"""Forty random bits that name a process which uploads objects. The objects' ids carry them."""

NO_OFFSET = Offset(-1)
NO_EPOCH = LeaderEpoch(-1)
NO_PRODUCER = ProducerId(-1)
NO_BROKER = BrokerId(-1)

_TAG_BITS = 40
_TAG_SHIFT = 22
_TAG_MASK = (1 << _TAG_BITS) - 1

Entropy = Callable[[int], bytes]
"""Returns as many random bytes as it is asked for."""


def system_entropy(size: int) -> bytes:
    return os.urandom(size)


class TopicPartition(NamedTuple):
    """One partition of one topic. These tuples sort in the order in which locks are taken."""

    topic_id: TopicId
    partition: PartitionIndex


def new_uuid(entropy: Entropy = system_entropy) -> UUID:
    """A random UUID (RFC 9562, version 4)."""
    return UUID(bytes=entropy(16), version=4)


def uuid7(now_ms: int, entropy: Entropy = system_entropy) -> UUID:
    """A time-ordered UUID (RFC 9562, version 7)."""
    random = int.from_bytes(entropy(10))
    value = (now_ms & (1 << 48) - 1) << 80 | random
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return UUID(int=value)


def new_writer_tag(entropy: Entropy = system_entropy) -> WriterTag:
    """A random tag, never zero."""
    return WriterTag(int.from_bytes(entropy(_TAG_BITS // 8)) or 1)


def tagged_uuid7(now_ms: int, tag: WriterTag, entropy: Entropy = system_entropy) -> UUID:
    """A version 7 UUID that names its writer: the tag takes the first 40 bits of `rand_b`.

    Besides the time, 34 random bits tell the ids of one writer apart.
    """
    value = uuid7(now_ms, entropy).int & ~(_TAG_MASK << _TAG_SHIFT)
    return UUID(int=value | tag << _TAG_SHIFT)


def writer_tag_of(identifier: UUID) -> WriterTag:
    """The tag in a `tagged_uuid7`. Any other UUID has some bits in its place."""
    return WriterTag(identifier.int >> _TAG_SHIFT & _TAG_MASK)


def uuid7_time_ms(identifier: UUID) -> int:
    """The creation time that a version 7 UUID carries."""
    return identifier.int >> 80


def new_topic_id(entropy: Entropy = system_entropy) -> TopicId:
    """A random topic id as Kafka makes them: never zero, never one, no leading dash in base 64."""
    while True:
        candidate = UUID(bytes=entropy(16), version=4)
        if not kafka_base64(candidate).startswith("-"):
            return TopicId(candidate)


def kafka_base64(identifier: UUID) -> str:
    """The 22 characters in which Kafka prints a UUID."""
    return urlsafe_b64encode(identifier.bytes).rstrip(b"=").decode()
