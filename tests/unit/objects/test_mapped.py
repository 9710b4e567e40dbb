import errno
import mmap
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from stratalog.clock import SystemClock
from stratalog.objects import folder_files, mapped
from stratalog.objects.errors import StoreUnavailableError
from stratalog.objects.folder import FolderStore
from stratalog.objects.folder_files import FolderFiles
from stratalog.objects.mapped import can_map, map_bytes
from stratalog.objects.store import Buffer, Range

MIB = 1024 * 1024
SIZE = 1_600_000
DATA = os.urandom(SIZE)

needs_maps = pytest.mark.skipif(not can_map(), reason="the kernel cannot bring pages in")


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    file = tmp_path / "file"
    file.write_bytes(DATA)
    opened = os.open(file, os.O_RDONLY)
    yield opened
    os.close(opened)


@pytest.fixture(params=["populate", "map"])
def refusing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that cannot be read, an old kernel, or a file system that cannot map: none of them is
    to be had here."""

    class Libc:
        def madvise(self, *_: object) -> int:
            return -1

    real = mmap.mmap

    def no_map(descriptor: int, *sizes: int, **options: int) -> mmap.mmap:
        if descriptor == -1:
            return real(descriptor, *sizes, **options)
        raise OSError(errno.ENODEV, "no maps of files here")

    if request.param == "populate":
        monkeypatch.setattr(mapped, "_libc", Libc())
    else:
        monkeypatch.setattr(mmap, "mmap", no_map)


@pytest.mark.parametrize("start", [0, 1, 4095, 4096, 4097, 100_000])
@needs_maps
@pytest.mark.parametrize("length", [1024 * 1024, 1_048_577, 1_400_000, SIZE])
def test_the_bytes_are_those_of_the_file_up_to_its_end(
    descriptor: int, start: int, length: int
) -> None:
    view = map_bytes(descriptor, start, length)
    assert view is not None
    assert view == DATA[start : start + length]
    assert view.readonly


@needs_maps
def test_nothing_of_it_is_a_copy(descriptor: int) -> None:
    view = map_bytes(descriptor, 5, SIZE - 5)
    assert view is not None
    assert isinstance(view.obj, mmap.mmap)


@pytest.mark.parametrize(
    ("start", "length"), [(0, 10), (SIZE - 10, SIZE), (SIZE, SIZE), (2 * SIZE, SIZE)]
)
def test_little_had_better_be_read(descriptor: int, start: int, length: int) -> None:
    assert map_bytes(descriptor, start, length) is None


@pytest.mark.usefixtures("refusing")
def test_what_cannot_be_mapped_had_better_be_read(descriptor: int) -> None:
    assert map_bytes(descriptor, 0, SIZE) is None


@pytest.mark.usefixtures("refusing")
async def test_a_store_reads_what_it_cannot_map(tmp_path: Path) -> None:
    store = FolderStore(tmp_path, clock=SystemClock(), entropy=os.urandom)
    await store.put("x", [DATA])
    assert await store.get_ranges("x", [Range(7, SIZE)], mapped=True) == [DATA[7:]]
    await store.close()


@pytest.mark.usefixtures("refusing")
async def test_a_disk_that_fails_is_an_error_that_names_the_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    store = FolderStore(tmp_path, clock=SystemClock(), entropy=os.urandom)
    await store.put("x", [DATA])
    monkeypatch.setattr(FolderFiles, "seems_cached", lambda *_: True)
    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(StoreUnavailableError, match="get 'x': Input/output error"):
        await store.get_ranges("x", [Range(0, SIZE)], mapped=True)
    await store.close()


@pytest.mark.parametrize("cached", [False, True], ids=["disk", "memory"])
async def test_the_loop_does_not_wait_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: bool
) -> None:
    store = FolderStore(tmp_path, clock=SystemClock(), entropy=os.urandom)
    await store.put("x", [DATA])
    threads: list[str] = []
    map_ranges = FolderFiles.map_ranges

    def noted(files: FolderFiles, key: str, ranges: Sequence[Range]) -> list[Buffer]:
        threads.append(threading.current_thread().name)
        return map_ranges(files, key, ranges)

    monkeypatch.setattr(FolderFiles, "map_ranges", noted)
    monkeypatch.setattr(FolderFiles, "seems_cached", lambda *_: cached)
    assert await store.get_ranges("x", [Range(0, SIZE)], mapped=True) == [DATA]
    [thread] = threads
    assert (thread == threading.current_thread().name) is cached
    await store.close()


@pytest.mark.parametrize("missing", [None, 0, 7, 4 * MIB, 5 * MIB - 1])
def test_some_bytes_of_each_range_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: int | None
) -> None:
    """The kernel's answer about them depends on the file system."""

    def read(_: int, views: Sequence[memoryview], position: int) -> bool:
        assert [len(view) for view in views] == [1]
        return position != missing

    monkeypatch.setattr(folder_files, "read_cached_views", read)
    (tmp_path / "x").write_bytes(b"anything")
    files = FolderFiles(tmp_path, clock=SystemClock(), entropy=os.urandom)
    assert files.seems_cached("x", [Range(0, 5 * MIB), Range(7, 8)]) is (missing is None)
    files.close()
