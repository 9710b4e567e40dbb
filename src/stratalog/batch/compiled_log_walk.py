"""The loops over the batches of a log on their way to a reader, compiled to machine code.

Only `log_walk` may import this. As `compiled_walk`, it accesses memory by address and shares no
function with the other compiled files. It reads and writes between the start and the end of the
data and never raises.
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

(
    AT,
    EXPECTED,
    IS_EXACT,
    START,
    IS_DENSE,
    IS_STAMPED,
    CHECKS_OFFSET,
    WANTED,
    LAST_OFFSET,
    MAX_BYTES,
    AT_LEAST_ONE,
    COUNT,
) = range(12)
"""The fields of a walk: its state, its bounds, and the number of batches that it has passed."""
FIELDS = 12
ROOM = 1024
"""The most batches of one call. Each has three numbers after the fields: start, end and CRC."""

_HEADER_BYTES = 61
_LENGTH_AT, _EPOCH_AT, _MAGIC_AT, _CRC_AT, _DELTA_AT = 8, 12, 16, 17, 23
_OVERHEAD_BYTES = 12


def _load_code(width_bits: int) -> Any:
    """The signed number, most significant byte first, at an address."""

    def code(_context: Any, address: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            number_type = _llvm.ir.IntType(width_bits)
            place = builder.inttoptr(arguments[0], number_type.as_pointer())
            number = builder.load(place, align=1)
            if width_bits > 8:
                number = builder.bswap(number)
            return builder.sext(number, _llvm.ir.IntType(64)) if width_bits < 64 else number

        return types.int64(address), generate

    return code


def _store_code(width_bits: int) -> Any:
    def code(_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            number_type = _llvm.ir.IntType(width_bits)
            place = builder.inttoptr(arguments[0], number_type.as_pointer())
            number = builder.trunc(arguments[1], number_type) if width_bits < 64 else arguments[1]
            builder.store(builder.bswap(number), place, align=1)
            return context.get_dummy_value()

        return types.void(address, value), generate

    return code


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


_load_8: Any = intrinsic(_load_code(8))
_load_32: Any = intrinsic(_load_code(32))
_load_64: Any = intrinsic(_load_code(64))
_store_32: Any = intrinsic(_store_code(32))
_store_64: Any = intrinsic(_store_code(64))
_get: Any = intrinsic(_get_code)
_put: Any = intrinsic(_put_code)


@inlined
def _is_due(walk: Int, base: Int, delta: Int) -> Any:
    """Tell whether a batch of these offsets may come next."""
    expected, wanted, last_offset = (
        _get(walk, EXPECTED),
        _get(walk, WANTED),
        _get(walk, LAST_OFFSET),
    )
    if delta < 0 or base < expected or base > last_offset or delta > last_offset - base:
        return False
    if _get(walk, IS_EXACT) == 0:
        return _get(walk, CHECKS_OFFSET) == 0 or base <= wanted
    return _get(walk, IS_DENSE) == 0 or base == expected


@inlined
def _is_answered(walk: Int, at: Int, end: Int, base: Int) -> Any:
    """Tell whether a batch at or behind the wanted offset belongs to the answer."""
    start = _get(walk, START)
    if start < 0:
        if _get(walk, IS_DENSE) != 0 and base > _get(walk, WANTED):
            return False
        return _get(walk, AT_LEAST_ONE) != 0 or end - at <= _get(walk, MAX_BYTES)
    return end - start <= _get(walk, MAX_BYTES)


@compiled(int64(int64, int64, int64))
def walk_log(address: Int, size: Int, walk: Int) -> Int:
    """Pass the next batches, up to the first one that needs a second look. Returns their number.

    A batch is noted if its CRC counts: if the answer has it, or if the log is not stamped, because
    there the offset of a batch follows from the batches before it.
    """
    count, at = np.int64(0), _get(walk, AT)
    is_stamped = _get(walk, IS_STAMPED) != 0
    while size - at >= _HEADER_BYTES and count < ROOM:
        here = address + at
        end = at + _OVERHEAD_BYTES + _load_32(here + _LENGTH_AT)
        if _load_8(here + _MAGIC_AT) != 2 or end - at < _HEADER_BYTES or end > size:
            break
        delta = _load_32(here + _DELTA_AT)
        base = _load_64(here) if is_stamped else _get(walk, EXPECTED)
        if not _is_due(walk, base, delta):
            break
        is_wanted = base + delta >= _get(walk, WANTED)
        if is_wanted:
            if not _is_answered(walk, at, end, base):
                break
            if _get(walk, START) < 0:
                _put(walk, START, at)
        if is_wanted or not is_stamped:
            place = FIELDS + 3 * count
            _put(walk, place, at)
            _put(walk, place + 1, end)
            _put(walk, place + 2, _load_32(here + _CRC_AT) & 0xFFFFFFFF)
            count += 1
        at = end
        _put(walk, AT, at)
        _put(walk, EXPECTED, base + delta + 1)
        _put(walk, IS_EXACT, 1)
    _put(walk, COUNT, count)
    return count


@compiled(int64(int64, int64, int64, int64))
def stamp_batches(address: Int, walk: Int, base_offset: Int, leader_epoch: Int) -> Int:
    """Give the noted batches consecutive offsets. Returns the next one."""
    for number in range(_get(walk, COUNT)):
        here = address + _get(walk, FIELDS + 3 * number)
        _store_64(here, base_offset)
        _store_32(here + _EPOCH_AT, leader_epoch)
        base_offset += _load_32(here + _DELTA_AT) + 1
    return base_offset
