"""The fault in a run of batches, in the words of `records`.

Compiled code only detects that something is wrong. When a scan fails, this module reads the same
bytes again in Python, so that each fault is worded in one place.
"""

from collections import deque
from typing import NoReturn

from stratalog.batch.errors import BatchDamagedError, CrcMismatchError
from stratalog.batch.frames import check_crc, codec_of, iter_batches
from stratalog.batch.header import (
    LAST_OFFSET_DELTA_POSITION,
    BatchHeader,
    BytesLike,
    parse_header,
)
from stratalog.batch.records import iter_body

_INT64_LAST = (1 << 63) - 1


def raise_damage(data: BytesLike, base_offset: int, *, stamped: bool) -> NoReturn:
    """Raise for the first fault in these bytes, even if the filter excludes its batch.

    Offsets rise from `base_offset` on; of batches that are not stamped, they are counted.
    """
    for position, header in iter_batches(data):
        check_crc(data, position, header)
        codec_of(header, position)
        placed = header if stamped else header._replace(base_offset=base_offset)
        _check_offsets(placed, position, base_offset)
        deque(iter_body(data, position, header), maxlen=0)
        base_offset = placed.last_offset + 1
    raise AssertionError("compiled and interpreted decoding disagree about these batches")


def record_fault(data: BytesLike) -> BatchDamagedError | None:
    """Tell why the records of one batch cannot be decoded although its checksum is right.

    None if they can be, or if the checksum is wrong.
    """
    header = parse_header(data)
    try:
        check_crc(data, 0, header)
        deque(iter_body(data, 0, header), maxlen=0)
    except CrcMismatchError:
        return None
    except BatchDamagedError as error:
        return error
    return None


def _check_offsets(header: BatchHeader, position: int, base_offset: int) -> None:
    if header.last_offset_delta < 0:
        delta_at = position + LAST_OFFSET_DELTA_POSITION
        raise BatchDamagedError(delta_at, "the last offset delta is negative", position)
    if header.base_offset < base_offset:
        reason = f"offset {header.base_offset} comes where {base_offset} should be or a later one"
        raise BatchDamagedError(position, reason, position)
    if header.last_offset >= _INT64_LAST:
        raise BatchDamagedError(position, "an offset exceeds 64 bits", position)
