"""Bytes of a file where they lie already: in the page cache, mapped instead of copied.

To read a file from there is a copy, which took four times as long as to check the CRCs of what it
brought. A mapping costs some microseconds per megabyte and no memory, but on older Pythons a
descriptor.

All pages are asked for before anybody looks at them, so that a disk which cannot be read is found
here. Whoever looks relies on two things more, as all do who map files: that nobody changes an
object in place, which the store never does, and that a page which was dropped meanwhile can be had
again. Where that fails (a disk that breaks in this very moment; a file that another machine deletes
on a network file system), the process dies of it.
"""

import ctypes
import mmap
import os
import sys
from functools import cache
from typing import Any

import numpy as np

_POPULATE_READ = 22
"""MADV_POPULATE_READ of Linux 5.14, which the standard library has no name for."""
_LEAST_BYTES = 1024 * 1024
"""Less is copied nearly as fast, and thousands of small mappings would take all descriptors."""
_WITHOUT_DESCRIPTOR: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}


def worth_mapping(size_bytes: int) -> bool:
    return size_bytes >= _LEAST_BYTES and can_map()


@cache
def can_map() -> bool:
    """Whether this kernel brings pages in when it is asked to."""
    return sys.platform.startswith("linux") and _populate(mmap.mmap(-1, mmap.PAGESIZE))


def map_bytes(descriptor: int, start: int, length: int) -> memoryview | None:
    """The bytes `[start, start + length)`, or fewer if the file ends before.

    They are unmapped when no view of them is left. None where they had better be read: because
    they are few, or because they cannot be mapped, of which a read tells the reason.
    """
    length = min(length, os.fstat(descriptor).st_size - start)
    if not worth_mapping(length):
        return None
    before = start % mmap.ALLOCATIONGRANULARITY
    try:
        mapping = mmap.mmap(
            descriptor,
            before + length,
            flags=mmap.MAP_PRIVATE,
            prot=mmap.PROT_READ,
            offset=start - before,
            **_WITHOUT_DESCRIPTOR,
        )
    except (OSError, ValueError):
        return None
    return memoryview(mapping)[before:] if _populate(mapping) else None


def _populate(mapping: mmap.mmap) -> bool:
    """Not by the mapping's own method, which keeps all other threads from running meanwhile."""
    address = np.frombuffer(mapping, np.uint8).ctypes.data
    mapping.madvise(mmap.MADV_SEQUENTIAL)
    size = ctypes.c_size_t(len(mapping))
    return bool(_libc.madvise(ctypes.c_void_p(address), size, _POPULATE_READ) == 0)


_libc = ctypes.CDLL(None)
