"""The header of a record batch (version 2): its first 61 bytes, and none of its records."""

import struct
from enum import IntEnum
from typing import NamedTuple

from stratalog.batch.errors import BatchDamagedError, UnsupportedMagicError

HEADER_BYTES = 61
LOG_OVERHEAD_BYTES = 12
"""Base offset and length, which the length field does not count."""
MAGIC_POSITION = 16
CRC_POSITION = 17
CRC_START = 21
"""The CRC covers everything from the attributes on."""
LAST_OFFSET_DELTA_POSITION = 23
MAX_TIMESTAMP_POSITION = 35
RECORDS_COUNT_POSITION = 57

BytesLike = bytes | bytearray | memoryview
"""A buffer that batches are read from. A memoryview must be one of plain bytes."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
assert _HEADER.size == HEADER_BYTES

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_bytes(self) -> int:
        return LOG_OVERHEAD_BYTES + self.length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec_bits(self) -> int:
        """The codec's number, which may be one that does not exist."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType(bool(self.attributes & TIMESTAMP_TYPE_BIT))

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & DELETE_HORIZON_BIT)


def parse_header(buffer: BytesLike, position: int = 0) -> BatchHeader:
    """Read the header at `position` and check that the buffer holds the whole batch.

    Only magic and length, which framing needs, are checked here; the rest is `validate`'s.
    """
    available = len(buffer) - position
    if available > MAGIC_POSITION and buffer[position + MAGIC_POSITION] != 2:
        magic_at = position + MAGIC_POSITION
        raise UnsupportedMagicError(magic_at, buffer[magic_at], position)
    if available < HEADER_BYTES:
        short_bytes = HEADER_BYTES - available
        reason = f"the buffer ends {short_bytes} bytes short of a header"
        raise BatchDamagedError(len(buffer), reason, position)
    header = BatchHeader._make(_HEADER.unpack_from(buffer, position))
    if header.size_bytes < HEADER_BYTES:
        reason = f"batch length {header.length} is too small"
        raise BatchDamagedError(position + 8, reason, position)
    if header.size_bytes > available:
        reason = f"the buffer ends {header.size_bytes - available} bytes short of a batch"
        raise BatchDamagedError(len(buffer), reason, position)
    return header


def unpack_header(buffer: BytesLike) -> BatchHeader:
    """Read a header without its batch. Nothing is checked."""
    return BatchHeader._make(_HEADER.unpack_from(buffer))


def pack_header(header: BatchHeader) -> bytes:
    """The header as it is stored. The CRC is taken from the tuple, not computed."""
    return _HEADER.pack(*header)
