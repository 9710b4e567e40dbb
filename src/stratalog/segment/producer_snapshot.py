"""The producer snapshot of a segment (`.snapshot`): the state of producers at its end.

Version (int16, 1), CRC-32C of everything after it, count, and entries of 46 bytes.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

from stratalog.batch.header import BytesLike
from stratalog.ids import NO_OFFSET, Offset, ProducerId
from stratalog.segment.errors import SnapshotDamagedError

VERSION = 1
NO_SEQUENCE = -1
NO_PRODUCER_EPOCH = -1

_PREAMBLE = struct.Struct(">hII")
_COUNT = struct.Struct(">I")
_COUNT_POSITION = 6
_ENTRY = struct.Struct(">qhiqiqiq")


class ProducerEntry(NamedTuple):
    """The state of one producer."""

    producer_id: ProducerId
    producer_epoch: int = NO_PRODUCER_EPOCH
    last_sequence: int = NO_SEQUENCE
    last_offset: Offset = NO_OFFSET
    """The last offset of its last batch of data in this epoch, or -1."""
    offset_delta: int = 0
    timestamp: int = -1
    """The greatest timestamp of its last batch, or the one of its last marker."""
    coordinator_epoch: int = -1
    txn_first_offset: Offset = NO_OFFSET
    """The first offset of its open transaction, or -1."""


def encode_snapshot(entries: Sequence[ProducerEntry]) -> bytes:
    body = _COUNT.pack(len(entries)) + b"".join(_ENTRY.pack(*entry) for entry in entries)
    return _PREAMBLE.pack(VERSION, crc32c(body), len(entries)) + body[_COUNT.size :]


def decode_snapshot(data: BytesLike) -> list[ProducerEntry]:
    if len(data) < _PREAMBLE.size:
        raise _damaged(f"{len(data)} bytes are too few")
    version, crc, count = _PREAMBLE.unpack_from(data)
    if version != VERSION:
        raise _damaged(f"its version is {version}, known is {VERSION}")
    actual = crc32c(memoryview(data)[_COUNT_POSITION:])
    if actual != crc:
        raise _damaged(f"the CRC says {crc:08x}, the bytes make {actual:08x}")
    if len(data) != _PREAMBLE.size + count * _ENTRY.size:
        raise _damaged(f"{count} entries do not take {len(data)} bytes")
    entries = _ENTRY.iter_unpack(memoryview(data)[_PREAMBLE.size :])
    return [ProducerEntry._make(entry) for entry in entries]


def _damaged(reason: str) -> SnapshotDamagedError:
    return SnapshotDamagedError(f"producer snapshot: {reason}")
