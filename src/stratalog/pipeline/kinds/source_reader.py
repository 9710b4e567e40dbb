"""Reading a task's source objects ahead of their use, within a budget of bytes.

Nothing here can wait for ever. Only the reader waits for the budget. The bytes that hold it up are
on their way to a sink, which takes them without waiting and gives them back once they have moved
on; moving on depends on nothing that is still to be read.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from stratalog.clock import Clock
from stratalog.control.log.model import Coordinates
from stratalog.errors import RetriableError, StaleError, StratalogError
from stratalog.objects.memory import new_memory
from stratalog.objects.store import Buffer, ObjectStore, Range
from stratalog.pipeline.plan.object_reads import ObjectRead, SourceRow

READ_AHEAD_BYTES = 64 * 1024 * 1024
READS_UNDER_WAY = 8
"""One connection to S3 carries some 50 to 100 MB/s."""


class ReadBudget:
    """The bytes that may be held at once. A read that is larger than the budget is held alone."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._given_back = asyncio.Event()
        self.held_bytes = 0

    async def take(self, size_bytes: int) -> None:
        while self.held_bytes and self.held_bytes + size_bytes > self._limit_bytes:
            self._given_back.clear()
            await self._given_back.wait()
        self.held_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        self.held_bytes -= size_bytes
        self._given_back.set()


class Pace:
    """A limit of bytes per second; 0 is no limit. Unused bytes are not saved up."""

    def __init__(self, bytes_per_second: int, clock: Clock) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._next_s = 0.0

    async def wait_for(self, size_bytes: int) -> None:
        """Wait until the earlier reads have had their time."""
        if self._bytes_per_second:
            now_s = self._clock.monotonic()
            start_s = max(now_s, self._next_s)
            self._next_s = start_s + size_bytes / self._bytes_per_second
            if start_s > now_s:
                await self._clock.sleep(start_s - now_s)


class Sink(Protocol):
    """The consumer of the rows. It never waits, and gets the rows of each part in order."""

    def wants(self, source: SourceRow) -> bool:
        """Tell whether there is still any use in reading the row."""

    def take(self, source: SourceRow, data: memoryview) -> None:
        """Take the row's bytes, in memory of their own that may be written to.

        They count against the budget until the sink gives them back.
        """

    def fail(self, source: SourceRow, error: StratalogError) -> None:
        """Note that the row cannot be read."""


def plain_memory(source: SourceRow) -> memoryview:
    return memoryview(new_memory(source.row.byte_size))


class SourceReader:
    def __init__(
        self,
        store: ObjectStore,
        budget: ReadBudget,
        sink: Sink,
        pace: Pace,
        *,
        memory: Callable[[SourceRow], memoryview] = plain_memory,
    ) -> None:
        """`memory` gives the memory that the bytes of a row are read into."""
        self._store = store
        self._budget = budget
        self._sink = sink
        self._pace = pace
        self._memory = memory
        self._slots = asyncio.Semaphore(READS_UNDER_WAY)

    async def read(self, reads: Iterable[ObjectRead]) -> None:
        """Do several reads at the same time, and deliver the rows in the order of the reads."""
        before: asyncio.Task[None] | None = None
        async with asyncio.TaskGroup() as tasks:
            for read in reads:
                await self._slots.acquire()
                cost_bytes = read.cost_bytes
                await self._budget.take(cost_bytes)
                await self._pace.wait_for(self._wanted_bytes(read))
                before = tasks.create_task(self._serve(read, cost_bytes, before))

    def _wanted_bytes(self, read: ObjectRead) -> int:
        return sum(source.row.byte_size for source in read.sources if self._sink.wants(source))

    async def _serve(
        self, read: ObjectRead, cost_bytes: int, before: asyncio.Task[None] | None
    ) -> None:
        sources = [source for source in read.sources if self._sink.wants(source)]
        answers = await self._read(read.object_key, sources) if sources else []
        self._slots.release()
        if before is not None:
            await before
        for source, answer in zip(sources, answers, strict=True):
            if isinstance(answer, StratalogError):
                self._sink.fail(source, answer)
            else:
                cost_bytes -= len(answer)
                self._sink.take(source, _writable(answer))
        self._budget.give_back(cost_bytes)

    async def _read(
        self, key: str, sources: Sequence[SourceRow]
    ) -> Sequence[Buffer | StratalogError]:
        ranges = [_range(source.row) for source in sources]
        try:
            return await self._store.get_ranges(key, ranges, into=[*map(self._memory, sources)])
        except (RetriableError, StaleError) as error:
            return [error] * len(sources)
        except StratalogError as error:
            if len(sources) == 1:
                return [error]
            # An object that is too short may still have some of the rows.
            return [answer for source in sources for answer in await self._read(key, [source])]


def _range(row: Coordinates) -> Range:
    return Range(row.byte_offset, row.byte_offset + row.byte_size)


def _writable(buffer: Buffer) -> memoryview:
    """Copy the bytes to where they can be stamped, if the store answers with memory of its own."""
    view = memoryview(buffer)
    return memoryview(bytearray(view)) if view.readonly else view
