"""Promises of a folder store beyond the contract: crash points, full disks, other processes."""

import asyncio
import errno
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.objects.fake_clock import FakeClock

from stratalog.clock import SystemClock
from stratalog.objects import (
    Buffer,
    Create,
    ObjectChangedError,
    ObjectNotFoundError,
    ObjectStore,
    Replace,
    StoreAccessError,
    StoredObject,
    StoreFullError,
    StoreUnavailableError,
)
from stratalog.objects.durable_files import DurableFolders, read_exactly, write_parts
from stratalog.objects.folder import RUNS_UNDER_WAY, STREAM_RUN_BYTES, FolderStore
from stratalog.objects.folder_files import LEFTOVER_AGE_MS
from stratalog.objects.streamed_file import StreamedFile

NOW_MS = SystemClock().now_ms()


def open_folder(root: Path, now_ms: int = NOW_MS) -> FolderStore:
    return FolderStore(root, clock=FakeClock(now_ms), entropy=os.urandom)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FolderStore]:
    opened = open_folder(tmp_path)
    yield opened
    await opened.close()


async def run_child(program: str, *arguments: Path | str) -> asyncio.subprocess.Process:
    path = Path(__file__).with_name(program)
    return await asyncio.create_subprocess_exec(
        sys.executable, path, *arguments, stdout=asyncio.subprocess.PIPE
    )


def leftovers(root: Path) -> list[str]:
    """Temporary files, and sidecars (of which each object with a version has one)."""
    own = root / ".stratalog"
    return [path.name for part in ("tmp", "meta") for path in (own / part).iterdir()]


async def all_objects(store: ObjectStore) -> dict[str, StoredObject]:
    return {info.key: await store.get(info.key) async for info in store.list("")}


def content(stored: StoredObject) -> tuple[bytes, str]:
    return bytes(stored.data), stored.info.metadata.get("version", "")


OLD = {"a/b/old": (b"old", "old")}
CALLS: dict[str, tuple[dict[str, tuple[bytes, str]], dict[str, tuple[bytes, str]]]] = {
    "create": ({}, {"a/b/new": (b"newdata", "new")}),
    "overwrite": (OLD, {"a/b/old": (b"newdata", "new")}),
    "stream": (OLD, {"a/b/old": (b"newdata", "")}),
    "delete": (OLD, {}),
    "copy": (OLD, {**OLD, "c/d/new": (b"old", "old")}),
}
"""For each call of the crashing child, the objects before and after."""


@pytest.mark.parametrize("call", CALLS)
async def test_a_crash_between_any_two_steps_leaves_all_or_nothing(
    call: str, tmp_path: Path
) -> None:
    child = await run_child("crash_child.py", tmp_path, call)
    steps = int((await child.communicate())[0])
    assert steps > 5
    before, after = CALLS[call]
    seen = []
    for step in range(1, steps + 1):
        root = tmp_path / f"{step}"
        store = open_folder(root, NOW_MS + 2 * LEFTOVER_AGE_MS)
        found = {key: content(stored) for key, stored in (await all_objects(store)).items()}
        await store.close()
        assert found in (before, after), step
        versions = [version for _, version in found.values() if version]
        assert len(leftovers(root)) == len(versions), f"step {step} left {leftovers(root)}"
        seen.append(found)
    assert seen[0] == before
    assert seen[-1] == after
    switch = seen.index(after)
    assert seen == [before] * switch + [after] * (steps - switch)


async def test_what_a_crash_left_is_swept_only_when_it_is_old(tmp_path: Path) -> None:
    await open_folder(tmp_path).close()
    temporary = tmp_path / ".stratalog/tmp/left"
    sidecar = tmp_path / ".stratalog/meta/1-2-3"
    temporary.write_bytes(b"half")
    sidecar.write_text('{"key": "x"')
    for path in (temporary, sidecar):
        os.utime(path, ns=(NOW_MS * 1_000_000, NOW_MS * 1_000_000))
    await open_folder(tmp_path, NOW_MS + LEFTOVER_AGE_MS).close()
    assert leftovers(tmp_path) == ["left", "1-2-3"]
    await open_folder(tmp_path, NOW_MS + LEFTOVER_AGE_MS + 1).close()
    assert leftovers(tmp_path) == []


class FailingCalls:
    """Makes one call of the operating system fail, the given one in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int, error: int) -> None:
        self._countdown = number
        self._error = error
        for name in ("open", "pwrite", "writev", "utime", "fsync", "link", "replace", "mkdir"):
            monkeypatch.setattr(os, name, self._failing(getattr(os, name)))

    @property
    def has_failed(self) -> bool:
        return self._countdown < 0

    def _failing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self._countdown -= 1
            if self._countdown == -1:
                raise OSError(self._error, os.strerror(self._error))
            return function(*args, **kwargs)

        return wrapper


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("mode", ["create", "overwrite", "replace"])
async def test_a_full_disk_leaves_no_partial_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, error: int
) -> None:
    for number in range(100):
        root = tmp_path / f"{number}"
        store = open_folder(root)
        etag = await store.put("a/old", [b"old"], metadata={"version": "old"})
        key = "b/new" if mode == "create" else "a/old"
        modes: dict[str, Any] = {"create": Create(), "replace": Replace(etag=etag)}
        metadata = {"version": "new", "stratalog-write-id": "7"}
        options = {"mode": modes[mode]} if mode in modes else {}
        with monkeypatch.context() as patched:
            failing = FailingCalls(patched, number, error)
            try:
                await store.put(key, [b"new"], metadata=metadata, **options)
            except StoreFullError:
                assert failing.has_failed
        objects = await all_objects(store)
        assert {content(each) for each in objects.values()} <= {(b"old", "old"), (b"new", "new")}
        assert len(leftovers(root)) == len(objects)
        # The same put again: it succeeds, also if it had been visible already.
        if failing.has_failed:
            await store.put(key, [b"new"], metadata=metadata, **options)
        assert content(await store.get(key)) == (b"new", "new")
        await store.close()
        if not failing.has_failed:
            assert number > 5
            return
    raise AssertionError("the put never came to its end")


@pytest.mark.parametrize("part", [b"new", bytes(STREAM_RUN_BYTES + 1)])
async def test_a_full_disk_leaves_nothing_of_a_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: bytes
) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield part

    for number in range(100):
        root = tmp_path / f"{number}"
        store = open_folder(root)
        await store.put("old", [b"old"])
        with monkeypatch.context() as patched:
            failing = FailingCalls(patched, number, errno.ENOSPC)
            try:
                await store.put_stream("old", parts())
            except StoreFullError:
                assert failing.has_failed
        assert (await store.get("old")).data in (b"old", part * 3)
        assert leftovers(root) == []
        await store.close()
        if not failing.has_failed:
            assert number > 5
            return
    pytest.fail("it never succeeded")


async def test_several_runs_of_a_stream_are_written_at_once_but_not_more(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_at_once = threading.Barrier(RUNS_UNDER_WAY)
    under_way: set[int] = set()
    real = StreamedFile.write

    def met(self: StreamedFile, run: Sequence[Buffer], position: int) -> None:
        under_way.add(position)
        assert len(under_way) <= RUNS_UNDER_WAY
        all_at_once.wait(30)
        real(self, run, position)
        under_way.remove(position)

    async def parts() -> AsyncIterator[bytes]:
        for number in range(2 * RUNS_UNDER_WAY):
            yield bytes([number]) * STREAM_RUN_BYTES

    monkeypatch.setattr(StreamedFile, "write", met)
    size_bytes = 2 * RUNS_UNDER_WAY * STREAM_RUN_BYTES
    assert await store.put_stream("x", parts()) == size_bytes
    assert (await store.get("x")).data == b"".join([part async for part in parts()])


async def test_a_cancelled_stream_waits_for_the_thread_that_writes(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, go_on = threading.Event(), threading.Event()
    real = os.writev

    def slow(descriptor: int, views: Any) -> int:
        started.set()
        go_on.wait()
        return real(descriptor, views)

    async def parts() -> AsyncIterator[bytes]:
        yield b"data"

    monkeypatch.setattr(os, "writev", slow)
    put = asyncio.create_task(store.put_stream("x", parts()))
    await asyncio.to_thread(started.wait)
    for _ in range(3):
        put.cancel()
        await asyncio.sleep(0)
    assert not put.done()
    assert len(leftovers(tmp_path)) == 1
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await put
    assert leftovers(tmp_path) == []
    assert await all_objects(store) == {}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errno.EIO, StoreUnavailableError),
        (errno.EMFILE, StoreUnavailableError),
        (errno.EACCES, StoreAccessError),
        (errno.EROFS, StoreAccessError),
    ],
)
async def test_the_file_systems_errors_are_told_in_our_words(
    store: FolderStore,
    monkeypatch: pytest.MonkeyPatch,
    error: int,
    expected: type[Exception],
) -> None:
    with monkeypatch.context() as patched:
        FailingCalls(patched, 0, error)
        with pytest.raises(expected, match="put 'x': "):
            await store.put("x", [b"1"])


@pytest.mark.parametrize("other", ["replace", "overwrite", "delete"])
async def test_nothing_comes_between_a_replaces_look_and_its_leap(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """A replace that has looked waits a while for the other call, which must not get through."""
    etag = await store.put("x", [b"start"])
    first_looked, other_done = threading.Event(), threading.Event()
    real_replace = os.replace

    def waiting_replace(source: Path, target: Path) -> None:
        if not first_looked.is_set():
            first_looked.set()
            assert not other_done.wait(0.2)
        real_replace(source, target)

    async def interfere() -> None:
        await asyncio.to_thread(first_looked.wait)
        match other:
            case "replace":
                with pytest.raises(ObjectChangedError):
                    await store.put("x", [b"second"], mode=Replace(etag=etag))
            case "overwrite":
                await store.put("x", [b"second"])
            case "delete":
                await store.delete(["x"])
        other_done.set()

    monkeypatch.setattr(os, "replace", waiting_replace)
    first = store.put("x", [b"first"], mode=Replace(etag=etag))
    await asyncio.gather(first, interfere())
    assert other_done.is_set()


async def test_two_processes_never_lose_a_replace(tmp_path: Path) -> None:
    store = open_folder(tmp_path)
    await store.put("n", [b"0"], metadata={"n": "0"})
    children = [await run_child("counting_child.py", tmp_path, "40") for _ in range(2)]
    for child in children:
        await child.communicate()
        assert child.returncode == 0
    stored = await store.get("n")
    assert (bytes(stored.data), stored.info.metadata) == (b"80", {"n": "80"})
    assert len(leftovers(tmp_path)) == 1
    await store.close()


async def test_an_object_is_a_plain_file(store: FolderStore, tmp_path: Path) -> None:
    await store.put("a/b", [b"plain ", b"bytes"], metadata={"k": "v"})
    assert (tmp_path / "a/b").read_bytes() == b"plain bytes"
    assert (tmp_path / "a/b").stat().st_nlink == 1


async def test_a_file_that_somebody_put_there_is_an_object(
    store: FolderStore, tmp_path: Path
) -> None:
    (tmp_path / "found").write_bytes(b"treasure")
    assert bytes((await store.get("found")).data) == b"treasure"
    assert [info.key async for info in store.list("")] == ["found"]


async def test_delete_takes_empty_folders_along_but_never_the_root(
    store: FolderStore, tmp_path: Path
) -> None:
    await store.put("a/b/c", [b"1"])
    await store.put("a/d", [b"1"])
    await store.delete(["a/b/c"])
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["d"]
    await store.delete(["a/d", "a/d"])
    assert [p.name for p in tmp_path.iterdir()] == [".stratalog"]


async def test_puts_and_deletes_in_one_folder_do_not_trip_over_each_other(
    store: FolderStore,
) -> None:
    async def put_and_delete(name: str) -> None:
        for _ in range(20):
            await store.put(f"a/b/c/{name}", [b"1"], mode=Create())
            await store.delete([f"a/b/c/{name}"])

    await asyncio.gather(*(put_and_delete(f"{number}") for number in range(4)))
    assert [info.key async for info in store.list("")] == []


async def test_versions_in_the_same_millisecond_have_different_etags(store: FolderStore) -> None:
    """The clock stands still, the sizes are equal, and the file system reuses inodes."""
    etags = [await store.put("x", [b"%03d" % number]) for number in range(50)]
    assert len({*etags}) == 50


async def test_the_time_of_an_object_is_the_clocks(store: FolderStore) -> None:
    await store.put("x", [b"1"])
    assert (await store.head("x")).modified_ms == NOW_MS


async def test_work_on_files_does_not_hold_up_the_loop(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop_ran = asyncio.Event()
    loop = asyncio.get_running_loop()
    real_fsync = os.fsync

    def slow_fsync(descriptor: int) -> None:
        asyncio.run_coroutine_threadsafe(loop_ran.wait(), loop).result(10)
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", slow_fsync)
    putting = asyncio.create_task(store.put("x", [b"1"]))
    await asyncio.sleep(0)
    loop_ran.set()
    await putting


async def test_a_put_syncs_its_file_then_its_folders_up_to_the_root(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real_fsync, real_link = os.fsync, os.link

    def fsync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        synced.append(path.parent.name if path.parent.name == "tmp" else f"{path}")
        real_fsync(descriptor)

    def link(source: Path, target: Path) -> None:
        synced.append("link")
        real_link(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", link)
    folders = [f"{tmp_path}/a/b", f"{tmp_path}/a", f"{tmp_path}"]
    await store.put("a/b/c", [b"1"], mode=Create())
    assert synced == ["tmp", "link", *folders]
    synced.clear()
    await store.put("a/b/d", [b"1"], mode=Create())
    assert synced == ["tmp", "link", folders[0]]
    synced.clear()
    await store.delete(["a/b/c", "a/b/d"])
    await store.put("a/b/c", [b"1"], mode=Create())
    assert synced == ["tmp", "link", *folders]


def test_remembered_folders_are_few(tmp_path: Path) -> None:
    folders = DurableFolders(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(200):
        (tmp_path / f"{number}").mkdir()
        folders.sync_entry(tmp_path / f"{number}" / "x")
        folders.sync_entry(tmp_path / f"{number}" / "y")
    assert len(os.listdir("/proc/self/fd")) == before + 128
    folders.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_writev = os.writev

    def stingy(descriptor: int, buffers: list[memoryview]) -> int:
        return real_writev(descriptor, [b"".join(buffers)[:3]])

    descriptor = os.open(tmp_path / "x", os.O_RDWR | os.O_CREAT)
    with monkeypatch.context() as patched:
        patched.setattr(os, "writev", stingy)
        write_parts(descriptor, [b"01", b"", b"2345", bytearray(b"6"), memoryview(b"789")])
    assert os.pread(descriptor, 100, 0) == b"0123456789"
    os.close(descriptor)


def test_short_reads_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").write_bytes(b"0123456789")
    real_pread = os.pread
    descriptor = os.open(tmp_path / "x", os.O_RDONLY)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", lambda fd, n, start: real_pread(fd, min(n, 3), start))
        assert read_exactly(descriptor, 1, 8) == b"12345678"
        assert read_exactly(descriptor, 5, 50) == b"56789"
        assert read_exactly(descriptor, 10, 1) == b""
    os.close(descriptor)


async def test_a_reader_never_mixes_the_data_of_one_version_with_the_metadata_of_another(
    store: FolderStore,
) -> None:
    await store.put("x", [b"0"], metadata={"version": "0"})

    async def overwrite() -> None:
        for number in range(1, 60):
            await store.put("x", [b"%d" % number], metadata={"version": f"{number}"})

    writing = asyncio.create_task(overwrite())
    while not writing.done():
        data, version = content(await store.get("x"))
        assert data.decode() == version
    await writing


async def test_a_folder_is_no_object(store: FolderStore) -> None:
    await store.put("a/b", [b"1"])
    with pytest.raises(ObjectNotFoundError):
        await store.get("a")
    await store.delete(["a"])
    assert [info.key async for info in store.list("")] == ["a/b"]
