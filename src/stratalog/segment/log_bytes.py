"""The bytes of segments' logs, as record batches: fetched, decoded, cached.

Logs are fetched by chunks. A chunk that is on its way is waited for by everybody who needs it. A
plain log, neither compressed nor encrypted, can be read at any byte: of it a reader is given
exactly what it asks for, past the cache, unless chunks of it were read ahead.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeAlias

from stratalog.errors import DamagedError, StratalogError
from stratalog.ids import SegmentId
from stratalog.objects.store import Buffer, Range
from stratalog.segment.byte_cache import ByteCache
from stratalog.segment.chunk_index import chunks_between
from stratalog.segment.open_segment import OpenSegment
from stratalog.segment.read_metrics import ReadMetrics
from stratalog.segment.single_flight import SingleFlight, wait_for
from stratalog.segment.thread_offload import offload

REQUEST_BYTES = 4 * 1024 * 1024
"""What is read ahead in one request: large enough to cost little per byte, small enough for
several to be on their way at once."""
_LEAST_REQUESTS = 4
"""That fit into the room for what is read ahead, if it is small."""

ChunkKey: TypeAlias = tuple[SegmentId, int]
_Run: TypeAlias = "dict[int, Buffer | StratalogError]"
"""Chunks that were fetched with one request, or what is wrong with them."""
_Sources: TypeAlias = "dict[int, Buffer | asyncio.Task[_Run]]"
"""Chunks that are here or on their way. They are held on to: either may be gone after a wait."""


@dataclass(slots=True)
class LogRead:
    parts: list[memoryview] = field(default_factory=list)
    """The good bytes, from the asked position on."""
    error: StratalogError | None = None
    """Why they end before they should."""

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
        """The bytes `[start, end)` of a log, or as many of the first ones as are good.

        `began` is where the reader's step began, if not at `start`: before 0, in earlier segments.
        """
        piece = LogRead()
        wanted = _Wanted(start, end, start if began is None else began)
        try:
            if start < end:
                await self._read_into(piece, log, wanted)
        except StratalogError as error:
            piece.error = error
        return piece

    def read_ahead(self, log: OpenSegment, start: int, end: int) -> bool:
        """Have these bytes fetched, and what fills the last request.

        False if that would be too much to be on its way at once.
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
        """These bytes are damaged: they are fetched anew, in case they are not so in the store."""
        for chunk in chunks_between(log.chunks, start, end):
            self._cache.discard((log.segment_id, chunk))

    async def close(self) -> None:
        await self._flights.close()

    async def _read_into(self, piece: LogRead, log: OpenSegment, wanted: _Wanted) -> None:
        chunks = chunks_between(log.chunks, wanted.start, wanted.end)
        sources = self._sources(log, chunks, wanted)
        missing = [chunk for chunk in chunks if chunk not in sources]
        self._metrics.looked("chunk", hits=len(sources), misses=len(missing))
        if missing and log.is_plain:
            gap = range(missing[0], missing[-1] + 1)
            covered = log.original_range(gap)
            asked = Range(max(wanted.start, covered.start), min(wanted.end, covered.end))
            await self._collect(piece, log, range(chunks.start, gap.start), sources, wanted)
            piece.parts.append(memoryview(await self._fetch(log, asked, "log")))
            chunks = range(gap.stop, chunks.stop)
        else:
            for run in _runs(missing, len(missing)):
                sources |= dict.fromkeys(run, self._start(log, run, "log"))
        await self._collect(piece, log, chunks, sources, wanted)

    def _sources(self, log: OpenSegment, chunks: range, wanted: _Wanted) -> _Sources:
        sources: _Sources = {}
        for chunk in chunks:
            key = log.segment_id, chunk
            source = self._cache.find(key, _step(log, chunk, wanted)) or self._flights.find(key)
            if source is not None:
                sources[chunk] = source
        return sources

    async def _collect(
        self,
        piece: LogRead,
        log: OpenSegment,
        chunks: range,
        sources: _Sources,
        wanted: _Wanted,
    ) -> None:
        for chunk in chunks:
            source = sources[chunk]
            if isinstance(source, asyncio.Task):
                data = (await wait_for(source))[chunk]
                # The chunk was read, which it may have been added without.
                self._cache.find((log.segment_id, chunk), _step(log, chunk, wanted))
            else:
                data = source
            if isinstance(data, StratalogError):
                raise data
            start = log.chunks.original_range(chunk).start
            piece.parts.append(memoryview(data)[max(0, wanted.start - start) : wanted.end - start])

    def _start(self, log: OpenSegment, run: range, kind: str) -> "asyncio.Task[_Run]":
        keys = [(log.segment_id, chunk) for chunk in run]
        return self._flights.start(keys, lambda: self._fetch_run(log, run, kind))

    async def _fetch_run(self, log: OpenSegment, run: range, kind: str) -> _Run:
        places = [log.chunks.stored_range(chunk) for chunk in run]
        start = places[0].start
        stored = memoryview(await self._fetch(log, Range(start, places[-1].end), kind))
        pieces = [stored[place.start - start : place.end - start] for place in places]
        size_bytes = 0 if log.is_plain else len(stored)
        decoded = await offload(size_bytes, _decode_run, log, run, pieces)
        for chunk, data in decoded.items():
            if not isinstance(data, StratalogError):
                self._cache.add((log.segment_id, chunk), data, len(data))
        return decoded

    async def _fetch(self, log: OpenSegment, asked: Range, kind: str) -> Buffer:
        (data,) = await log.store.get_ranges(log.log_key, [asked])
        self._metrics.request(kind, len(data))
        return data

    def _is_near(self, log: OpenSegment, chunk: int) -> bool:
        key = log.segment_id, chunk
        return key in self._cache or key in self._flights

    def _landed(self, size_bytes: int, _: object) -> None:
        self._ahead_bytes -= size_bytes


def _decode_run(log: OpenSegment, run: range, pieces: Sequence[Buffer]) -> _Run:
    decoded: _Run = {}
    for chunk, stored in zip(run, pieces, strict=True):
        try:
            decoded[chunk] = log.decode(chunk, stored)
        except DamagedError as error:
            decoded[chunk] = error
    return decoded


def _runs(chunks: Sequence[int], most: int) -> Iterator[range]:
    """Neighbours together, so many at the most."""
    start = 0
    for place in range(1, len(chunks) + 1):
        ends = place == len(chunks) or chunks[place] != chunks[place - 1] + 1
        if ends or place - start == most:
            yield range(chunks[start], chunks[place - 1] + 1)
            start = place


def _step(log: OpenSegment, chunk: int, wanted: _Wanted) -> int:
    """Where a reader of these bytes began, counted from the start of the chunk."""
    return wanted.began - log.chunks.original_range(chunk).start
