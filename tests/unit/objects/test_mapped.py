import ctypes
import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.clock import SystemClock
from stratalog.objects import mapped
from stratalog.objects.folder import FolderStore
from stratalog.objects.mapped import map_bytes
from stratalog.objects.store import Range, StoreUnavailableError

SIZE = 300_000
DATA = os.urandom(SIZE)


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    file = tmp_path / "file"
    file.write_bytes(DATA)
    opened = os.open(file, os.O_RDONLY)
    yield opened
    os.close(opened)


def refuse(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """A disk that cannot be read, or a kernel that cannot be asked, are not to be had here."""

    class Libc:
        def madvise(self, *_: object) -> int:
            ctypes.set_errno(code)
            return -1

    monkeypatch.setattr(mapped, "_libc", Libc())


@pytest.mark.parametrize("start", [0, 1, 4095, 4096, 4097, 100_000])
@pytest.mark.parametrize("length", [64 * 1024, 65_537, 200_000, SIZE])
def test_the_bytes_are_those_of_the_file_up_to_its_end(
    descriptor: int, start: int, length: int
) -> None:
    view = map_bytes(descriptor, start, length)
    assert view is not None
    assert view == DATA[start : start + length]
    assert view.readonly


def test_nothing_of_it_is_a_copy(descriptor: int) -> None:
    view = map_bytes(descriptor, 5, SIZE - 5)
    assert view is not None
    assert isinstance(view.obj, mmap.mmap)


@pytest.mark.parametrize(
    ("start", "length"), [(0, 10), (SIZE - 10, SIZE), (SIZE, SIZE), (2 * SIZE, SIZE)]
)
def test_little_had_better_be_read(descriptor: int, start: int, length: int) -> None:
    assert map_bytes(descriptor, start, length) is None


def test_what_the_kernel_cannot_bring_in_at_once_had_better_be_read(
    descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, errno.EINVAL)
    assert map_bytes(descriptor, 0, SIZE) is None


async def test_a_store_reads_what_it_cannot_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, errno.EINVAL)
    store = FolderStore(tmp_path, clock=SystemClock(), entropy=os.urandom)
    await store.put("x", [DATA])
    assert await store.get_ranges("x", [Range(7, SIZE)], mapped=True) == [DATA[7:]]
    await store.close()


async def test_a_disk_that_fails_is_an_error_that_names_the_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, errno.EFAULT)
    store = FolderStore(tmp_path, clock=SystemClock(), entropy=os.urandom)
    await store.put("x", [DATA])
    with pytest.raises(StoreUnavailableError, match="get 'x': Input/output error"):
        await store.get_ranges("x", [Range(0, SIZE)], mapped=True)
    await store.close()
