"""Files and folders that are on the disk when a call returns, not merely in the page cache."""

import errno
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Lock

from stratalog.objects.errors import FolderGoneError
from stratalog.objects.memory import new_memory
from stratalog.objects.store import Buffer

_MAX_BUFFERS = os.sysconf("SC_IOV_MAX")
_MAX_HELD_FOLDERS = 128
_COPY_BYTES = 1024 * 1024
_READ_NOW: int | None = getattr(os, "RWF_NOWAIT", None)


def write_parts(descriptor: int, parts: Sequence[Buffer]) -> None:
    """Write all parts with as few system calls as the kernel allows, whatever it takes at once."""
    views = [memoryview(part).cast("B") for part in parts if len(part)]
    for _ in _moved(views, lambda some, _: os.writev(descriptor, some)):
        pass


def write_views(descriptor: int, views: Sequence[memoryview], position: int) -> None:
    """The same at a position of the file, so that several threads may write to it."""
    for _ in _moved(list(views), lambda some, done: os.pwritev(descriptor, some, position + done)):
        pass


def read_views(descriptor: int, views: Sequence[memoryview], position: int) -> int:
    """Fill all views from a position of the file; return the number of bytes read."""
    total = 0
    for moved in _moved(
        list(views), lambda some, done: os.preadv(descriptor, some, position + done)
    ):
        if moved == 0:
            break
        total += moved
    return total


def read_cached_views(descriptor: int, views: Sequence[memoryview], position: int) -> bool:
    """Fill all views if the page cache has the bytes. False if it does not, or cannot be asked."""
    if len(views) > _MAX_BUFFERS or _READ_NOW is None:
        return False
    try:
        count = os.preadv(descriptor, views, position, _READ_NOW)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP):
            return False
        raise
    return count == sum(map(len, views))


def _moved(views: list[memoryview], move: Callable[[list[memoryview], int], int]) -> Iterator[int]:
    """Call `move` with the remaining views and the number of bytes done, until none remain."""
    first = done = 0
    while first < len(views):
        moved = move(views[first : first + _MAX_BUFFERS], done)
        done += moved
        yield moved
        while first < len(views) and moved >= len(views[first]):
            moved -= len(views[first])
            first += 1
        if moved:
            views[first] = views[first][moved:]


def copy_file(source: int, target: int) -> None:
    while chunk := os.read(source, _COPY_BYTES):
        write_parts(target, [chunk])


def read_exactly(descriptor: int, start: int, length: int) -> bytearray:
    """The bytes `[start, start + length)`, or fewer if the file ends before.

    The result is writable, so that a caller can stamp batches in it without a copy.
    """
    data = new_memory(length)
    view = memoryview(data)
    filled = read_views(descriptor, [view] if length else [], start)
    view.release()
    del data[filled:]
    return data


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_ANYONE = 0o777
"""As far as the process's mask lets them."""
_OWNER = 0o700


def make_durable_folder(folder: Path) -> None:
    """Create a folder with its missing parents, each entered durably into its own parent."""
    _make_durable(folder, mode=_ANYONE)


def make_private_folder(folder: Path) -> None:
    """Like `make_durable_folder`. Only the owner may enter a folder that this creates; one that
    exists keeps its permissions, by which an operator may have let others in."""
    _make_durable(folder, mode=_OWNER)


def _make_durable(folder: Path, *, mode: int) -> None:
    if folder.is_dir():
        return
    _make_durable(folder.parent, mode=mode)
    folder.mkdir(mode=mode, exist_ok=True)
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
        self._opened = root.stat()
        self._held: OrderedDict[Path, int] = OrderedDict()
        self._lock = Lock()

    def check_root(self) -> None:
        """Raise unless the path of the root still leads to the folder that was opened.

        Below a mount that went away lies another folder. Files in it would be out of reach as soon
        as the mount is back."""
        try:
            found = self._root.stat()
        except (FileNotFoundError, NotADirectoryError):
            found = None
        if found is None or not os.path.samestat(found, self._opened):
            raise FolderGoneError(
                f"{self._root} is no longer the folder that was opened: did its mount go away? "
                "Mount it again, or, if it was replaced on purpose, restart this process"
            )

    def make(self, folder: Path) -> None:
        """Make a folder below the root with its missing parents, but never the root itself."""
        if folder == self._root or folder.is_dir():
            return
        self.make(folder.parent)
        folder.mkdir(exist_ok=True)

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
        self.check_root()

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
