"""The loops of `run_decoder` that decide the fate of each batch, compiled to machine code.

Nothing else may import this. The loops read frames and never the bytes of batches, so that they
share no function with `compiled_decode`: the compiler renews cached code when the file of a
function or the types of its arguments change, but not when an imported file does.
"""

from typing import Any, TypeAlias

import numpy as np
from numba import from_dtype, int64

from stratalog.batch.code_cache import compiled, inlined
from stratalog.batch.column_layout import COUNT, DECODE, FRAME, PLAN, REFUSED, SKIP, UNPACK

Int: TypeAlias = Any
"""64 bits of it."""

_NONE, _SOME, _ALL = 0, 1, 2
"""How many of a batch's records pass the filter."""

_MIN_RECORD_BYTES = 7
_CODEC_MASK, _LAST_CODEC = 0x07, 4
_APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x08, 0x10, 0x20
_INT64_LAST = (1 << 63) - 1

_FRAMES = from_dtype(FRAME)[::1]
_PLAN = from_dtype(PLAN)[::1]
_RANGES = int64[:, ::1]
"""Producer, first and last offset."""


@inlined
def _times_kept(frame: Any, plan: Any) -> Int:
    """Return `_NONE`, `_SOME` or `_ALL` of the records, by the wanted range of timestamps.

    The greatest timestamp of records that have their producers' is -1 if the producer left it out,
    and there is no smallest one.
    """
    first, last, greatest = plan.first_timestamp_ms, plan.last_timestamp_ms, frame.max_timestamp
    if frame.attributes & _APPEND_TIME != 0:
        return _ALL if first <= greatest <= last else _NONE
    if 0 <= greatest < first or first > last:
        return _NONE
    return _ALL if first == ~_INT64_LAST and last == _INT64_LAST else _SOME


@inlined
def _records_kept(frame: Any, aborted: Any) -> Int:
    """Return `_NONE`, `_SOME` or `_ALL` of the records, by the aborted transactions."""
    if frame.attributes & (_TRANSACTIONAL | _CONTROL) != _TRANSACTIONAL:
        return _ALL
    kept = _ALL
    first_offset, last_offset = frame.base_offset, frame.base_offset + frame.last_offset_delta
    for index in range(aborted.shape[0]):
        if aborted[index, 0] == frame.producer_id:
            first, last = aborted[index, 1], aborted[index, 2]
            if first <= first_offset and last_offset <= last:
                return _NONE
            if first <= last_offset and first_offset <= last:
                kept = _SOME
    return kept


@inlined
def _plan_batch(frame: Any, plan: Any, aborted: Any) -> None:
    frame.action = SKIP
    last_offset = frame.base_offset + frame.last_offset_delta
    if last_offset < plan.first_offset or frame.base_offset > plan.last_offset:
        return
    if frame.attributes & _CONTROL != 0 and plan.skips_control != 0:
        return
    times = _times_kept(frame, plan)
    records = _records_kept(frame, aborted)
    if times == _NONE or records == _NONE:
        return
    is_packed = frame.attributes & _CODEC_MASK != 0 and frame.body_bytes > 0
    frame.action = UNPACK if is_packed else DECODE
    is_cut = frame.base_offset < plan.first_offset or last_offset > plan.last_offset
    frame.is_partial = np.int64(is_cut or times == _SOME or records == _SOME)
    # More records than the largest batch holds must be counted one by one, and will not be found.
    is_dense = frame.records_count == frame.last_offset_delta + 1
    is_dense &= frame.records_count <= plan.body_bytes_limit // _MIN_RECORD_BYTES
    has_times = frame.attributes & _APPEND_TIME != 0 or plan.needs_timestamps == 0
    needs_look = plan.needs_records != 0 or times == _SOME or records == _SOME
    if is_dense and has_times and not needs_look:
        frame.action = COUNT


@compiled(int64(_FRAMES, _PLAN, _RANGES))
def plan_batches(frames: Any, plans: Any, aborted: Any) -> Int:
    """Choose an action for each batch, and set its offset, epoch and time in the log.
    Returns `REFUSED` if a header cannot be right."""
    plan = plans[0]
    next_offset = plan.base_offset
    for index in range(frames.size):
        frame = frames[index]
        if frame.last_offset_delta < 0 or frame.attributes & _CODEC_MASK > _LAST_CODEC:
            return REFUSED
        if plan.stamped == 0:
            frame.base_offset = next_offset
            frame.leader_epoch = plan.leader_epoch
            if plan.has_append_time != 0:
                frame.attributes |= _APPEND_TIME
                frame.max_timestamp = plan.append_time_ms
        if not next_offset <= frame.base_offset < _INT64_LAST - frame.last_offset_delta:
            return REFUSED
        next_offset = frame.base_offset + frame.last_offset_delta + 1
        _plan_batch(frame, plan, aborted)
    plan.next_offset = next_offset
    return frames.size


@compiled(int64(_FRAMES, _PLAN))
def measure_batches(frames: Any, plans: Any) -> Int:
    """Bound the rows and bytes of the batches. Compressed batches do not count.
    Returns `REFUSED` if a batch is too small for its number of records, or too large."""
    plan = plans[0]
    plan.rows_limit = plan.bytes_limit = 0
    for index in range(frames.size):
        frame = frames[index]
        if frame.action == COUNT:
            plan.rows_limit += frame.records_count
        elif frame.action == DECODE:
            most_records = frame.body_bytes // _MIN_RECORD_BYTES
            if not 0 <= frame.records_count <= most_records:
                return REFUSED
            if frame.body_bytes > plan.body_bytes_limit:
                return REFUSED
            plan.rows_limit += frame.records_count
            plan.bytes_limit += frame.body_bytes
    return plan.bytes_limit
