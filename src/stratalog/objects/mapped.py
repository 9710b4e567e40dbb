"""Bytes of a file where they lie already: in the page cache, mapped instead of copied.

Reading a file from there is a copy, which took four times as long as checking the CRCs of the
bytes. A mapping costs some microseconds per megabyte and no memory, but on older Pythons a
descriptor.

All pages are loaded before the mapping is returned, so that an unreadable disk is found here. A
reader of a mapping relies on two more conditions: no object changes in place, which the store
guarantees, and a page that was dropped meanwhile can be loaded again. If that fails (the disk
breaks at this moment, or another machine deletes the file on a network file system), the process
dies.
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
    """Return True if the kernel supports loading pages on request."""
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
