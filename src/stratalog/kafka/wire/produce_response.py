"""Writes Produce responses, byte for byte as Kafka does."""

import struct
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from stratalog.batch.errors import RecordFault
from stratalog.kafka.wire.primitives import INT32, NO_TAGS, array_length, string, uuid_bytes

_FIRST_FLEXIBLE_VERSION = 9
_FIRST_VERSION_WITH_TOPIC_IDS = 13

_UP_TO_APPEND_TIME = struct.Struct(">ihqq")
_UP_TO_LOG_START = struct.Struct(">ihqqq")
_FIRST_VERSION_WITH_LOG_START = 5
_FIRST_VERSION_WITH_MESSAGE = 8


class PartitionProduced(NamedTuple):
    partition: int
    error_code: int
    base_offset: int
    append_time_ms: int
    log_start: int
    error_message: str | None
    record_faults: Sequence[RecordFault] = ()


class TopicProduced(NamedTuple):
    name: str | None
    topic_id: UUID | None
    partitions: Sequence[PartitionProduced]


def produce_response(version: int, topics: Sequence[TopicProduced]) -> bytes:
    flexible = version >= _FIRST_FLEXIBLE_VERSION
    parts = [array_length(len(topics), flexible=flexible)]
    for topic in topics:
        if version >= _FIRST_VERSION_WITH_TOPIC_IDS:
            parts.append(uuid_bytes(topic.topic_id))
        else:
            parts.append(string(topic.name, flexible=flexible))
        parts.append(array_length(len(topic.partitions), flexible=flexible))
        parts += [_partition(version, partition) for partition in topic.partitions]
        if flexible:
            parts.append(NO_TAGS)
    parts.append(_NO_THROTTLE + NO_TAGS if flexible else _NO_THROTTLE)
    return b"".join(parts)


_NO_THROTTLE = INT32.pack(0)


_NO_ERROR = tuple(
    array_length(0, flexible=flexible)
    + string(None, flexible=flexible)
    + (NO_TAGS if flexible else b"")
    for flexible in (False, True)
)
"""The end of a partition without faulty records and without a message, by flexibility."""


def _partition(version: int, answer: PartitionProduced) -> bytes:
    if version < _FIRST_VERSION_WITH_LOG_START:
        return _UP_TO_APPEND_TIME.pack(*answer[:4])
    fixed = _UP_TO_LOG_START.pack(*answer[:5])
    if version < _FIRST_VERSION_WITH_MESSAGE:
        return fixed
    flexible = version >= _FIRST_FLEXIBLE_VERSION
    if answer.error_message is None and not answer.record_faults:
        return fixed + _NO_ERROR[flexible]
    tail = NO_TAGS if flexible else b""
    faults = [array_length(len(answer.record_faults), flexible=flexible)]
    for fault in answer.record_faults:
        faults += (INT32.pack(fault.record), string(fault.reason, flexible=flexible), tail)
    message = string(answer.error_message, flexible=flexible)
    return b"".join((fixed, *faults, message, tail))
