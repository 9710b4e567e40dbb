"""Writing large files past the page cache.

A block is written once and read from memory while it is fresh, so the page cache only costs: on
the machine where this was measured, a buffered and synced write of 8 MiB took 20 to 37 ms of
processor time and up to 50 ms, a direct one 2 ms and 9 ms. Bytes that lie in memory as they will
in the file (`memory.py`) are written from there. All others are gathered in an aligned buffer
first, which takes as much of the processor as the write itself.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from threading import local

from stratalog.objects.durable_files import write_views
from stratalog.objects.memory import IN_PLACE_BYTES, PAGE_BYTES, lies_for
from stratalog.objects.store import Buffer

_BUFFER_BYTES = 2 * 1024 * 1024
"""Per writing thread. Larger buffers were no faster."""
_CALL_BYTES = 2 * 1024 * 1024
"""Of one call, which the disk serves as a whole while others wait. A small synced write took 60 ms
beside four calls of 4 MiB under way, 30 ms beside four of 2 MiB, which were as fast."""
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
    """Cut off the padding and the reserved room behind the bytes of the file."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags & ~_O_DIRECT)
    os.ftruncate(descriptor, size_bytes)


def write_aligned(descriptor: int, parts: Sequence[Buffer], position: int) -> int:
    """Write the parts from an aligned position on, and answer where they end.

    Several threads may do so in one file. Whatever the parts lack to an aligned end is filled up
    with anything, so only the last ones of a file may end elsewhere, and `end_direct` must follow.
    """
    run = _Run(descriptor, position)
    for part in parts:
        run.add(memoryview(part).cast("B"))
    return run.finish()


class _Run:
    """Bytes on their way to one place of a file, by one call unless much has to be gathered."""

    def __init__(self, descriptor: int, position: int) -> None:
        self._descriptor = descriptor
        self._buffer = _thread_buffer()
        self._views: list[memoryview] = []
        self._views_position = self._end = position
        self._gathered_start = self._gathered_end = 0
        """The bytes in the buffer that are not among the views yet."""

    def add(self, view: memoryview) -> None:
        if len(view) >= IN_PLACE_BYTES and lies_for(view, self._end):
            head_bytes = -self._end % PAGE_BYTES
            self._gather(view[:head_bytes])
            self._close_gathered()
            tail_start = len(view) - (len(view) - head_bytes) % PAGE_BYTES
            self._views.append(view[head_bytes:tail_start])
            self._end += tail_start - head_bytes
            view = view[tail_start:]
        self._gather(view)

    def finish(self) -> int:
        self._gathered_end += -self._gathered_end % PAGE_BYTES
        self._write()
        return self._end

    def _gather(self, view: memoryview) -> None:
        while len(view):
            start = self._gathered_end
            taken = min(len(view), _BUFFER_BYTES - start)
            self._buffer[start : start + taken] = view[:taken]
            self._gathered_end += taken
            self._end += taken
            view = view[taken:]
            if self._gathered_end == _BUFFER_BYTES:
                self._write()

    def _close_gathered(self) -> None:
        if self._gathered_end > self._gathered_start:
            self._views.append(self._buffer[self._gathered_start : self._gathered_end])
            self._gathered_start = self._gathered_end

    def _write(self) -> None:
        self._close_gathered()
        for views in _cut(self._views, _CALL_BYTES):
            write_views(self._descriptor, views, self._views_position)
            self._views_position += sum(map(len, views))
        self._views, self._views_position = [], self._end
        self._gathered_start = self._gathered_end = 0


def _cut(views: Sequence[memoryview], size_bytes: int) -> Iterator[list[memoryview]]:
    """The same bytes in groups of so many, but for the last."""
    group: list[memoryview] = []
    missing = size_bytes
    for view in views:
        while len(view) >= missing:
            yield [*group, view[:missing]]
            view = view[missing:]
            group, missing = [], size_bytes
        if len(view):
            group.append(view)
            missing -= len(view)
    if group:
        yield group


def reserve(descriptor: int, end: int) -> None:
    """Have the file system find room for the bytes before `end`, of which the file then consists.

    Writes run in parallel only inside the length of a file; writes that extend it wait for one
    another. If room cannot be reserved, or the disk is full, nothing happens.

    Not `os.posix_fallocate`: on file systems without support, the C library falls back to reads and
    writes of single bytes, which are slow and undo concurrent writes of other threads.
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
