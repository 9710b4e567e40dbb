"""Reading a task's source objects ahead of those who work on them, within a budget of bytes.

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
from stratalog.pipeline.plan.object_reads import Piece, Visit

READ_AHEAD_BYTES = 64 * 1024 * 1024
READS_UNDER_WAY = 8
"""One connection to S3 carries some 50 to 100 MB/s."""


class Budget:
    """Bytes that may be held at once. What is larger than all of it is held alone."""

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
    """No more than so many bytes per second; 0 is no limit. What was not used is not saved up."""

    def __init__(self, bytes_per_second: int, clock: Clock) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._next_s = 0.0

    async def wait_for(self, size_bytes: int) -> None:
        """Until what came before has had its time."""
        if self._bytes_per_second:
            now_s = self._clock.monotonic()
            start_s = max(now_s, self._next_s)
            self._next_s = start_s + size_bytes / self._bytes_per_second
            if start_s > now_s:
                await self._clock.sleep(start_s - now_s)


class Sink(Protocol):
    """Whoever works on the pieces. It never waits, and gets each unit's pieces in order."""

    def wants(self, piece: Piece) -> bool:
        """Whether there is any use in reading it (still)."""

    def take(self, piece: Piece, data: memoryview) -> None:
        """The piece's bytes, in memory of their own that may be written to.

        They count against the budget until the sink gives them back.
        """

    def fail(self, piece: Piece, error: StratalogError) -> None:
        """The piece cannot be read."""


def plain_memory(piece: Piece) -> memoryview:
    return memoryview(new_memory(piece.row.byte_size))


class Reader:
    def __init__(
        self,
        store: ObjectStore,
        budget: Budget,
        sink: Sink,
        pace: Pace,
        *,
        memory: Callable[[Piece], memoryview] = plain_memory,
    ) -> None:
        """`memory` is where the bytes of a piece are to be put."""
        self._store = store
        self._budget = budget
        self._sink = sink
        self._pace = pace
        self._memory = memory
        self._slots = asyncio.Semaphore(READS_UNDER_WAY)

    async def read(self, visits: Iterable[Visit]) -> None:
        """Several visits at the same time; what they bring is delivered in their order."""
        before: asyncio.Task[None] | None = None
        async with asyncio.TaskGroup() as tasks:
            for visit in visits:
                await self._slots.acquire()
                cost_bytes = visit.cost_bytes
                await self._budget.take(cost_bytes)
                await self._pace.wait_for(self._wanted_bytes(visit))
                before = tasks.create_task(self._serve(visit, cost_bytes, before))

    def _wanted_bytes(self, visit: Visit) -> int:
        return sum(piece.row.byte_size for piece in visit.pieces if self._sink.wants(piece))

    async def _serve(
        self, visit: Visit, cost_bytes: int, before: asyncio.Task[None] | None
    ) -> None:
        pieces = [piece for piece in visit.pieces if self._sink.wants(piece)]
        answers = await self._read(visit.object_key, pieces) if pieces else []
        self._slots.release()
        if before is not None:
            await before
        for piece, answer in zip(pieces, answers, strict=True):
            if isinstance(answer, StratalogError):
                self._sink.fail(piece, answer)
            else:
                cost_bytes -= len(answer)
                self._sink.take(piece, _own(answer))
        self._budget.give_back(cost_bytes)

    async def _read(self, key: str, pieces: Sequence[Piece]) -> Sequence[Buffer | StratalogError]:
        ranges = [_range(piece.row) for piece in pieces]
        try:
            return await self._store.get_ranges(key, ranges, into=[*map(self._memory, pieces)])
        except (RetriableError, StaleError) as error:
            return [error] * len(pieces)
        except StratalogError as error:
            if len(pieces) == 1:
                return [error]
            # An object that is too short is whole for some of those who want a piece of it.
            return [answer for piece in pieces for answer in await self._read(key, [piece])]


def _range(row: Coordinates) -> Range:
    return Range(row.byte_offset, row.byte_offset + row.byte_size)


def _own(buffer: Buffer) -> memoryview:
    """The same bytes where they can be stamped, should a store answer with memory of its own."""
    view = memoryview(buffer)
    return memoryview(bytearray(view)) if view.readonly else view
