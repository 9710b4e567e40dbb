"""Reads Produce requests without copying record data: it stays where the socket put it.

This is the one request read by hand, because it is the one that is mostly payload.
"""

import struct
from typing import NamedTuple
from uuid import UUID

from stratalog.kafka.api import ApiKey, is_flexible
from stratalog.kafka.errors import MalformedRequestError
from stratalog.kafka.wire import INT16, INT32, read_length, skip_tags

_ACKS_TIMEOUT = struct.Struct(">hi")
_UUID = struct.Struct("16s")
FIRST_VERSION_WITH_TOPIC_IDS = 13


class PartitionRecords(NamedTuple):
    partition: int
    records: memoryview | None


class TopicRecords(NamedTuple):
    """Either the name or, from version 13 on, the id is set."""

    name: str | None
    topic_id: UUID | None
    partitions: list[PartitionRecords]


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[TopicRecords]


def parse_produce(frame: memoryview, position: int, version: int) -> ProduceRequest:
    """Read the body that begins at `position`. The views in the answer point into `frame`."""
    try:
        request, end = _Parser(frame, version).request(position)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedRequestError(f"not a Produce request of version {version}") from error
    if end > len(frame):
        raise MalformedRequestError("the Produce request ends before its last field")
    return request


class _Parser:
    """Each method reads at a position and returns the value and the position after it."""

    def __init__(self, frame: memoryview, version: int) -> None:
        self._frame = frame
        self._flexible = is_flexible(ApiKey.PRODUCE, version)
        self._has_ids = version >= FIRST_VERSION_WITH_TOPIC_IDS
        self._string_prefix = None if self._flexible else INT16
        self._array_prefix = None if self._flexible else INT32

    def request(self, position: int) -> tuple[ProduceRequest, int]:
        transactional_id, position = self._string(position)
        acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(self._frame, position)
        count, position = self._length(position + _ACKS_TIMEOUT.size)
        topics = []
        for _ in range(count):
            topic, position = self._topic(position)
            topics.append(topic)
        return ProduceRequest(transactional_id, acks, timeout_ms, topics), self._tags(position)

    def _topic(self, position: int) -> tuple[TopicRecords, int]:
        name: str | None = None
        topic_id: UUID | None = None
        if self._has_ids:
            topic_id = UUID(bytes=_UUID.unpack_from(self._frame, position)[0])
            position += _UUID.size
        else:
            name, position = self._string(position)
        count, position = self._length(position)
        partitions = []
        for _ in range(count):
            partition, position = self._partition(position)
            partitions.append(partition)
        return TopicRecords(name, topic_id, partitions), self._tags(position)

    def _partition(self, position: int) -> tuple[PartitionRecords, int]:
        (index,) = INT32.unpack_from(self._frame, position)
        size, position = read_length(self._frame, position + 4, self._array_prefix)
        if size < 0:
            return PartitionRecords(index, None), self._tags(position)
        records = self._frame[position : position + size]
        return PartitionRecords(index, records), self._tags(position + size)

    def _string(self, position: int) -> tuple[str | None, int]:
        size, position = read_length(self._frame, position, self._string_prefix)
        if size < 0:
            return None, position
        return str(self._frame[position : position + size], "utf-8"), position + size

    def _length(self, position: int) -> tuple[int, int]:
        return read_length(self._frame, position, self._array_prefix)

    def _tags(self, position: int) -> int:
        return skip_tags(self._frame, position) if self._flexible else position
