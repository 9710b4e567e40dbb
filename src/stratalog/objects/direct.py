"""Writing large files past the page cache.

A block is written once and read from memory while it is fresh, so the page cache only costs: on
the machine where this was measured, a buffered and synced write of 8 MiB took 20 to 37 ms of
processor time and up to 50 ms, a direct one 2 ms and 9 ms. The bytes are gathered in an aligned
buffer first, because direct writes need one; the copy takes a tenth of what the write does.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import sys
from collections.abc import Callable, Sequence
from threading import local

from stratalog.objects.store import Buffer

_ALIGNMENT = 4096
_BUFFER_BYTES = 2 * 1024 * 1024
"""Per writing thread. Larger buffers were no faster."""
_MIN_BYTES = 256 * 1024
"""Smaller files gain nothing."""

_O_DIRECT = getattr(os, "O_DIRECT", 0)
_threads = local()


def wants_direct(size_bytes: int) -> bool:
    return _O_DIRECT != 0 and size_bytes >= _MIN_BYTES


def write_direct(descriptor: int, parts: Sequence[Buffer]) -> bool:
    """Write the parts from the start of an empty file. False if the file system cannot do it."""
    if not set_direct(descriptor):
        return False
    end_direct(descriptor, write_aligned(descriptor, parts, 0))
    return True


def set_direct(descriptor: int) -> bool:
    """Let writes pass the page cache by. False if the file system cannot do it."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | _O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
    return True


def end_direct(descriptor: int, size_bytes: int) -> None:
    """Cut off what is in the file beyond its bytes: padding, and room that was reserved."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags & ~_O_DIRECT)
    os.ftruncate(descriptor, size_bytes)


def write_aligned(descriptor: int, parts: Sequence[Buffer], position: int) -> int:
    """Write the parts from an aligned position on, and answer where they end.

    Several threads may do so in one file. Whatever the parts lack to an aligned end is filled up
    with anything, so only the last ones of a file may end elsewhere, and `end_direct` must follow.
    """
    buffer, filled = _thread_buffer(), 0
    for part in parts:
        view = memoryview(part).cast("B")
        while len(view):
            taken = min(len(view), _BUFFER_BYTES - filled)
            buffer[filled : filled + taken] = view[:taken]
            view, filled = view[taken:], filled + taken
            if filled == _BUFFER_BYTES:
                _write_all(descriptor, buffer, position)
                position, filled = position + filled, 0
    padded = -(-filled // _ALIGNMENT) * _ALIGNMENT
    _write_all(descriptor, buffer[:padded], position)
    return position + filled


def reserve(descriptor: int, end: int) -> None:
    """Have the file system find room for the bytes before `end`, of which the file then consists.

    Only writes to room that a file has already run in parallel; those that make it longer wait
    for one another. Where room cannot be had in advance, or there is not enough, nothing happens.

    Not `os.posix_fallocate`: where the file system knows nothing of it, the C library makes do with
    reads and writes of single bytes, which take ages and undo what other threads write meanwhile.
    """
    if _fallocate is not None:
        _fallocate(descriptor, 0, 0, end)


def _find_fallocate() -> Callable[[int, int, int, int], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    found = getattr(ctypes.CDLL(None), "fallocate64", None)
    if found is not None:
        found.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return found


_fallocate = _find_fallocate()


def _thread_buffer() -> memoryview:
    if not hasattr(_threads, "buffer"):
        _threads.buffer = memoryview(mmap.mmap(-1, _BUFFER_BYTES))
    buffer: memoryview = _threads.buffer
    return buffer


def _write_all(descriptor: int, piece: memoryview, position: int) -> None:
    while len(piece):
        written = os.pwrite(descriptor, piece, position)
        piece, position = piece[written:], position + written
