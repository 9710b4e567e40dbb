"""CRC-32C of many batches at once, compiled to machine code.

Only for processors that have the instruction (`code_cache.has_crc_instruction`): on others, the
compiler ends the process that imports this.

The library takes one batch at a time and holds the interpreter's lock for it. Here one call checks
a whole run without the lock, three batches side by side: the processor's instruction for eight
bytes takes three cycles, but can begin with another batch's in each of them.
"""

from typing import Any, TypeAlias

import numpy as np
from numba import from_dtype, int64, types
from numba.core import cgutils
from numba.extending import intrinsic

from stratalog.batch.code_cache import compiled, inlined
from stratalog.batch.column_layout import FRAME

_llvm: Any = cgutils
Int: TypeAlias = Any
"""64 bits of it."""

_FRAMES = from_dtype(FRAME)[::1]
_CRC_START = 21
_ALL_ONES = 0xFFFFFFFF


def _step_code(width_bits: int) -> Any:
    """The CRC that a CRC becomes with the so many bits at an address."""

    def code(_context: Any, crc: Any, address: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            crc_type = _llvm.ir.IntType(64 if width_bits == 64 else 32)
            data_type = _llvm.ir.IntType(width_bits)
            kind = _llvm.ir.FunctionType(crc_type, [crc_type, data_type])
            name = f"llvm.x86.sse42.crc32.{crc_type.width}.{width_bits}"
            step = _llvm.get_or_insert_function(builder.module, kind, name)
            place = builder.inttoptr(arguments[1], data_type.as_pointer())
            data = builder.load(place, align=1)
            before = arguments[0] if width_bits == 64 else builder.trunc(arguments[0], crc_type)
            after = builder.call(step, [before, data])
            return after if width_bits == 64 else builder.zext(after, _llvm.ir.IntType(64))

        return types.int64(crc, address), generate

    return code


_with_word: Any = intrinsic(_step_code(64))
_with_byte: Any = intrinsic(_step_code(8))


@inlined
def _finished(crc: Int, at: Int, end: Int) -> Int:
    while end - at >= 8:
        crc = _with_word(crc, at)
        at += 8
    while at < end:
        crc = _with_byte(crc, at)
        at += 1
    return crc ^ _ALL_ONES


@compiled(int64(int64, _FRAMES))
def count_right(address: Int, frames: Any) -> Int:
    """How many batches, from the first one on, have the CRC that they should. It may end up to two
    early, if one is wrong."""
    index = 0
    while index + 2 < frames.size:
        one, two, three = frames[index], frames[index + 1], frames[index + 2]
        a, b, c = address + one.start, address + two.start, address + three.start
        size = min(one.end - one.start, two.end - two.start, three.end - three.start)
        a += _CRC_START
        b += _CRC_START
        c += _CRC_START
        crc_a = crc_b = crc_c = np.int64(_ALL_ONES)
        for _ in range((size - _CRC_START) >> 3):
            crc_a = _with_word(crc_a, a)
            crc_b = _with_word(crc_b, b)
            crc_c = _with_word(crc_c, c)
            a += 8
            b += 8
            c += 8
        if (
            _finished(crc_a, a, address + one.end) != one.crc
            or _finished(crc_b, b, address + two.end) != two.crc
            or _finished(crc_c, c, address + three.end) != three.crc
        ):
            return index
        index += 3
    while index < frames.size:
        frame = frames[index]
        at, end = address + frame.start + _CRC_START, address + frame.end
        if _finished(np.int64(_ALL_ONES), at, end) != frame.crc:
            return index
        index += 1
    return index
