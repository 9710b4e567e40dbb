"""The loop of `run_frames.lay_out`, compiled to machine code. Nothing else may import this."""

from typing import Any, TypeAlias

import numpy as np
from numba import from_dtype, int64, uint8

from stratalog.batch.code_cache import compiled, inlined
from stratalog.batch.column_layout import FRAME, LAYOUT

Int: TypeAlias = Any
"""64 bits of it."""

_FRAMES = from_dtype(FRAME)[::1]
_LAYOUT = from_dtype(LAYOUT)[::1]
_PAIRS = int64[:, ::1]
_EPOCH_POSITION = 12
_APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x08, 0x10, 0x20


@inlined
def _put(data: Any, at: Int, value: Int, size: Int) -> None:
    """A number of so many bytes, the first of which is the highest."""
    for index in range(size):
        data[at + index] = np.uint8(value >> 8 * (size - 1 - index))


@inlined
def _is_noteworthy(frames: Any, index: Int) -> Int:
    """Return 1 if the producer of a batch must be noted.

    If one producer wrote several batches of data in a row, only the last one matters, unless they
    belong to a transaction.
    """
    frame = frames[index]
    if frame.producer_id < 0:
        return 0
    if frame.attributes & (_TRANSACTIONAL | _CONTROL) != 0 or index + 1 == frames.size:
        return 1
    after = frames[index + 1]
    return after.producer_id != frame.producer_id or after.attributes & _CONTROL != 0


@compiled(int64(uint8[::1], _FRAMES, _LAYOUT, _PAIRS, _PAIRS))
def lay_out(data: Any, frames: Any, layouts: Any, offset_entries: Any, time_entries: Any) -> Int:
    """Stamp batches up to the first malformed one, and return their number.

    A batch whose producer must be noted is marked by its action. Index entries follow Kafka's
    rules: one is due when the batches since the last one exceed `interval_bytes`, and an entry of
    the time index only if the timestamp rises.

    """
    layout = layouts[0]
    layout.offset_entries = layout.time_entries = layout.noteworthy = 0
    for index in range(frames.size):
        frame = frames[index]
        offset, delta = layout.next_offset, frame.last_offset_delta
        if delta < 0:
            return index
        if layout.stamped == 0:
            _put(data, frame.start, offset, 8)
            _put(data, frame.start + _EPOCH_POSITION, layout.leader_epoch, 4)
        elif frame.base_offset != offset or frame.leader_epoch != layout.leader_epoch:
            return index
        timestamp = frame.max_timestamp
        if layout.has_append_time != 0:
            timestamp = layout.append_time_ms
        elif frame.attributes & _APPEND_TIME == 0:
            layout.other_times = 1
        layout.min_append_time = min(layout.min_append_time, timestamp)
        last_offset = offset + delta
        if timestamp > layout.max_timestamp:
            layout.max_timestamp, layout.max_timestamp_offset = timestamp, last_offset
        if layout.since_entry_bytes > layout.interval_bytes:
            entry = offset_entries[layout.offset_entries]
            entry[0], entry[1] = last_offset - layout.segment_offset, layout.size_bytes
            layout.offset_entries += 1
            if layout.max_timestamp > layout.noted_timestamp:
                entry = time_entries[layout.time_entries]
                entry[0], entry[1] = layout.max_timestamp, layout.max_timestamp_offset
                layout.noted_timestamp = layout.max_timestamp
                layout.time_entries += 1
            layout.since_entry_bytes = 0
        frame.base_offset, frame.action = offset, _is_noteworthy(frames, index)
        layout.noteworthy += frame.action
        size_bytes = frame.end - frame.start
        layout.size_bytes += size_bytes
        layout.since_entry_bytes += size_bytes
        layout.next_offset = last_offset + 1
    return frames.size
