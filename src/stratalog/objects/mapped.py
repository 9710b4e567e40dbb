"""Bytes of a file where they lie already: in the page cache, mapped instead of copied.

To read a file from there is a copy, which took four times as long as to check the CRCs of what it
brought. A mapping costs a few microseconds per megabyte and no memory.

All pages are asked for before anybody looks at them, so a disk that cannot be read is an error
here. Should a page be dropped again before it is looked at, and the disk fail just then, the
process dies of it; objects never become shorter, so that nothing else can go wrong so.
"""

import ctypes
import errno
import mmap
import os
import sys

import numpy as np

_POPULATE_READ = 22
"""MADV_POPULATE_READ of Linux 5.14, which the standard library has no name for."""
_LEAST_BYTES = 64 * 1024
"""Less is copied faster than mapped."""


def map_bytes(descriptor: int, start: int, length: int) -> memoryview | None:
    """The bytes `[start, start + length)`, or fewer if the file ends before.

    They are unmapped when no view of them is left. None where they had better be read: because
    they are few, or nobody can tell whether the disk gives them.
    """
    length = min(length, os.fstat(descriptor).st_size - start)
    if length < _LEAST_BYTES or not sys.platform.startswith("linux"):
        return None
    before = start % mmap.ALLOCATIONGRANULARITY
    mapping = mmap.mmap(
        descriptor, before + length, mmap.MAP_SHARED, mmap.PROT_READ, offset=start - before
    )
    return memoryview(mapping)[before:] if _populate(mapping) else None


def _populate(mapping: mmap.mmap) -> bool:
    """Not by the mapping's own method, which keeps all other threads from running meanwhile."""
    address = np.frombuffer(mapping, np.uint8).ctypes.data
    size = ctypes.c_size_t(len(mapping))
    mapping.madvise(mmap.MADV_SEQUENTIAL)
    if _libc.madvise(ctypes.c_void_p(address), size, _POPULATE_READ) == 0:
        return True
    code = ctypes.get_errno()
    if code == errno.EINVAL:
        return False
    raise OSError(errno.EIO, os.strerror(errno.EIO))


_libc = ctypes.CDLL(None, use_errno=True)
