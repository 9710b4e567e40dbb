"""The bytes of segments' logs, as record batches: fetched, decoded, cached.

Logs are fetched by chunks. All readers of a chunk wait for the same request. A plain log, neither
compressed nor encrypted, can be read at any byte: its readers get exactly the bytes that they ask
for, past the cache, unless its chunks were read ahead.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeAlias

from stratalog.errors import DamagedError, StratalogError
from stratalog.objects.store import Buffer, Range
from stratalog.segment.byte_cache import ByteCache
from stratalog.segment.chunk_index import chunks_between
from stratalog.segment.open_segment import Edition, OpenSegment
from stratalog.segment.read_metrics import ReadMetrics
from stratalog.segment.single_flight import SingleFlight, wait_for
from stratalog.segment.thread_offload import offload

REQUEST_BYTES = 4 * 1024 * 1024
"""The size of a request that reads ahead: large enough to cost little per byte, small enough for
several to be in progress at once."""
_LEAST_REQUESTS = 4
"""The least number of requests that fit into the space for reading ahead, if it is small."""

ChunkKey: TypeAlias = tuple[Edition, int]
_Run: TypeAlias = "dict[int, Buffer | StratalogError]"
"""Chunks that were fetched with one request, or their errors."""
_Sources: TypeAlias = "dict[int, Buffer | asyncio.Task[_Run]]"
"""Chunks that are cached or being fetched. The dict keeps them: both caches may drop them during a
wait."""


@dataclass(slots=True)
class LogRead:
    """The answer of a read of a log."""

    parts: list[memoryview] = field(default_factory=list)
    """The good bytes, from the wanted position on."""
    error: StratalogError | None = None
    """The reason why the bytes end too early, if they do."""

    @property
    def size_bytes(self) -> int:
        return sum(len(part) for part in self.parts)


class _Wanted(NamedTuple):
    start: int
    end: int
    began: int


class LogBytes:
    def __init__(self, cache: ByteCache[ChunkKey, Buffer], metrics: ReadMetrics) -> None:
        self._cache = cache
        self._metrics = metrics
        self._flights: SingleFlight[ChunkKey, _Run] = SingleFlight()
        self._ahead_bytes = 0
        self._request_bytes = max(1, min(REQUEST_BYTES, cache.young_bytes // _LEAST_REQUESTS))

    async def read(
        self, log: OpenSegment, start: int, end: int, *, began: int | None = None
    ) -> LogRead:
        """Read the bytes `[start, end)` of a log, up to the first damaged chunk.

        `began` is the position at which the reader's step began, if not at `start`. It is negative
        if the step began in an earlier segment.
        """
        answer = LogRead()
        wanted = _Wanted(start, end, start if began is None else began)
        try:
            if start < end:
                await self._read_into(answer, log, wanted)
        except StratalogError as error:
            answer.error = error
        return answer

    def read_ahead(self, log: OpenSegment, start: int, end: int) -> bool:
        """Fetch these bytes in the background, and more to fill the last request.

        Returns False if too many bytes would be in progress at once.
        """
        end = -(-end // self._request_bytes) * self._request_bytes
        chunks = chunks_between(log.chunks, start, end)
        missing = [chunk for chunk in chunks if not self._is_near(log, chunk)]
        for run in _runs(missing, max(1, self._request_bytes // log.chunks.chunk_bytes)):
            covered = log.original_range(run)
            size_bytes = covered.end - covered.start
            if self._ahead_bytes + size_bytes > self._cache.young_bytes:
                return False
            self._ahead_bytes += size_bytes
            task = self._start(log, run, "ahead")
            task.add_done_callback(partial(self._landed, size_bytes))
        return True

    def forget(self, log: OpenSegment, start: int, end: int) -> None:
        """Drop damaged bytes from the cache, in case they are not damaged in the store."""
        for chunk in chunks_between(log.chunks, start, end):
            self._cache.discard((log.edition, chunk))

    async def close(self) -> None:
        await self._flights.close()

    async def _read_into(self, answer: LogRead, log: OpenSegment, wanted: _Wanted) -> None:
        chunks = chunks_between(log.chunks, wanted.start, wanted.end)
        sources = self._sources(log, chunks, wanted)
        missing = [chunk for chunk in chunks if chunk not in sources]
        self._metrics.looked("chunk", hits=len(sources), misses=len(missing))
        if missing and log.is_plain:
            gap = range(missing[0], missing[-1] + 1)
            covered = log.original_range(gap)
            asked = Range(max(wanted.start, covered.start), min(wanted.end, covered.end))
            await self._collect(answer, log, range(chunks.start, gap.start), sources, wanted)
            answer.parts.append(memoryview(await self._fetch(log, asked, "log")))
            chunks = range(gap.stop, chunks.stop)
        else:
            for run in _runs(missing, len(missing)):
                sources |= dict.fromkeys(run, self._start(log, run, "log"))
        await self._collect(answer, log, chunks, sources, wanted)

    def _sources(self, log: OpenSegment, chunks: range, wanted: _Wanted) -> _Sources:
        sources: _Sources = {}
        for chunk in chunks:
            key = log.edition, chunk
            source = self._cache.find(key, _step(log, chunk, wanted)) or self._flights.find(key)
            if source is not None:
                sources[chunk] = source
        return sources

    async def _collect(
        self,
        answer: LogRead,
        log: OpenSegment,
        chunks: range,
        sources: _Sources,
        wanted: _Wanted,
    ) -> None:
        for chunk in chunks:
            source = sources[chunk]
            if isinstance(source, asyncio.Task):
                data = (await wait_for(source))[chunk]
                # The chunk may have been cached as unread. This counts the reading.
                self._cache.find((log.edition, chunk), _step(log, chunk, wanted))
            else:
                data = source
            if isinstance(data, StratalogError):
                raise data
            start = log.chunks.original_range(chunk).start
            answer.parts.append(memoryview(data)[max(0, wanted.start - start) : wanted.end - start])

    def _start(self, log: OpenSegment, run: range, kind: str) -> "asyncio.Task[_Run]":
        keys = [(log.edition, chunk) for chunk in run]
        return self._flights.start(keys, lambda: self._fetch_run(log, run, kind))

    async def _fetch_run(self, log: OpenSegment, run: range, kind: str) -> _Run:
        ranges = [log.chunks.stored_range(chunk) for chunk in run]
        start = ranges[0].start
        stored = memoryview(await self._fetch(log, Range(start, ranges[-1].end), kind))
        chunks = [stored[one.start - start : one.end - start] for one in ranges]
        size_bytes = 0 if log.is_plain else len(stored)
        decoded = await offload(size_bytes, _decode_run, log, run, chunks)
        for chunk, data in decoded.items():
            if not isinstance(data, StratalogError):
                self._cache.add((log.edition, chunk), data, len(data))
        return decoded

    async def _fetch(self, log: OpenSegment, asked: Range, kind: str) -> Buffer:
        (data,) = await log.store.get_ranges(log.log_key, [asked])
        self._metrics.request(kind, len(data))
        return data

    def _is_near(self, log: OpenSegment, chunk: int) -> bool:
        key = log.edition, chunk
        return key in self._cache or key in self._flights

    def _landed(self, size_bytes: int, _: object) -> None:
        self._ahead_bytes -= size_bytes


def _decode_run(log: OpenSegment, run: range, chunks: Sequence[Buffer]) -> _Run:
    decoded: _Run = {}
    for chunk, stored in zip(run, chunks, strict=True):
        try:
            decoded[chunk] = log.decode(chunk, stored)
        except DamagedError as error:
            decoded[chunk] = error
    return decoded


def _runs(chunks: Sequence[int], most: int) -> Iterator[range]:
    """Yield runs of consecutive chunks, at most so many in one run."""
    start = 0
    for index in range(1, len(chunks) + 1):
        ends = index == len(chunks) or chunks[index] != chunks[index - 1] + 1
        if ends or index - start == most:
            yield range(chunks[start], chunks[index - 1] + 1)
            start = index


def _step(log: OpenSegment, chunk: int, wanted: _Wanted) -> int:
    """Return the position at which the reader's step began, relative to the start of the chunk."""
    return wanted.began - log.chunks.original_range(chunk).start
