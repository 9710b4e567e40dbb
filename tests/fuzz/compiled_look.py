"""All compiled loops that read batches, on thousands of inputs in one call.

Compiled by every process that imports this: code from a cache would go on with older loops.
"""

from typing import Any, TypeAlias

import numba
import numpy as np

from stratalog.batch.batch_crcs import all_right as instruction_all_right
from stratalog.batch.column_layout import DECODE, REFUSED
from stratalog.batch.compiled_decode import (
    count_batches,
    decode_batches,
    fill_headers,
    read_frames,
    walk_batches,
)
from stratalog.batch.compiled_log_walk import (
    AT,
    AT_LEAST_ONE,
    CHECKS_OFFSET,
    EXPECTED,
    IS_DENSE,
    IS_EXACT,
    IS_STAMPED,
    LAST_OFFSET,
    MAX_BYTES,
    ROOM,
    START,
    WANTED,
    walk_log,
)
from stratalog.batch.compiled_plan import measure_batches, plan_batches
from stratalog.batch.compiled_walk import BASE_TIMESTAMP, SOUND, walk_records

Int: TypeAlias = Any
Array: TypeAlias = Any

LOOPS_DISAGREE, UNFRAMED, FRAMED, DECODED, SOUND_TOO = range(5)
"""The fate of an input. The last two: readers take its records, and the entry takes them, too. The
first one: the entry takes records that readers refuse, or a loop left its bounds."""

_HEADER_BYTES = 61
_CRC_START = 21
_MOST = 1 << 40
_INT64_MIN = -(1 << 63)


def crc_table() -> Array:
    table = np.arange(256, dtype=np.int64)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ 0x82F63B78, table >> 1)
    return table


@numba.njit(nogil=True)
def _crc(data: Array, table: Array) -> Int:
    crc = np.int64(0xFFFFFFFF)
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


@numba.njit(nogil=True)
def _library_all_right(_address: Int, frames: Array) -> Int:
    """Where the processor has no instruction, no loop is compiled."""
    return 1


_all_right = instruction_all_right or _library_all_right


@numba.njit(nogil=True)
def _crcs_agree(address: Int, data: Array, frames: Array, table: Array) -> bool:
    """The loop finds the right sums right, and one wrong one wrong."""
    numbers = np.empty((frames.size, 3), np.int64)
    for index in range(frames.size):
        start, end = frames[index].start, frames[index].end
        numbers[index, 0], numbers[index, 1] = start, end
        numbers[index, 2] = _crc(data[start + _CRC_START : end], table)
    if _all_right(address, numbers) != 1:
        return False
    numbers[frames.size // 2, 2] ^= 0x40
    return bool(_all_right(address, numbers) == 0)


@numba.njit(nogil=True)
def _walked_to(address: Int, size: Int, log: Array, log_address: Int) -> Int:
    """The end of the batches that a reader would be answered with."""
    log[AT], log[EXPECTED], log[IS_EXACT], log[START] = 0, 0, 1, -1
    log[IS_DENSE], log[IS_STAMPED], log[CHECKS_OFFSET] = 1, 0, 0
    log[WANTED], log[LAST_OFFSET], log[MAX_BYTES], log[AT_LEAST_ONE] = 0, _MOST, _MOST, 1
    walk_log(address, size, log_address)
    return log[AT]


@numba.njit(nogil=True)
def _sound_end(frames: Array) -> Int:
    """The end that such a walk must reach: no batch has a negative number of offsets."""
    end = 0
    for index in range(min(frames.size, ROOM)):
        if frames[index].last_offset_delta < 0:
            break
        end = frames[index].end
    return end


@numba.njit(nogil=True)
def _entry_takes(frames: Array, walk: Array, walk_address: Int) -> bool:
    for frame in frames:
        walk[BASE_TIMESTAMP] = frame.base_timestamp
        count = frame.records_count
        if frame.action != DECODE or count <= 0 or frame.last_offset_delta != count - 1:
            return False
        if walk_records(frame.body_address, frame.body_bytes, count, walk_address) != SOUND:
            return False
    return True


@numba.njit(nogil=True)
def _look(address: Int, data: Array, kit: Any, is_partial: bool) -> Int:
    (
        frames,
        plans,
        aborted,
        blank_out,
        outs,
        blank_headers,
        headers,
        walk,
        walk_address,
        log,
        log_address,
        table,
    ) = kit
    count = count_batches(address, data.size)
    walked_to = _walked_to(address, data.size, log, log_address)
    if not 0 <= walked_to <= data.size:
        return LOOPS_DISAGREE
    reached, _, _ = walk_batches(address, data.size, 0, 0, _MOST, _MOST)
    if count == REFUSED:
        return UNFRAMED if 0 <= reached <= data.size else LOOPS_DISAGREE
    if not 0 < count <= data.size // _HEADER_BYTES or reached > data.size:
        return LOOPS_DISAGREE if data.size else UNFRAMED
    frames = frames[:count]
    read_frames(address, frames)
    if frames[count - 1].end != data.size or not _crcs_agree(address, data, frames, table):
        return LOOPS_DISAGREE
    if walked_to != _sound_end(frames):
        return LOOPS_DISAGREE
    plan = plans[0]
    plan.first_timestamp_ms = frames[0].base_timestamp if is_partial else _INT64_MIN
    if plan_batches(frames, plans, aborted) == REFUSED or measure_batches(frames, plans) == REFUSED:
        return FRAMED
    is_taken = _entry_takes(frames, walk, walk_address)
    outs[0] = blank_out[0]
    rows = decode_batches(frames, plans, aborted, outs)
    if rows == REFUSED:
        return LOOPS_DISAGREE if is_taken else FRAMED
    if not 0 <= rows <= plan.rows_limit:
        return LOOPS_DISAGREE
    headers[0] = blank_headers[0]
    fill_headers(outs, headers)
    if headers[0].rows != outs[0].headers or headers[0].name_bytes > outs[0].header_bytes:
        return LOOPS_DISAGREE
    if not is_taken:
        return DECODED
    return SOUND_TOO if is_partial or rows == plan.rows_limit else LOOPS_DISAGREE


@numba.njit(nogil=True)
def look_at_all(
    room_address: Int, room: Array, inputs: Array, ends: Array, kit: Any, found: Array
) -> None:
    """Note the fate of each input, which lies at the end of the room meanwhile.

    Half of them are decoded record by record, as if a query asked for times.
    """
    start = 0
    for index in range(ends.size):
        data = inputs[start : ends[index]]
        start = ends[index]
        first = room.size - data.size
        room[first:] = data
        found[index] = _look(room_address + first, room[first:], kit, index % 2 == 1)
