"""A file that is written run by run, by blocking calls that come from several threads."""

import os
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from stratalog.objects.direct_write import (
    end_direct,
    reserve,
    set_direct,
    wants_direct,
    write_aligned,
)
from stratalog.objects.durable_files import write_parts
from stratalog.objects.store import Buffer

_MOST_AHEAD_BYTES = 256 * 1024 * 1024
"""Room is reserved for as much as was written already, up to this. Each time, all writes pause."""


class StreamedFile:
    """Runs may be written side by side and in any order, the other calls come alone.

    Nothing is on the disk before the first call, nor after `abandon`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size_bytes = 0
        self._lock = Lock()
        self._descriptor: int | None = None
        self._is_direct = False
        self._reserved_end = 0

    def write(self, run: Sequence[Buffer], position: int) -> None:
        """All runs but the last begin and end at multiples of a size that direct writes take."""
        end = position + sum(len(part) for part in run)
        with self._lock:
            descriptor = self._opened(end)
            self.size_bytes = max(self.size_bytes, end)
            if not self._is_direct:
                os.lseek(descriptor, position, os.SEEK_SET)
                write_parts(descriptor, run)
                return
            if position and end > self._reserved_end:
                self._reserved_end = end + min(end, _MOST_AHEAD_BYTES)
                reserve(descriptor, self._reserved_end)
        write_aligned(descriptor, run, position)

    def finish(self) -> int:
        """The descriptor of the file, which now has its bytes. Close it with `close`."""
        descriptor = self._opened(0)
        if self._is_direct:
            end_direct(descriptor, self.size_bytes)
        return descriptor

    def abandon(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _opened(self, size_bytes: int) -> int:
        """The known size of the file decides if writes bypass the page cache."""
        if self._descriptor is None:
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            self._is_direct = wants_direct(size_bytes) and set_direct(self._descriptor)
        return self._descriptor
