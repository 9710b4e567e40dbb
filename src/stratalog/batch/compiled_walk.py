"""The loop that checks the records of one batch at entry, compiled to machine code.

Only `entry_walk` may import this. The loop shares no function with the other compiled files: the
compiler renews cached code when the file of a function changes, but not when an imported file does,
and a broker that loads this file alone needs 70 MiB less than one that loads the decoder.

The loop accesses memory by address: passing arrays between functions took twenty times as long.
It accepts a record only if `compiled_decode` accepts it too, and is
stricter: offsets rise by one. It reads between the start and the end of the data and never raises.
"""

from typing import Any, TypeAlias

import numpy as np
from numba import int64, types
from numba.core import cgutils
from numba.extending import intrinsic

from stratalog.batch.code_cache import compiled, inlined

_llvm: Any = cgutils
Int: TypeAlias = Any
"""64 bits of it."""

SOUND, BAD_LENGTH, BAD_VARINT, BAD_TIME, BAD_OFFSET, BAD_FIELD, BAD_HEADERS, BAD_END = range(8)
"""Results. The last one: the record does not end with its last header."""

BASE_TIMESTAMP, EARLIEST, LATEST, KEYS_REQUIRED, GREATEST, RECORD, POSITION, REFUSED = range(8)
"""The fields of a walk: four arguments, then the greatest timestamp, the record and the byte where
the walk ended, and the number of refused records."""
FIELDS = 8
MOST_REFUSED = 32
"""The most refused records that are named; each takes three numbers after the fields."""

NO_KEY, EARLY, LATE = range(3)
"""The reason for the refusal of a record, followed by its index and its timestamp."""

_MIN_RECORD_BYTES = 7
_NO_TIMESTAMP = -1
_INT64_LAST = (1 << 63) - 1
_BAD = 1 << 62
"""A position past every end."""


def _byte_code(_context: Any, address: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], _llvm.ir.IntType(8).as_pointer())
        return builder.zext(builder.load(place, align=1), _llvm.ir.IntType(64))

    return types.int64(address), generate


def _get_code(_context: Any, address: Any, field: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        numbers = builder.inttoptr(arguments[0], _llvm.ir.IntType(64).as_pointer())
        return builder.load(builder.gep(numbers, [arguments[1]]))

    return types.int64(address, field), generate


def _put_code(_context: Any, address: Any, field: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        numbers = builder.inttoptr(arguments[0], _llvm.ir.IntType(64).as_pointer())
        builder.store(arguments[2], builder.gep(numbers, [arguments[1]]))
        return context.get_dummy_value()

    return types.void(address, field, value), generate


_byte: Any = intrinsic(_byte_code)
_get: Any = intrinsic(_get_code)
_put: Any = intrinsic(_put_code)


@inlined
def _zigzag(value: Int) -> Int:
    return ((value >> 1) & _INT64_LAST) ^ -(value & 1)


@inlined
def _long_varint(at: Int, end: Int, bits: Int) -> tuple[Int, Int]:
    value = shift = np.int64(0)
    while at < end:
        byte = _byte(at)
        if shift == 63 and byte > 1:
            return np.int64(0), np.int64(_BAD)
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            if bits == 32 and value >> 32 != 0:
                return np.int64(0), np.int64(_BAD)
            return _zigzag(value), at
        shift += 7
    return np.int64(0), np.int64(_BAD)


@inlined
def _varint(at: Int, end: Int, bits: Int) -> tuple[Int, Int]:
    """A value of 32 or 64 bits and the place after it, which is `_BAD` where there is none."""
    if at < end:
        byte = _byte(at)
        if byte < 0x80:
            return _zigzag(byte), at + 1
    return _long_varint(at, min(at + (5 if bits == 32 else 10), end), bits)


@inlined
def _field(at: Int, end: Int) -> tuple[Int, Int]:
    """The length of a field, -1 if it is null, and the place after it or `_BAD`."""
    length, start = _varint(at, end, 32)
    if start == _BAD or length < -1 or length > end - start:
        return np.int64(-1), np.int64(_BAD)
    return length, start + max(length, 0)


@inlined
def _headers_end(at: Int, end: Int) -> Int:
    count, at = _varint(at, end, 32)
    if at == _BAD or count < 0 or count > (end - at) // 2:
        return _BAD
    for _ in range(count):
        name_bytes, at = _field(at, end)
        if name_bytes < 0:
            return _BAD
        _, at = _field(at, end)
        if at == _BAD:
            return _BAD
    return at


@inlined
def _refuse(walk: Int, reason: Int, index: Int, timestamp: Int) -> None:
    count = _get(walk, REFUSED)
    if count < MOST_REFUSED:
        at = FIELDS + 3 * count
        _put(walk, at, reason)
        _put(walk, at + 1, index)
        _put(walk, at + 2, timestamp)
    _put(walk, REFUSED, count + 1)


@inlined
def _judge(walk: Int, index: Int, timestamp: Int, has_key: bool) -> None:
    _put(walk, GREATEST, max(_get(walk, GREATEST), timestamp))
    if _get(walk, KEYS_REQUIRED) != 0 and not has_key:
        _refuse(walk, NO_KEY, index, timestamp)
    elif timestamp != _NO_TIMESTAMP:
        if timestamp < _get(walk, EARLIEST):
            _refuse(walk, EARLY, index, timestamp)
        elif timestamp > _get(walk, LATEST):
            _refuse(walk, LATE, index, timestamp)


@inlined
def _walk_record(index: Int, start: Int, end: Int, walk: Int) -> Int:
    delta, at = _varint(start + 1, end, 64)
    if at == _BAD:
        return BAD_VARINT
    base = _get(walk, BASE_TIMESTAMP)
    timestamp = base + delta
    # Only two of a sign can overflow, and then the sum has the other one.
    if (base ^ timestamp) & (delta ^ timestamp) < 0:
        return BAD_TIME
    offset_delta, at = _varint(at, end, 32)
    if at == _BAD or offset_delta != index:
        return BAD_OFFSET
    key_bytes, at = _field(at, end)
    if at != _BAD:
        _, at = _field(at, end)
    if at == _BAD:
        return BAD_FIELD
    at = _headers_end(at, end)
    if at == _BAD:
        return BAD_HEADERS
    _judge(walk, index, timestamp, key_bytes >= 0)
    return SOUND if at == end else BAD_END


@compiled(int64(int64, int64, int64, int64))
def walk_records(address: Int, size: Int, count: Int, walk: Int) -> Int:
    """Read so many records, which must fill the data. Fills the results of the walk."""
    at, end = address, address + size
    _put(walk, GREATEST, _NO_TIMESTAMP)
    fault = SOUND
    for index in range(count):
        _put(walk, RECORD, index)
        _put(walk, POSITION, at - address)
        length, start = _varint(at, end, 32)
        if start == _BAD or length < _MIN_RECORD_BYTES - 1 or length > end - start:
            return BAD_LENGTH
        fault = _walk_record(index, start, start + length, walk)
        if fault != SOUND:
            return fault
        at = start + length
    _put(walk, RECORD, count)
    _put(walk, POSITION, at - address)
    return SOUND if at == end else BAD_END
