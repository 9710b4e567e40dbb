"""The sizes of a topic's partitions, asked of every broker.

librdkafka has no call for DescribeLogDirs, so the request is encoded here.
"""

import io
import socket
import struct
from collections.abc import Iterable
from contextlib import closing
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import DecodeError

from stratalog.cli.client import CONNECT_SECONDS
from stratalog.kafka.wire.api import ApiKey
from stratalog.kafka.wire.schema_writer import entity_of

_VERSION = 1
"""The oldest version that Kafka 4 serves. It is not flexible, so it has the old header."""
_HEAD = struct.Struct(">hhih")
_LENGTH = struct.Struct(">i")
_NO_CLIENT_ID = -1
_CORRELATION_BYTES = 4
_MOST_BYTES = 1 << 28


def partition_sizes(
    addresses: Iterable[tuple[str, int]], topic: str, indexes: Iterable[int]
) -> dict[int, int]:
    """Return the size of each partition, and of several replicas the largest.

    Partitions are left out if their broker does not answer, or not without credentials.
    """
    asked = {"topics": [{"topic": topic, "partitions": tuple(indexes)}]}
    sizes: dict[int, int] = {}
    for address in addresses:
        try:
            answer = _ask(address, asked)
        except (OSError, struct.error, DecodeError):
            continue
        for index, size_bytes in _sizes_in(answer, topic):
            sizes[index] = max(size_bytes, sizes.get(index, 0))
    return sizes


def _sizes_in(answer: Any, topic: str) -> list[tuple[int, int]]:
    return [
        (partition.partition_index, partition.partition_size)
        for directory in answer.results or ()
        for found in directory.topics or ()
        if found.name == topic
        for partition in found.partitions or ()
    ]


def _ask(address: tuple[str, int], values: dict[str, Any]) -> Any:
    request: Any = load_request_schema(ApiKey.DESCRIBE_LOG_DIRS, _VERSION)
    response: Any = load_response_schema(ApiKey.DESCRIBE_LOG_DIRS, _VERSION)
    body = io.BytesIO()
    body.write(_HEAD.pack(ApiKey.DESCRIBE_LOG_DIRS, _VERSION, 0, _NO_CLIENT_ID))
    entity_writer(request)(body, entity_of(request, values))
    with closing(socket.create_connection(address, timeout=CONNECT_SECONDS)) as connection:
        connection.sendall(_LENGTH.pack(len(body.getvalue())) + body.getvalue())
        (size,) = _LENGTH.unpack(_receive(connection, _LENGTH.size))
        if not _CORRELATION_BYTES <= size <= _MOST_BYTES:
            raise ConnectionError(f"a response of {size} bytes")
        answer, _ = entity_reader(response)(_receive(connection, size), _CORRELATION_BYTES)
    return answer


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise ConnectionError("closed before the answer was whole")
        received += chunk
    return bytes(received)
