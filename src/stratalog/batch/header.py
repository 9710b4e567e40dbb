"""The 61 bytes at the start of a record batch (version 2), and nothing of what follows them."""

import struct
from enum import IntEnum
from typing import NamedTuple

from stratalog.batch.errors import BatchDamagedError, UnsupportedMagicError

HEADER_BYTES = 61
LOG_OVERHEAD_BYTES = 12
"""Base offset and length: what the length field does not count."""
CRC_START = 21
"""The CRC covers everything from the attributes on."""
MAGIC_POSITION = 16

_HEADER = struct.Struct(">qiibIhiqqqhii")
assert _HEADER.size == HEADER_BYTES

_CODEC_MASK = 0x07
_TIMESTAMP_TYPE_BIT = 0x08
_TRANSACTIONAL_BIT = 0x10
_CONTROL_BIT = 0x20
_DELETE_HORIZON_BIT = 0x40


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
        return self.attributes & _CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType(bool(self.attributes & _TIMESTAMP_TYPE_BIT))

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & _DELETE_HORIZON_BIT)


def parse_header(buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """Read the header at `position` and check that the buffer holds the whole batch.

    Only what framing needs is checked here (magic, length); the rest is `validate`'s.
    """
    available = len(buffer) - position
    if available > MAGIC_POSITION and buffer[position + MAGIC_POSITION] != 2:
        raise UnsupportedMagicError(position + MAGIC_POSITION, buffer[position + MAGIC_POSITION])
    if available < HEADER_BYTES:
        raise BatchDamagedError(
            len(buffer), f"the buffer ends {HEADER_BYTES - available} bytes short of a header"
        )
    header = BatchHeader._make(_HEADER.unpack_from(buffer, position))
    if header.size_bytes < HEADER_BYTES:
        raise BatchDamagedError(position + 8, f"batch length {header.length} is too small")
    if header.size_bytes > available:
        raise BatchDamagedError(
            len(buffer), f"the buffer ends {header.size_bytes - available} bytes short of a batch"
        )
    return header
