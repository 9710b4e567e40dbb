"""Writing large files past the page cache.

A block is written once and read from memory while it is fresh, so the page cache only costs: on
the machine where this was measured, a buffered and synced write of 8 MiB took 20 to 37 ms of
processor time and up to 50 ms, a direct one 2 ms and 9 ms (`bench/folder_put.py`). The bytes are
gathered in an aligned buffer first, because direct writes need one.
"""

import errno
import fcntl
import mmap
import os
from collections.abc import Sequence
from threading import local

from stratalog.objects.store import Buffer

_ALIGNMENT = 4096
_BUFFER_BYTES = 2 * 1024 * 1024
"""Per writing thread, and per stream. Larger buffers were no faster."""
_MIN_BYTES = 256 * 1024
"""Smaller files gain nothing."""

_O_DIRECT = getattr(os, "O_DIRECT", 0)
_threads = local()


def wants_direct(parts: Sequence[Buffer]) -> bool:
    return _O_DIRECT != 0 and sum(len(part) for part in parts) >= _MIN_BYTES


def write_direct(descriptor: int, parts: Sequence[Buffer]) -> bool:
    """Write the parts from the start of an empty file. False if the file system cannot do it."""
    if not set_direct(descriptor):
        return False
    writer = DirectWriter(descriptor, _thread_buffer())
    writer.write(parts)
    writer.finish()
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


class DirectWriter:
    """Fills an empty file from its start, for which `set_direct` was told yes.

    The buffer is this writer's alone until it has finished. What does not fill it waits in it.
    """

    def __init__(self, descriptor: int, buffer: memoryview) -> None:
        self._descriptor = descriptor
        self._buffer = buffer
        self._filled = 0
        self._size_bytes = 0

    def write(self, parts: Sequence[Buffer]) -> None:
        for part in parts:
            view = memoryview(part).cast("B")
            self._size_bytes += len(view)
            while len(view):
                view = self._take(view)

    def _take(self, view: memoryview) -> memoryview:
        """Take what fits, write the buffer if it is full, and answer the rest."""
        start = self._filled
        taken = min(len(view), len(self._buffer) - start)
        self._buffer[start : start + taken] = view[:taken]
        self._filled += taken
        if self._filled == len(self._buffer):
            _write_all(self._descriptor, self._buffer)
            self._filled = 0
        return view[taken:]

    def finish(self) -> None:
        """Write the rest. The file is too long for a moment, because the last write is padded."""
        padded = -(-self._filled // _ALIGNMENT) * _ALIGNMENT
        _write_all(self._descriptor, self._buffer[:padded])
        flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
        fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags & ~_O_DIRECT)
        os.ftruncate(self._descriptor, self._size_bytes)


def aligned_buffer() -> memoryview:
    return memoryview(mmap.mmap(-1, _BUFFER_BYTES))


def _thread_buffer() -> memoryview:
    if not hasattr(_threads, "buffer"):
        _threads.buffer = aligned_buffer()
    buffer: memoryview = _threads.buffer
    return buffer


def _write_all(descriptor: int, piece: memoryview) -> None:
    while len(piece):
        piece = piece[os.write(descriptor, piece) :]
