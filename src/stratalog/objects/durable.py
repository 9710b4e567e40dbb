"""Files and folders that are on the disk when a call returns, not merely in the page cache."""

import os
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from stratalog.objects.store import Buffer

_MAX_BUFFERS = os.sysconf("SC_IOV_MAX")
_MAX_HELD_FOLDERS = 128
_COPY_BYTES = 1024 * 1024


def write_parts(descriptor: int, parts: Sequence[Buffer]) -> None:
    """Write all parts with as few system calls as the kernel allows, whatever it takes at once."""
    views = [memoryview(part).cast("B") for part in parts if len(part)]
    position = 0
    while position < len(views):
        written = os.writev(descriptor, views[position : position + _MAX_BUFFERS])
        while position < len(views) and written >= len(views[position]):
            written -= len(views[position])
            position += 1
        if written:
            views[position] = views[position][written:]


def copy_file(source: int, target: int) -> None:
    while chunk := os.read(source, _COPY_BYTES):
        write_parts(target, [chunk])


def read_exactly(descriptor: int, start: int, length: int) -> bytearray:
    """The bytes `[start, start + length)`, or fewer if the file ends before.

    The answer can be written to, so that whoever stamps what it has read needs no copy.
    """
    data = bytearray(length)
    view = memoryview(data)
    filled = 0
    while filled < length:
        count = os.preadv(descriptor, [view[filled:]], start + filled)
        if count == 0:
            view.release()
            del data[filled:]
            break
        filled += count
    return data


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_durable_folder(folder: Path) -> None:
    """Create a folder with its missing parents, each entered durably into its own parent."""
    if folder.is_dir():
        return
    make_durable_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


class DurableFolders:
    """Makes the entries of files durable, and the entries of the folders above them.

    Another process may have created a folder and not yet synced it, so after a file is entered
    every folder up to the root is synced, unless it is remembered. A remembered folder is held
    open: its inode cannot be reused meanwhile, so as long as its path still leads to it, it was
    never removed, and neither was any folder above it.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._held: OrderedDict[Path, int] = OrderedDict()
        self._lock = Lock()

    def sync_entry(self, file: Path) -> None:
        folder = file.parent
        sync_folder(folder)
        fresh: list[Path] = []
        while folder != self._root and not self._is_remembered(folder):
            sync_folder(folder.parent)
            fresh.append(folder)
            folder = folder.parent
        for each in fresh:
            self._remember(each)

    def close(self) -> None:
        with self._lock:
            while self._held:
                os.close(self._held.popitem()[1])

    def _is_remembered(self, folder: Path) -> bool:
        with self._lock:
            held = self._held.get(folder)
            return held is not None and os.path.samestat(os.fstat(held), folder.stat())

    def _remember(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        with self._lock:
            previous = self._held.pop(folder, None)
            self._held[folder] = descriptor
            evicted = self._held.popitem(last=False)[1] if self._is_over_full() else None
        for old in (previous, evicted):
            if old is not None:
                os.close(old)

    def _is_over_full(self) -> bool:
        return len(self._held) > _MAX_HELD_FOLDERS
