"""The loops that read batches and decode records, compiled to machine code.

Only `column_buffers`, `run_decoder` and `run_frames` may import this. All loops that share a
function are in this one file, because the compiler renews cached code when the file of a function
or the types of its arguments change, but not when an imported file does.

The loops access memory by address. They read between the start and the end of a body, which come
from checked lengths, and write into buffers allocated for as much as a body can hold, plus
`SLACK_BYTES`. They never raise: they return `REFUSED` for malformed bytes, and `damage_report` then
describes the fault.
"""

from typing import Any, TypeAlias

import numpy as np
from numba import from_dtype, int64, types
from numba.core import cgutils
from numba.extending import intrinsic

from stratalog.batch.code_cache import compiled, inlined
from stratalog.batch.column_layout import COUNT, DECODE, FRAME, HEADERS_OUT, OUT, PLAN, REFUSED

_llvm: Any = cgutils
Int: TypeAlias = Any
"""64 bits of it."""

SLACK_BYTES = 32
"""Bytes that a copy may write past its end: copies proceed in steps of this size."""

_HEADER_BYTES = 61
_OVERHEAD_BYTES = 12
_MIN_RECORD_BYTES = 7
_APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x08, 0x10, 0x20
_INT64_LAST = (1 << 63) - 1
_BAD = 1 << 62
"""A position past every end: checking the last of several reads checks all of them."""
_LAST_MS = _INT64_LAST // 1000
_STEPPED_COPY_BYTES = 256
"""Up to here, steps are faster than a call."""

_FRAMES = from_dtype(FRAME)[::1]
_PLAN = from_dtype(PLAN)[::1]
_OUT = from_dtype(OUT)[::1]
_HEADERS_OUT = from_dtype(HEADERS_OUT)[::1]
_RANGES = int64[:, ::1]
"""Producer, first and last offset."""
_tuple_of: Any = types.UniTuple
_WALKED = _tuple_of(int64, 3)


def _get_code(width_bits: int) -> Any:
    """Load without a sign: the values are bytes, counts and addresses."""

    def code(_context: Any, address: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            narrow = _llvm.ir.IntType(width_bits)
            place = builder.inttoptr(arguments[0], narrow.as_pointer())
            value = builder.load(place, align=1)
            return value if width_bits == 64 else builder.zext(value, _llvm.ir.IntType(64))

        return types.int64(address), generate

    return code


def _put_code(width_bits: int) -> Any:
    def code(_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            narrow = _llvm.ir.IntType(width_bits)
            place = builder.inttoptr(arguments[0], narrow.as_pointer())
            value = arguments[1] if width_bits == 64 else builder.trunc(arguments[1], narrow)
            builder.store(value, place, align=1)
            return context.get_dummy_value()

        return types.void(address, value), generate

    return code


def _copy_code(_context: Any, to: Any, source: Any, size: Any) -> Any:
    """The C library's `memcpy`, or a few instructions where the size is a constant."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        ends = [builder.inttoptr(each, _llvm.voidptr_t) for each in arguments[:2]]
        _llvm.raw_memcpy(builder, *ends, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(to, source, size), generate


_byte: Any = intrinsic(_get_code(8))
_get_int32: Any = intrinsic(_get_code(32))
_get_int64: Any = intrinsic(_get_code(64))
_put_byte: Any = intrinsic(_put_code(8))
_put_int32: Any = intrinsic(_put_code(32))
_put_int64: Any = intrinsic(_put_code(64))
_copy: Any = intrinsic(_copy_code)


@inlined
def _copy_bytes(to: Int, source: Int, size: Int, source_end: Int) -> None:
    if size <= _STEPPED_COPY_BYTES and source + size + SLACK_BYTES <= source_end:
        for at in range(0, size, SLACK_BYTES):
            _copy(to + at, source + at, SLACK_BYTES)
    else:
        _copy(to, source, size)


@inlined
def _unsigned(at: Int, size: Int) -> Int:
    """A number of so many bytes, the first of which is the highest."""
    value = np.int64(0)
    for index in range(size):
        value = value << 8 | _byte(at + index)
    return value


@inlined
def _signed(at: Int, size: Int) -> Int:
    unused_bits = 64 - 8 * size
    return _unsigned(at, size) << unused_bits >> unused_bits


@compiled(int64(int64, int64))
def count_batches(address: Int, size: Int) -> Int:
    """Count the whole batches in these bytes, or return `REFUSED`."""
    count, at, end = 0, address, address + size
    while at < end:
        if end - at < _HEADER_BYTES or _byte(at + 16) != 2:
            return REFUSED
        batch_bytes = _OVERHEAD_BYTES + _signed(at + 8, 4)
        if batch_bytes < _HEADER_BYTES or batch_bytes > end - at:
            return REFUSED
        at += batch_bytes
        count += 1
    return count


@compiled(_WALKED(int64, int64, int64, int64, int64, int64))
def walk_batches(
    address: Int, size: Int, stamped: Int, next_offset: Int, most_bytes: Int, most_records: Int
) -> tuple[Int, Int, Int]:
    """Where whole batches without a gap between their offsets end, how many records they have, and
    the offset after them. It ends behind the batch that reaches one of the limits."""
    at = records = np.int64(0)
    while size - at >= _HEADER_BYTES and at < most_bytes and records < most_records:
        start = address + at
        batch_bytes = _OVERHEAD_BYTES + _signed(start + 8, 4)
        delta, count = _signed(start + 23, 4), _signed(start + 57, 4)
        if _byte(start + 16) != 2 or delta < 0 or count < 0:
            break
        if batch_bytes < _HEADER_BYTES or batch_bytes > size - at:
            break
        if stamped != 0 and _signed(start, 8) != next_offset:
            break
        at += batch_bytes
        records += count
        next_offset += delta + 1
    return at, records, next_offset


@compiled(types.void(int64, _FRAMES))
def read_frames(address: Int, frames: Any) -> None:
    """The headers of as many batches as were counted."""
    at = address
    for index in range(frames.size):
        frame = frames[index]
        frame.base_offset = _signed(at, 8)
        frame.body_bytes = _OVERHEAD_BYTES + _signed(at + 8, 4) - _HEADER_BYTES
        frame.leader_epoch = _signed(at + 12, 4)
        frame.crc = _unsigned(at + 17, 4)
        frame.attributes = _signed(at + 21, 2)
        frame.last_offset_delta = _signed(at + 23, 4)
        frame.base_timestamp = _signed(at + 27, 8)
        frame.max_timestamp = _signed(at + 35, 8)
        frame.producer_id = _signed(at + 43, 8)
        frame.records_count = _signed(at + 57, 4)
        frame.body_address = at + _HEADER_BYTES
        frame.start = at - address
        at += _HEADER_BYTES + frame.body_bytes
        frame.end = at - address


@inlined
def _keeps(frame: Any, plan: Any, aborted: Any, offset: Int, timestamp_ms: Int) -> bool:
    if offset < plan.first_offset or offset > plan.last_offset:
        return False
    if timestamp_ms < plan.first_timestamp_ms or timestamp_ms > plan.last_timestamp_ms:
        return False
    if frame.attributes & (_TRANSACTIONAL | _CONTROL) == _TRANSACTIONAL:
        for index in range(aborted.shape[0]):
            if (
                aborted[index, 0] == frame.producer_id
                and aborted[index, 1] <= offset <= aborted[index, 2]
            ):
                return False
    return True


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
    """A value of 32 or 64 bits and the place after it, which is `_BAD` where there is none.

    One and two bytes are unrolled: nearly every varint of a batch is that short.
    """
    if end - at >= 2:
        low, high = _byte(at), _byte(at + 1)
        if low < 0x80:
            return _zigzag(low), at + 1
        if high < 0x80:
            return _zigzag(low & 0x7F | high << 7), at + 2
    return _long_varint(at, min(at + (5 if bits == 32 else 10), end), bits)


@inlined
def _field(at: Int, end: Int) -> tuple[Int, Int, Int]:
    """Start and length of a field, -1 if it is null, and the place after it."""
    length, start = _varint(at, end, 32)
    if length == -1 or start == _BAD:
        return start, -1, start
    if length < 0 or length > end - start:
        return _BAD, -1, _BAD
    return start, length, start + length


@inlined
def _headers_end(at: Int, end: Int, count: Int) -> Int:
    """Where so many headers end, or `_BAD`."""
    if count < 0 or count > (end - at) // 2:
        return _BAD
    for _ in range(count):
        _, name_bytes, at = _field(at, end)
        if name_bytes < 0:
            return _BAD
        _, _, at = _field(at, end)
    return at


@inlined
def _microseconds(timestamp_ms: Int) -> Int:
    if timestamp_ms > _LAST_MS:
        return _INT64_LAST
    if timestamp_ms < -_LAST_MS:
        return ~_INT64_LAST
    return timestamp_ms * 1000


@inlined
def _put_null(bits: Int, index: Int) -> None:
    at = bits + (index >> 3)
    _put_byte(at, _byte(at) & ~(1 << (index & 7)))


@inlined
def _count_offsets(frame: Any, plan: Any, out: Any) -> None:
    first = max(frame.base_offset, plan.first_offset)
    count = min(frame.base_offset + frame.last_offset_delta, plan.last_offset) - first + 1
    row = out.rows
    if out.offsets != 0:
        for index in range(count):
            _put_int64(out.offsets + (row + index) * 8, first + index)
    if out.timestamps != 0:
        for index in range(row, row + count):
            _put_int64(out.timestamps + index * 8, _microseconds(frame.max_timestamp))
    out.rows = row + count


@inlined
def _put_field(to: Int, used_bytes: Int, start: Int, size: Int, body_end: Int) -> Int:
    """Give the bytes that are used afterwards. A null takes none."""
    if size <= 0:
        return used_bytes
    _copy_bytes(to + used_bytes, start, size, body_end)
    return used_bytes + size


@inlined
def _put_key(out: Any, start: Int, size: Int, body_end: Int) -> None:
    out.key_bytes = _put_field(out.keys, out.key_bytes, start, size, body_end)
    _put_int32(out.key_ends + (out.rows + 1) * 4, out.key_bytes)
    if size < 0:
        _put_null(out.key_valid, out.rows)
        out.key_nulls += 1


@inlined
def _put_value(out: Any, start: Int, size: Int, body_end: Int) -> None:
    out.value_bytes = _put_field(out.values, out.value_bytes, start, size, body_end)
    _put_int32(out.value_ends + (out.rows + 1) * 4, out.value_bytes)
    if size < 0:
        _put_null(out.value_valid, out.rows)
        out.value_nulls += 1


@inlined
def _put_headers(out: Any, count: Int, start: Int, end: Int) -> None:
    """Only where they are: there is nowhere to put them until all are counted."""
    out.headers += count
    out.header_bytes += end - start
    _put_int64(out.header_places + out.rows * 16, start)
    _put_int64(out.header_places + out.rows * 16 + 8, end)
    _put_int32(out.header_ends + (out.rows + 1) * 4, out.headers)
    if count == 0:
        _put_null(out.header_valid, out.rows)
        out.header_nulls += 1


@inlined
def _times(frame: Any, delta: Int) -> tuple[bool, Int]:
    """Return False if the timestamp overflows, and the timestamp."""
    base = frame.base_timestamp
    timestamp = base + delta
    # Only two of a sign can overflow, and then the sum has the other one.
    is_good = (base ^ timestamp) & (delta ^ timestamp) >= 0
    return is_good, frame.max_timestamp if frame.attributes & _APPEND_TIME != 0 else timestamp


@inlined
def _decode_batch(frame: Any, plan: Any, aborted: Any, out: Any) -> bool:
    at, body_end = frame.body_address, frame.body_address + frame.body_bytes
    previous_delta = np.int64(-1)
    for _ in range(frame.records_count):
        length, start = _varint(at, body_end, 32)
        if length < _MIN_RECORD_BYTES - 1 or length > body_end - start:
            return False
        end = start + length
        # The attributes byte at `start` has no meaning yet.
        timestamp_delta, at = _varint(start + 1, end, 64)
        is_good, timestamp = _times(frame, timestamp_delta)
        delta, at = _varint(at, end, 32)
        is_good &= previous_delta < delta <= frame.last_offset_delta
        previous_delta = delta
        key_start, key_bytes, at = _field(at, end)
        value_start, value_bytes, at = _field(at, end)
        header_count, headers_start = _varint(at, end, 32)
        at = headers_start
        if header_count != 0:
            at = _headers_end(headers_start, end, header_count)
        if at != end or not is_good:
            return False
        offset = frame.base_offset + delta
        if frame.is_partial != 0 and not _keeps(frame, plan, aborted, offset, timestamp):
            continue
        if out.offsets != 0:
            _put_int64(out.offsets + out.rows * 8, offset)
        if out.timestamps != 0:
            _put_int64(out.timestamps + out.rows * 8, _microseconds(timestamp))
        if out.key_ends != 0:
            _put_key(out, key_start, key_bytes, body_end)
        if out.value_ends != 0:
            _put_value(out, value_start, value_bytes, body_end)
        if out.header_ends != 0:
            _put_headers(out, header_count, headers_start, end)
        out.rows += 1
    return bool(at == body_end)


@compiled(int64(_FRAMES, _PLAN, _RANGES, _OUT))
def decode_batches(frames: Any, plans: Any, aborted: Any, outs: Any) -> Int:
    """Fill the wanted columns. Returns the number of rows, or `REFUSED` for a malformed record."""
    out, plan = outs[0], plans[0]
    for index in range(frames.size):
        frame = frames[index]
        first_row = out.rows
        if frame.action == COUNT:
            _count_offsets(frame, plan, out)
        elif frame.action == DECODE and not _decode_batch(frame, plan, aborted, out):
            return REFUSED
        if out.leader_epochs != 0:
            for row in range(first_row, out.rows):
                _put_int32(out.leader_epochs + row * 4, frame.leader_epoch)
        if out.timestamp_types != 0:
            for row in range(first_row, out.rows):
                _put_int32(out.timestamp_types + row * 4, frame.attributes >> 3 & 1)
    return out.rows


@compiled(types.void(_OUT, _HEADERS_OUT))
def fill_headers(outs: Any, headers_outs: Any) -> None:
    """The headers of all rows, whose places `decode_batches` noted and found to be right."""
    out, filled = outs[0], headers_outs[0]
    high_bits = np.int64(0)
    for row in range(out.rows):
        at = _get_int64(out.header_places + row * 16)
        end = _get_int64(out.header_places + row * 16 + 8)
        row_end = _get_int32(out.header_ends + (row + 1) * 4)
        while filled.rows < row_end:
            start, name_bytes, at = _field(at, end)
            for place in range(start, at):
                high_bits |= _byte(place)
            _copy(filled.names + filled.name_bytes, start, name_bytes)
            filled.name_bytes += name_bytes
            start, value_bytes, at = _field(at, end)
            if value_bytes >= 0:
                _copy(filled.values + filled.value_bytes, start, value_bytes)
                filled.value_bytes += value_bytes
            else:
                _put_null(filled.value_valid, filled.rows)
                filled.value_nulls += 1
            filled.rows += 1
            _put_int32(filled.name_ends + filled.rows * 4, filled.name_bytes)
            _put_int32(filled.value_ends + filled.rows * 4, filled.value_bytes)
    filled.is_ascii = np.int64(high_bits < 0x80)
