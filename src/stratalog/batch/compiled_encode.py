"""The loops of `from_columns`, compiled to machine code. Nothing else may import this.

The loops check nothing: the caller checks sizes, nulls and ranges. All loops are in this one file,
because the compiler renews cached code when its own file changes, but not when an imported one
does.
"""

from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from stratalog.batch.code_cache import compiled, inlined

BATCH_FIELDS = 6
"""Fields that `encode_batches` returns per batch: the row of its first record, the number of
records, where its bytes begin and end, and its first and its greatest timestamp."""

_SEED = 0x9747B28C
_MULTIPLIER = np.uint64(0x5BD1E995)
_MASK = np.uint64(0xFFFFFFFF)
_POSITIVE = 0x7FFFFFFF


class ByteColumn(NamedTuple):
    data: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    """Where each value begins in `data`, and where the last one ends."""
    there: npt.NDArray[np.bool_]
    """False where the value is null."""


class HeaderColumn(NamedTuple):
    places: npt.NDArray[np.int64]
    """Per row, its first header in the columns below and the one after its last."""
    names: ByteColumn
    values: ByteColumn


class RecordColumns(NamedTuple):
    timestamps_ms: npt.NDArray[np.int64]
    keys: ByteColumn
    values: ByteColumn
    headers: HeaderColumn


class Stickiness(NamedTuple):
    """Per topic, where rows without a key go at present. Changed by `choose_partitions`."""

    partitions: npt.NDArray[np.int64]
    used_bytes: npt.NDArray[np.int64]
    max_bytes: int
    """After so many, the next partition has its turn."""


_types: Any = numba.types
_bytes = _types.Array(numba.uint8, 1, "C", readonly=True)
_numbers = _types.Array(numba.int64, 1, "C", readonly=True)
_flags = _types.Array(numba.boolean, 1, "C", readonly=True)
_column = _types.NamedTuple((_bytes, _numbers, _flags), ByteColumn)
_places = _types.Array(numba.int64, 2, "C", readonly=True)
_headers = _types.NamedTuple((_places, _column, _column), HeaderColumn)
_records = _types.NamedTuple((_numbers, _column, _column, _headers), RecordColumns)
_changed = _types.Array(numba.int64, 1, "C")
_sticky = _types.NamedTuple((_changed, _changed, numba.int64), Stickiness)
_out = _types.Array(numba.uint8, 1, "C")


@inlined
def _murmur2(data: Any, start: Any, end: Any) -> Any:
    mixed = np.uint64(_SEED ^ (end - start))
    at = start
    while at + 4 <= end:
        word = np.uint64(data[at]) | np.uint64(data[at + 1]) << np.uint64(8)
        word |= np.uint64(data[at + 2]) << np.uint64(16) | np.uint64(data[at + 3]) << np.uint64(24)
        word = word * _MULTIPLIER & _MASK
        word = (word ^ word >> np.uint64(24)) * _MULTIPLIER & _MASK
        mixed = mixed * _MULTIPLIER & _MASK ^ word
        at += 4
    if at < end:
        shift = np.uint64(0)
        while at < end:
            mixed ^= np.uint64(data[at]) << shift
            shift += np.uint64(8)
            at += 1
        mixed = mixed * _MULTIPLIER & _MASK
    mixed = (mixed ^ mixed >> np.uint64(13)) * _MULTIPLIER & _MASK
    return np.int64(mixed ^ mixed >> np.uint64(15))


@compiled((_numbers, _numbers, _numbers, _column, _numbers, _sticky))
def choose_partitions(
    topics: Any, counts: Any, given: Any, keys: Any, sizes: Any, sticky: Any
) -> Any:
    """Each row's partition: the given one if not negative, else the key's, else the sticky one."""
    chosen = np.empty(len(topics), np.int64)
    for row in range(len(topics)):
        topic = topics[row]
        if given[row] >= 0:
            chosen[row] = given[row]
        elif keys.there[row]:
            mixed = _murmur2(keys.data, keys.starts[row], keys.starts[row + 1])
            chosen[row] = (mixed & _POSITIVE) % counts[topic]
        else:
            if sticky.used_bytes[topic] >= sticky.max_bytes:
                sticky.partitions[topic] = (sticky.partitions[topic] + 1) % counts[topic]
                sticky.used_bytes[topic] = 0
            sticky.used_bytes[topic] += sizes[row]
            chosen[row] = sticky.partitions[topic]
    return chosen


@compiled((_numbers, numba.int64))
def order_by(destinations: Any, count: Any) -> Any:
    """Sort the rows by destination. Rows of one destination keep their order."""
    begins = np.zeros(count + 1, np.int64)
    for row in range(len(destinations)):
        begins[destinations[row] + 1] += 1
    for destination in range(count):
        begins[destination + 1] += begins[destination]
    order = np.empty(len(destinations), np.int64)
    for row in range(len(destinations)):
        order[begins[destinations[row]]] = row
        begins[destinations[row]] += 1
    return order


@inlined
def _zigzag(value: Any) -> Any:
    return np.uint64((value << 1) ^ (value >> 63))


@inlined
def _varint_bytes(value: Any) -> Any:
    left = _zigzag(value) >> np.uint64(7)
    size = np.int64(1)
    while left != np.uint64(0):
        left >>= np.uint64(7)
        size += 1
    return size


@inlined
def _write_varint(out: Any, at: Any, value: Any) -> Any:
    left = _zigzag(value)
    while left >= np.uint64(0x80):
        out[at] = np.uint8(left & np.uint64(0x7F) | np.uint64(0x80))
        left >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(left)
    return at + 1


@inlined
def _field_bytes(column: Any, row: Any) -> Any:
    if not column.there[row]:
        return np.int64(1)
    length = column.starts[row + 1] - column.starts[row]
    return _varint_bytes(length) + length


@inlined
def _write_field(out: Any, at: Any, column: Any, row: Any) -> Any:
    if not column.there[row]:
        out[at] = 1  # The length -1, as a varint.
        return at + 1
    start, end = column.starts[row], column.starts[row + 1]
    at = _write_varint(out, at, end - start)
    # Unsigned places: for signed ones, each byte would be looked at whether it counts from the end.
    for step in range(np.uint64(end - start)):
        out[np.uint64(at) + step] = column.data[np.uint64(start) + step]
    return at + end - start


@inlined
def _content_bytes(records: Any, row: Any) -> Any:
    """Size of a record without its length and its two deltas, which depend on its batch."""
    first, end = records.headers.places[row, 0], records.headers.places[row, 1]
    size = 1 + _field_bytes(records.keys, row) + _field_bytes(records.values, row)
    size += _varint_bytes(end - first)
    for header in range(first, end):
        size += _field_bytes(records.headers.names, header)
        size += _field_bytes(records.headers.values, header)
    return size


@inlined
def _write_record(out: Any, at: Any, records: Any, row: Any, time_delta: Any, delta: Any) -> Any:
    out[at] = 0
    at = _write_varint(out, at + 1, time_delta)
    at = _write_varint(out, at, delta)
    at = _write_field(out, at, records.keys, row)
    at = _write_field(out, at, records.values, row)
    first, end = records.headers.places[row, 0], records.headers.places[row, 1]
    at = _write_varint(out, at, end - first)
    for header in range(first, end):
        at = _write_field(out, at, records.headers.names, header)
        at = _write_field(out, at, records.headers.values, header)
    return at


@compiled((_numbers, _numbers, _numbers, _records, _out))
def encode_batches(order: Any, destinations: Any, limits: Any, records: Any, out: Any) -> Any:
    """Write the records of all rows into `out`, in `order`, and tell where their batches lie.

    A batch ends where its destination does, or before the record that would take it past the
    destination's limit. A record that is larger by itself is a batch of its own.
    """
    batches = np.empty((len(order), BATCH_FIELDS), np.int64)
    count, at, begin = -1, np.int64(0), np.int64(0)
    base_ms, delta = np.int64(0), np.int64(0)
    destination = np.int64(-1)
    for place in range(len(order)):
        row = order[place]
        time_ms = records.timestamps_ms[row]
        content = _content_bytes(records, row)
        size = content + _varint_bytes(time_ms - base_ms) + _varint_bytes(delta)
        is_over = at - begin + _varint_bytes(size) + size > limits[destinations[row]]
        if destinations[row] != destination or is_over:
            count += 1
            destination, begin, base_ms, delta = destinations[row], at, time_ms, np.int64(0)
            size = content + 2
            batches[count] = row, 0, begin, begin, base_ms, base_ms
        at = _write_varint(out, at, size)
        at = _write_record(out, at, records, row, time_ms - base_ms, delta)
        delta += 1
        batches[count, 1], batches[count, 3] = delta, at
        batches[count, 5] = max(batches[count, 5], time_ms)
    return batches[: count + 1]
