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
from collections.abc import Iterator, Sequence
from threading import local

from stratalog.objects.store import Buffer

_ALIGNMENT = 4096
_BUFFER_BYTES = 2 * 1024 * 1024
"""Per writing thread. Larger buffers were no faster."""
_MIN_BYTES = 256 * 1024
"""Smaller files gain nothing."""

_O_DIRECT = getattr(os, "O_DIRECT", 0)
_threads = local()


def wants_direct(parts: Sequence[Buffer]) -> bool:
    return _O_DIRECT != 0 and sum(len(part) for part in parts) >= _MIN_BYTES


def write_direct(descriptor: int, parts: Sequence[Buffer]) -> bool:
    """Write the parts from the start of an empty file. False if the file system cannot do it.

    The file is made longer than its contents for a moment, and cut to size before this returns.
    """
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | _O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
    for piece in _aligned_pieces(parts):
        _write_all(descriptor, piece)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
    os.ftruncate(descriptor, sum(len(part) for part in parts))
    return True


def _aligned_pieces(parts: Sequence[Buffer]) -> Iterator[memoryview]:
    """The bytes in turn, in this thread's one buffer; the last piece is padded."""
    buffer = _thread_buffer()
    filled = 0
    for part in parts:
        view = memoryview(part).cast("B")
        while len(view):
            taken = min(len(view), _BUFFER_BYTES - filled)
            buffer[filled : filled + taken] = view[:taken]
            filled += taken
            view = view[taken:]
            if filled == _BUFFER_BYTES:
                yield buffer
                filled = 0
    if filled:
        yield buffer[: -(-filled // _ALIGNMENT) * _ALIGNMENT]


def _thread_buffer() -> memoryview:
    if not hasattr(_threads, "buffer"):
        _threads.buffer = memoryview(mmap.mmap(-1, _BUFFER_BYTES))
    buffer: memoryview = _threads.buffer
    return buffer


def _write_all(descriptor: int, piece: memoryview) -> None:
    while len(piece):
        piece = piece[os.write(descriptor, piece) :]
