"""Requests that no honest client sends. Pure: bytes for a socket."""

import struct

from stratalog.kafka.wire.api import ApiKey

_MANY = 3000
_NAMES = 200_000
_INT32_LAST = (1 << 31) - 1
_LARGEST_FRAME = 100 << 20


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def _request(key: ApiKey, version: int, body: bytes) -> bytes:
    client = b"hostile"
    return frame(struct.pack(">hhih", key, version, 7, len(client)) + client + body)


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def fetch(topic: str, *, entries: int, max_wait_ms: int = 0) -> bytes:
    """A fetch that names one partition again and again, each time with all bytes there are."""
    head = struct.pack(">iiiib", -1, max_wait_ms, 1, _INT32_LAST, 0)
    entry = struct.pack(">iqi", 0, 0, _INT32_LAST)
    partitions = struct.pack(">i", entries) + entry * entries
    return _request(ApiKey.FETCH, 4, head + struct.pack(">i", 1) + _string(topic) + partitions)


def metadata_of_many_names() -> bytes:
    return _request(ApiKey.METADATA, 1, struct.pack(">i", _NAMES) + _string("") * _NAMES)


def beginning_of_a_huge_produce() -> bytes:
    """The length of the largest frame and the key of a produce request: six bytes."""
    return struct.pack(">ih", _LARGEST_FRAME, ApiKey.PRODUCE)
