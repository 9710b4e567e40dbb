"""Stamps of the log on a finished batch: offset, leader epoch, append time.

Offset and epoch lie outside the CRC and cost nothing. Timestamps lie inside it, so functions that
set them recompute the CRC, and must only be given batches whose CRC was checked.
"""

import struct
from typing import NoReturn

from crc32c import crc32c

from stratalog.batch.errors import BatchDamagedError
from stratalog.batch.frames import crc_mismatch
from stratalog.batch.header import (
    CRC_POSITION,
    CRC_START,
    HEADER_BYTES,
    LAST_OFFSET_DELTA_POSITION,
    LOG_OVERHEAD_BYTES,
    MAX_TIMESTAMP_POSITION,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    parse_header,
)

Writable = bytearray | memoryview

_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_EPOCH_POSITION = 12
_OFFSET_LENGTH_EPOCH = struct.Struct(">qii")
_LENGTH_TO_LAST_OFFSET_DELTA = struct.Struct(">i4xbIhi")
_LENGTH_POSITION = 8
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_TIMESTAMP = struct.Struct(">q")


def stamp(buffer: Writable, position: int, *, base_offset: int, leader_epoch: int) -> None:
    """Set the two fields outside the CRC."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _EPOCH.pack_into(buffer, position + _EPOCH_POSITION, leader_epoch)


def stamp_append_time(
    buffer: Writable, position: int, header: BatchHeader, append_time_ms: int
) -> None:
    """Make every record's timestamp the time at which the log took the batch."""
    attributes = header.attributes | TIMESTAMP_TYPE_BIT
    _stamp_time(memoryview(buffer), position, header.size_bytes, attributes, append_time_ms)


def stamp_append_time_in_header(
    head: bytearray, body: memoryview, header: BatchHeader, append_time_ms: int
) -> None:
    """The same for a batch whose header lies apart from its records, which stay as they are."""
    _ATTRIBUTES.pack_into(head, CRC_START, header.attributes | TIMESTAMP_TYPE_BIT)
    _TIMESTAMP.pack_into(head, MAX_TIMESTAMP_POSITION, append_time_ms)
    _CRC.pack_into(head, CRC_POSITION, crc32c(body, crc32c(head[CRC_START:])))


def stamp_max_timestamp(
    buffer: Writable, position: int, header: BatchHeader, max_timestamp_ms: int
) -> None:
    """Correct the batch's greatest timestamp, which some clients leave at -1."""
    size_bytes = header.size_bytes
    _stamp_time(memoryview(buffer), position, size_bytes, header.attributes, max_timestamp_ms)


def stamp_run(
    buffer: Writable, *, base_offset: int, leader_epoch: int, append_time_ms: int | None = None
) -> int:
    """Check every batch's CRC, give the batches consecutive offsets, and return the next one.

    A damaged batch raises after those before it were stamped: they lie in
    `buffer[: error.batch_start]` and can be served. It unpacks only the fields that it needs and
    leaves finding the exact fault to `parse_header`. Readers use `log_walk`, which does the same
    for many batches at once.
    """
    view = memoryview(buffer)
    unpack, pack = _LENGTH_TO_LAST_OFFSET_DELTA.unpack_from, _OFFSET_LENGTH_EPOCH.pack_into
    buffer_end = len(view)
    position, offset = 0, base_offset
    while position < buffer_end:
        if buffer_end - position < HEADER_BYTES:
            _raise_framing(view, position)
        length, magic, crc, attributes, delta_last = unpack(view, position + _LENGTH_POSITION)
        end = position + LOG_OVERHEAD_BYTES + length
        if magic != 2 or end > buffer_end or end - position < HEADER_BYTES:
            _raise_framing(view, position)
        actual = crc32c(view[position + CRC_START : end])
        if actual != crc:
            raise crc_mismatch(position, crc, actual)
        if delta_last < 0:
            delta_at = position + LAST_OFFSET_DELTA_POSITION
            raise BatchDamagedError(delta_at, "the last offset delta is negative", position)
        pack(view, position, offset, length, leader_epoch)
        if append_time_ms is not None:
            attributes |= TIMESTAMP_TYPE_BIT
            _stamp_time(view, position, end - position, attributes, append_time_ms)
        offset += delta_last + 1
        position = end
    return offset


def _stamp_time(
    view: memoryview, position: int, size_bytes: int, attributes: int, max_timestamp_ms: int
) -> None:
    _ATTRIBUTES.pack_into(view, position + CRC_START, attributes)
    _TIMESTAMP.pack_into(view, position + MAX_TIMESTAMP_POSITION, max_timestamp_ms)
    crc = crc32c(view[position + CRC_START : position + size_bytes])
    _CRC.pack_into(view, position + CRC_POSITION, crc)


def _raise_framing(view: memoryview, position: int) -> NoReturn:
    parse_header(view, position)
    raise AssertionError("stamp_run and parse_header disagree about framing")
