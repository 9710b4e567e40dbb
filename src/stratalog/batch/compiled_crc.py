"""CRC-32C of many batches at once, compiled to machine code.

Only for processors that have the instruction (`code_cache.has_crc_instruction`): on others, the
compiler ends the process that imports this.

The library takes one batch at a time and holds the interpreter's lock for it. Here one call checks
a whole run without the lock, three batches side by side: the processor's instruction for eight
bytes takes three cycles, but can begin with another batch's in each of them.
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

START, END, CRC = range(3)
"""The first columns of a batch's numbers."""
_BATCHES = int64[:, ::1]
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


@inlined
def _words(batch: Any) -> Int:
    return (batch[END] - batch[START] - _CRC_START) >> 3


@compiled(int64(int64, _BATCHES))
def all_right(address: Int, batches: Any) -> Int:
    """Return 1 if the CRC of every batch is right, else 0.

    Three lanes, each of which goes on with the next batch when it is through with one, so that all
    are busy whatever the sizes are.
    """
    count = len(batches)
    following = min(count, 3)
    in_a, in_b, in_c = 0, 1, 2
    crc_a = crc_b = crc_c = np.int64(_ALL_ONES)
    at_a = at_b = at_c = left_a = left_b = left_c = np.int64(0)
    if count >= 3:
        at_a, left_a = address + batches[0, START] + _CRC_START, _words(batches[0])
        at_b, left_b = address + batches[1, START] + _CRC_START, _words(batches[1])
        at_c, left_c = address + batches[2, START] + _CRC_START, _words(batches[2])
        while True:
            steps = min(left_a, left_b, left_c)
            for _ in range(steps):
                crc_a = _with_word(crc_a, at_a)
                crc_b = _with_word(crc_b, at_b)
                crc_c = _with_word(crc_c, at_c)
                at_a += 8
                at_b += 8
                at_c += 8
            left_a -= steps
            left_b -= steps
            left_c -= steps
            if following == count:
                break
            if left_a == 0:
                if _finished(crc_a, at_a, address + batches[in_a, END]) != batches[in_a, CRC]:
                    return 0
                in_a, following = following, following + 1
                crc_a, left_a = np.int64(_ALL_ONES), _words(batches[in_a])
                at_a = address + batches[in_a, START] + _CRC_START
            elif left_b == 0:
                if _finished(crc_b, at_b, address + batches[in_b, END]) != batches[in_b, CRC]:
                    return 0
                in_b, following = following, following + 1
                crc_b, left_b = np.int64(_ALL_ONES), _words(batches[in_b])
                at_b = address + batches[in_b, START] + _CRC_START
            else:
                if _finished(crc_c, at_c, address + batches[in_c, END]) != batches[in_c, CRC]:
                    return 0
                in_c, following = following, following + 1
                crc_c, left_c = np.int64(_ALL_ONES), _words(batches[in_c])
                at_c = address + batches[in_c, START] + _CRC_START
        if _finished(crc_a, at_a, address + batches[in_a, END]) != batches[in_a, CRC]:
            return 0
        if _finished(crc_b, at_b, address + batches[in_b, END]) != batches[in_b, CRC]:
            return 0
        if _finished(crc_c, at_c, address + batches[in_c, END]) != batches[in_c, CRC]:
            return 0
        return 1
    for index in range(count):
        at = address + batches[index, START] + _CRC_START
        end = address + batches[index, END]
        if _finished(np.int64(_ALL_ONES), at, end) != batches[index, CRC]:
            return 0
    return 1
