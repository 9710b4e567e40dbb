"""A file that is written run by run, by blocking calls that may come from different threads."""

import os
from collections.abc import Sequence
from pathlib import Path

from stratalog.objects.direct import DirectWriter, aligned_buffer, set_direct, wants_direct
from stratalog.objects.durable import write_parts
from stratalog.objects.store import Buffer


class StreamedFile:
    """The calls never overlap. Nothing is on the disk before the first, nor after `abandon`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size_bytes = 0
        self._descriptor: int | None = None
        self._direct: DirectWriter | None = None

    def write(self, run: Sequence[Buffer]) -> None:
        """Whether to write past the page cache is decided by the first run."""
        descriptor = self._opened()
        if self.size_bytes == 0 and wants_direct(run) and set_direct(descriptor):
            self._direct = DirectWriter(descriptor, aligned_buffer())
        if self._direct is None:
            write_parts(descriptor, run)
        else:
            self._direct.write(run)
        self.size_bytes += sum(len(part) for part in run)

    def finish(self) -> int:
        """The descriptor of the file, which now has its bytes. Close it with `close`."""
        if self._direct is not None:
            self._direct.finish()
        return self._opened()

    def abandon(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _opened(self) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        return self._descriptor
