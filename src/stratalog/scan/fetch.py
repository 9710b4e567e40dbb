"""The bytes of a split, in order, fetched ahead of the decoder.

New requests are sent only when the decoder takes bytes. So the bytes that are on their way or wait
are bounded, however slow the decoder is. Rows that lie in one object are read together, even rows
of different partitions: thin partitions would otherwise cost a request each.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from stratalog.ids import Offset
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.objects.mapped import worth_mapping
from stratalog.objects.store import Buffer, ObjectStore, Range
from stratalog.scan.errors import SnapshotGoneError
from stratalog.scan.extents import Extent, RowExtent, SegmentExtent
from stratalog.scan.model import ScanSplit, Stretch
from stratalog.scan.scan_stores import (
    FETCH_BYTES,
    MAPPED_FETCH_BYTES,
    ScanStores,
    reads_files,
)
from stratalog.segment.chunk_index import chunks_between
from stratalog.segment.offset_index import OffsetIndex
from stratalog.segment.open_segment import OpenSegment
from stratalog.segment.thread_offload import offload

AHEAD_BYTES = 64 * 1024 * 1024
_LEAST_AHEAD = 2
"""The least number of fetches in progress, however large: one to be decoded next, and one more."""
_LOOK_AHEAD = 8
"""The number of segments that are opened, and whose indexes are read, before their turn."""


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """An extent, and the stretch that it belongs to."""

    stretch: Stretch
    extent: Extent

    @property
    def object_key(self) -> str:
        return self.extent.object_key


class _ChunkRun(NamedTuple):
    """Consecutive chunks of a segment that must be decoded, and the wanted bytes of the log."""

    log: OpenSegment
    chunks: range
    start: int
    end: int


class FetchRange(NamedTuple):
    """Bytes of an extent that are fetched with one request, or with one range of it."""

    source: Source
    store: ObjectStore
    key: str
    stored: Range
    position: int
    """The position of the first byte in the object or, for a segment, in its log."""
    is_last: bool
    """True for the last range of the extent."""
    fetch_bytes: int
    """The most bytes of such ranges that are fetched together."""
    run: _ChunkRun | None = None

    @property
    def size_bytes(self) -> int:
        return self.stored.end - self.stored.start

    @property
    def held_bytes(self) -> int:
        """The bytes in memory once the range is fetched and, if it must be, decoded."""
        return self.size_bytes if self.run is None else self.run.end - self.run.start


def fetched(split: ScanSplit, stores: ScanStores) -> Generator[tuple[FetchRange, memoryview]]:
    """Yield the ranges of all extents with their bytes, in order.

    Closing the generator cancels the requests that are in progress.
    """
    groups = _grouped(_ranges_of(split, stores))
    waiting: deque[tuple[Sequence[FetchRange], Future[list[memoryview]]]] = deque()
    held_bytes = 0
    try:
        while True:
            while (held_bytes < AHEAD_BYTES or len(waiting) < _LEAST_AHEAD) and (
                more := next(groups, None)
            ):
                waiting.append((more, stores.background.submit(_fetch(more, stores))))
                held_bytes += _held_bytes(more)
            if not waiting:
                return
            group, future = waiting.popleft()
            yield from zip(group, future.result(), strict=True)
            held_bytes -= _held_bytes(group)
    finally:
        for _, future in waiting:
            future.cancel()
        groups.close()


def _held_bytes(group: Sequence[FetchRange]) -> int:
    return sum(one.held_bytes for one in group)


def _grouped(ranges: Iterator[FetchRange]) -> Generator[list[FetchRange]]:
    group: list[FetchRange] = []
    share = 0.0
    for one in ranges:
        own_share = one.held_bytes / one.fetch_bytes
        if group and share + own_share > 1:
            yield group
            group, share = [], 0.0
        group.append(one)
        share += own_share
    if group:
        yield group


def _ranges_of(split: ScanSplit, stores: ScanStores) -> Iterator[FetchRange]:
    sources = (Source(stretch, extent) for stretch in split.stretches for extent in stretch.extents)
    for source, opening in _opened_ahead(sources, stores):
        if opening is not None:
            yield from _log_ranges(source, *opening.result())
        else:
            assert isinstance(source.extent, RowExtent), "only segments need to be opened"
            yield from _row_ranges(source, source.extent, stores)


_Opening: TypeAlias = Future[tuple[OpenSegment, int, int]] | None


def _opened_ahead(
    sources: Iterator[Source], stores: ScanStores
) -> Iterator[tuple[Source, _Opening]]:
    """Yield the sources in order, while some of the segments after them are being opened."""
    ahead: deque[tuple[Source, _Opening]] = deque()
    try:
        for source in sources:
            extent = source.extent
            opening: _Opening = None
            if isinstance(extent, SegmentExtent):
                opening = stores.background.submit(_open(extent, stores))
            ahead.append((source, opening))
            if len(ahead) > _LOOK_AHEAD:
                yield ahead.popleft()
        while ahead:
            yield ahead.popleft()
    finally:
        for _, opening in ahead:
            if opening is not None:
                opening.cancel()


async def _open(extent: SegmentExtent, stores: ScanStores) -> tuple[OpenSegment, int, int]:
    """Return the segment, and the positions in its log at which the extent begins and ends."""
    log = await stores.segments.open(extent.segment)
    if extent.exact and extent.cut_end is None:
        return log, extent.start, extent.end
    try:
        async with stores.requests:
            index = await stores.indexes.offset_index(extent.segment)
    except ObjectNotFoundError as error:
        raise _gone(log.store, log.indexes_key) from error
    if extent.cut_end is not None:
        return log, *_bytes_between(extent, index, extent.cut_end)
    size_bytes = extent.segment.size_bytes
    start = index.entry_from(extent.start, size_bytes)
    return log, start, index.entry_from(extent.end, size_bytes)


def _bytes_between(extent: SegmentExtent, index: OffsetIndex, end: Offset) -> tuple[int, int]:
    start_byte = max(extent.start, index.lookup(extent.first_offset))
    end_byte = index.span(Offset(end - 1))[1]
    return start_byte, extent.end if end_byte is None else min(extent.end, end_byte)


def _fetch_bytes(store: ObjectStore, size_bytes: int) -> int:
    is_mapped = reads_files(store) and worth_mapping(size_bytes)
    return MAPPED_FETCH_BYTES if is_mapped else FETCH_BYTES


def _ranges(start: int, end: int, fetch_bytes: int) -> Iterator[Range]:
    """Yield equal ranges, as many as there are whole fetches.

    A small rest would cost a request of its own, and the fixed work of each range.
    """
    if start < end:
        step = -(-(end - start) // max(1, (end - start) // fetch_bytes))
        for position in range(start, end, step):
            yield Range(position, min(position + step, end))


def _row_ranges(source: Source, extent: RowExtent, stores: ScanStores) -> Iterator[FetchRange]:
    store, key, start = stores.objects, extent.object_key, extent.byte_offset
    end = start + extent.byte_size
    fetch_bytes = _fetch_bytes(store, extent.byte_size)
    for stored in _ranges(start, end, fetch_bytes):
        yield FetchRange(source, store, key, stored, stored.start, stored.end == end, fetch_bytes)


def _log_ranges(source: Source, log: OpenSegment, start: int, end: int) -> Iterator[FetchRange]:
    if log.is_plain:
        store, key = log.store, log.log_key
        fetch_bytes = _fetch_bytes(store, end - start)
        for stored in _ranges(start, end, fetch_bytes):
            yield FetchRange(
                source, store, key, stored, stored.start, stored.end == end, fetch_bytes
            )
        return
    chunks = chunks_between(log.chunks, start, end)
    step = max(1, FETCH_BYTES // log.chunks.chunk_bytes)
    for first in range(chunks.start, chunks.stop, step):
        run = range(first, min(first + step, chunks.stop))
        held = log.original_range(run)
        wanted = _ChunkRun(log, run, max(start, held.start), min(end, held.end))
        stored = Range(log.chunks.stored_range(run[0]).start, log.chunks.stored_range(run[-1]).end)
        is_last = run.stop == chunks.stop
        key, at = log.log_key, wanted.start
        yield FetchRange(source, log.store, key, stored, at, is_last, FETCH_BYTES, wanted)


async def _fetch(group: Sequence[FetchRange], stores: ScanStores) -> list[memoryview]:
    """Return the bytes of each range. Ranges of one object are requested together."""
    by_object: dict[tuple[int, str], list[int]] = defaultdict(list)
    for number, one in enumerate(group):
        by_object[id(one.store), one.key].append(number)
    answers = [memoryview(b"")] * len(group)

    async def read(numbers: Sequence[int]) -> None:
        first = group[numbers[0]]
        async with stores.requests:
            ranges = [group[number].stored for number in numbers]
            buffers = await _get_ranges(first.store, first.key, ranges)
        for number, buffer in zip(numbers, buffers, strict=True):
            run = group[number].run
            answers[number] = memoryview(buffer if run is None else await _decoded(run, buffer))

    await asyncio.gather(*map(read, by_object.values()))
    return answers


async def _get_ranges(store: ObjectStore, key: str, ranges: Sequence[Range]) -> list[Buffer]:
    try:
        return await store.get_ranges(key, ranges, mapped=True)
    except ObjectNotFoundError as error:
        raise _gone(store, key) from error


def _gone(store: ObjectStore, key: str) -> SnapshotGoneError:
    return SnapshotGoneError(
        f"object {key} is not in {store.url}: most likely the snapshot's lease has ended, which"
        " kept it, or storage.objects in the settings (for segments, remote.objects) is not this"
        " cluster's store. Plan the scan again: a DataFrame keeps the snapshot of its first action,"
        " so call load() again, or create the view again. If a scan takes that long, give it more"
        " time with scan.lease_ms in the settings (leaseMs as an option of Spark)"
    )


async def _decoded(run: _ChunkRun, stored: Buffer) -> Buffer:
    return await offload(len(stored), _decode_chunks, run, memoryview(stored))


def _decode_chunks(run: _ChunkRun, stored: memoryview) -> Buffer:
    chunks = run.log.chunks
    began = chunks.stored_range(run.chunks[0]).start
    parts: list[Buffer] = []
    for chunk in run.chunks:
        bytes_range, held = chunks.stored_range(chunk), chunks.original_range(chunk)
        data = run.log.decode(chunk, stored[bytes_range.start - began : bytes_range.end - began])
        start, end = max(run.start - held.start, 0), run.end - held.start
        parts.append(memoryview(data)[start:end])
    return parts[0] if len(parts) == 1 else b"".join(parts)
