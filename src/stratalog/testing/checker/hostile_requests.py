"""Requests that no honest client sends. Pure: bytes for a socket."""

import gzip
import struct
from collections.abc import Callable, Mapping
from random import Random

from crc32c import crc32c

from stratalog.batch.header import (
    CRC_POSITION,
    CRC_START,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    Codec,
    pack_header,
)
from stratalog.kafka.wire.api import ApiKey

_MANY = 3000
_NAMES = 200_000
_INT32_LAST = (1 << 31) - 1
_LARGEST_FRAME = 100 << 20
_NOW_MS = 1_750_000_000_000


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


def produce(topic: str, batch: bytes) -> bytes:
    head = struct.pack(">hhii", -1, -1, 1000, 1) + _string(topic)
    records = struct.pack(">iii", 1, 0, len(batch)) + batch
    return _request(ApiKey.PRODUCE, 3, head + records)


def beginning_of_a_huge_produce() -> bytes:
    """The length of the largest frame and the key of a produce request: six bytes."""
    return struct.pack(">ih", _LARGEST_FRAME, ApiKey.PRODUCE)


def _batch(payload: bytes, *, count: int, codec: Codec = Codec.NONE) -> bytes:
    """A batch with a right CRC around a payload that does not hold its records."""
    header = BatchHeader(
        base_offset=0,
        length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(payload),
        leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=int(codec),
        last_offset_delta=count - 1,
        base_timestamp=_NOW_MS,
        max_timestamp=_NOW_MS,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=count,
    )
    batch = bytearray(pack_header(header) + payload)
    struct.pack_into(">I", batch, CRC_POSITION, crc32c(batch[CRC_START:]))
    return bytes(batch)


_RECORD = bytes([0x14, 0, 0, 0, 1, 8]) + b"evil" + bytes([0])
"""One record without a key: length, attributes, two deltas, key, value, headers."""

DAMAGED_BATCHES: Mapping[str, Callable[[Random], bytes]] = {
    "one record, said to be two milliards": lambda _: _batch(
        gzip.compress(_RECORD), count=_INT32_LAST, codec=Codec.GZIP
    ),
    "no gzip at all": lambda random: _batch(random.randbytes(16), count=1, codec=Codec.GZIP),
    "no records": lambda _: _batch(b"\xff" * 21, count=3),
    "random records": lambda random: _batch(
        random.randbytes(random.randint(1, 300)), count=random.randint(1, 9)
    ),
    "trailing bytes": lambda random: _batch(_RECORD + random.randbytes(9), count=1),
}
"""Batches that no consumer could decode, by name. Their lengths and CRCs are right."""
