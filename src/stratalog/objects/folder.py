"""A local folder as an object store: durable, exclusive, and readable with any tool."""

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from itertools import islice
from pathlib import Path
from typing import TypeVar, TypeVarTuple, Unpack

from stratalog.clock import Clock
from stratalog.ids import Entropy
from stratalog.objects.folder_files import FolderFiles, explained
from stratalog.objects.keys import check_key, check_metadata, check_prefix
from stratalog.objects.store import (
    Buffer,
    ObjectInfo,
    Overwrite,
    PutMode,
    Range,
    StoredObject,
)
from stratalog.objects.streamed_file import StreamedFile
from stratalog.objects.streams import ended, gathered, settled

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

THREADS = 16
"""Puts wait for the disk, not for the processor, and disks are faster with several writers."""

LIST_CHUNK = 500

STREAM_RUN_BYTES = 4 * 1024 * 1024

RUNS_UNDER_WAY = 4
"""The limit for all streams together. A disk took 1.3 GB/s with one write at a time, 2.0 with two,
2.2 with three or four. More writes only make small writes to the same disk wait."""


class FolderStore:
    """Runs blocking work in threads of its own, so that the event loop never waits. Only jobs,
    which bring their own memory or need none, read cached bytes without a thread."""

    def __init__(self, root: Path, *, clock: Clock, entropy: Entropy) -> None:
        self._root = root.absolute()
        with explained("open", self.url):
            self._files = FolderFiles(self._root, clock=clock, entropy=entropy)
        self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="objects")
        self._executor.submit(self._files.sweep_leftovers)
        self._runs = asyncio.Semaphore(RUNS_UNDER_WAY)

    @property
    def url(self) -> str:
        return f"file://{self._root}"

    async def put(
        self,
        key: str,
        parts: Sequence[Buffer],
        *,
        mode: PutMode = Overwrite(),  # noqa: B008 - immutable
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        check_key(key)
        check_metadata(metadata or {})
        return await self._run("put", key, self._files.put, key, parts, mode, metadata or {})

    async def put_stream(self, key: str, parts: AsyncIterable[Buffer]) -> int:
        """Write some runs while the next one is made.

        A thread is held only as long as it writes, never while it would wait for `parts`: their
        maker may be reading from this very store.
        """
        check_key(key)
        streamed = self._files.start_stream()
        try:
            await self._write_stream(key, streamed, parts)
            return await settled(self._run("put", key, self._files.finish_stream, key, streamed))
        except BaseException:
            await ended(asyncio.ensure_future(self._run("put", key, streamed.abandon)))
            raise

    async def _write_stream(
        self, key: str, streamed: StreamedFile, parts: AsyncIterable[Buffer]
    ) -> None:
        writing: deque[asyncio.Future[None]] = deque()
        position = 0
        try:
            async with aclosing(gathered(parts, STREAM_RUN_BYTES)) as runs:
                async for run in runs:
                    await self._runs.acquire()
                    write = asyncio.ensure_future(
                        self._run("put", key, streamed.write, run, position)
                    )
                    write.add_done_callback(lambda _: self._runs.release())
                    writing.append(write)
                    position += STREAM_RUN_BYTES
                    while writing and writing[0].done():
                        await settled(writing.popleft())
            while writing:
                await settled(writing.popleft())
        except BaseException:
            await ended(asyncio.gather(*writing, return_exceptions=True))
            raise

    async def get(self, key: str) -> StoredObject:
        check_key(key)
        return await self._run("get", key, self._files.get, key)

    async def head(self, key: str) -> ObjectInfo:
        check_key(key)
        return await self._run("head", key, self._files.head, key)

    async def get_ranges(
        self,
        key: str,
        ranges: Sequence[Range],
        *,
        into: Sequence[memoryview] | None = None,
        mapped: bool = False,
    ) -> list[Buffer]:
        check_key(key)
        if mapped:
            return await self._map(key, ranges)
        if into is None:
            return await self._run("get", key, self._files.get_ranges, key, ranges)
        if not await self._read_cached_into(key, ranges, into):
            await self._run("get", key, self._files.read_into, key, ranges, into)
        return [*into]

    async def _map(self, key: str, ranges: Sequence[Range]) -> list[Buffer]:
        """Map without a thread if all bytes seem cached: a switch of threads takes longer."""
        with explained("get", key):
            seems_cached = self._files.seems_cached(key, ranges)
            answers = self._files.map_ranges(key, ranges) if seems_cached else None
        if answers is None:
            return await self._run("get", key, self._files.map_ranges, key, ranges)
        await asyncio.sleep(0)
        return answers

    async def _read_cached_into(
        self, key: str, ranges: Sequence[Range], into: Sequence[memoryview]
    ) -> bool:
        """Copy without a thread: switching to one and back takes longer than copying cached bytes.

        Only for callers that bring their own memory: they are jobs, and no client waits for their
        loop.

        """
        with explained("get", key):
            found = self._files.read_cached_into(key, ranges, into)
        await asyncio.sleep(0)
        return found

    async def list(
        self, prefix: str, *, start_after: str | None = None
    ) -> AsyncIterator[ObjectInfo]:
        check_prefix(prefix)
        found = self._files.list(prefix, start_after)
        while chunk := await self._run("list", prefix, _take, found):
            for info in chunk:
                yield info

    async def copy(self, source: str, target: str, *, mode: PutMode = Overwrite()) -> None:  # noqa: B008
        check_key(source)
        check_key(target)
        await self._run("copy", source, self._files.copy, source, target, mode)

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            check_key(key)
        for key in keys:
            await self._run("delete", key, self._files.delete, key)

    async def close(self) -> None:
        await asyncio.to_thread(self._executor.shutdown)
        self._files.close()

    async def _run(
        self, doing: str, key: str, work: Callable[[Unpack[Arguments]], T], *args: *Arguments
    ) -> T:
        def call() -> T:
            with explained(doing, key):
                return work(*args)

        return await asyncio.get_running_loop().run_in_executor(self._executor, call)


def _take(found: Iterator[ObjectInfo]) -> list[ObjectInfo]:
    return list(islice(found, LIST_CHUNK))
