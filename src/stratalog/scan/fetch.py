"""The bytes of a split, in order, fetched ahead of whoever decodes them.

The consumer asks for more whenever it takes something, so that a bounded number of bytes is on its
way or waiting, however slow it is. Rows that lie in one object are read together, also those of
different partitions: thin partitions would otherwise cost a request each.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from stratalog.ids import Offset
from stratalog.objects.mapped import worth_mapping
from stratalog.objects.store import Buffer, ObjectNotFoundError, ObjectStore, Range
from stratalog.scan.errors import SnapshotGoneError
from stratalog.scan.model import RowPiece, ScanSplit, SegmentPiece, Stretch
from stratalog.scan.opened_place import (
    FETCH_BYTES,
    MAPPED_FETCH_BYTES,
    OpenPlace,
    reads_files,
)
from stratalog.segment.chunks import chunks_between
from stratalog.segment.keys import LOG_SUFFIX
from stratalog.segment.offload import offload
from stratalog.segment.offset_index import OffsetIndex
from stratalog.segment.open_segment import OpenSegment

AHEAD_BYTES = 64 * 1024 * 1024
_LEAST_AHEAD = 2
"""Fetches, however large: one to be decoded, and the next."""
_LOOK_AHEAD = 8
"""Segments that are opened, and whose indexes are read, before their turn."""


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A piece, and the stretch that it is of."""

    stretch: Stretch
    piece: RowPiece | SegmentPiece

    @property
    def object_key(self) -> str:
        if isinstance(self.piece, RowPiece):
            return self.piece.object_key
        return self.piece.segment.key_base + LOG_SUFFIX


class _ChunkRun(NamedTuple):
    """Chunks that must be decoded, and which bytes of the log are wanted of them."""

    log: OpenSegment
    chunks: range
    start: int
    end: int


class Part(NamedTuple):
    """Bytes that come with one request, or with one range of it."""

    source: Source
    store: ObjectStore
    key: str
    stored: Range
    position: int
    """Of the object or, of a segment, of its log, at which the bytes begin."""
    is_last: bool
    """Of its piece."""
    fetch_bytes: int
    """How much like it is fetched together."""
    run: _ChunkRun | None = None

    @property
    def size_bytes(self) -> int:
        return self.stored.end - self.stored.start

    @property
    def held_bytes(self) -> int:
        """Once it is fetched, and decoded if it must be."""
        return self.size_bytes if self.run is None else self.run.end - self.run.start


def fetched(split: ScanSplit, place: OpenPlace) -> Generator[tuple[Part, memoryview]]:
    """The parts of all pieces, in order. Whatever is under way is given up when this is closed."""
    groups = _grouped(_parts(split, place))
    waiting: deque[tuple[Sequence[Part], Future[list[memoryview]]]] = deque()
    held_bytes = 0
    try:
        while True:
            while (held_bytes < AHEAD_BYTES or len(waiting) < _LEAST_AHEAD) and (
                more := next(groups, None)
            ):
                waiting.append((more, place.background.submit(_fetch(more, place))))
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


def _held_bytes(group: Sequence[Part]) -> int:
    return sum(part.held_bytes for part in group)


def _grouped(parts: Iterator[Part]) -> Generator[list[Part]]:
    group: list[Part] = []
    share = 0.0
    for part in parts:
        part_share = part.held_bytes / part.fetch_bytes
        if group and share + part_share > 1:
            yield group
            group, share = [], 0.0
        group.append(part)
        share += part_share
    if group:
        yield group


def _parts(split: ScanSplit, place: OpenPlace) -> Iterator[Part]:
    sources = (Source(stretch, piece) for stretch in split.stretches for piece in stretch.pieces)
    for source, opening in _opened_ahead(sources, place):
        if opening is None:
            yield from _row_parts(source, place)
        else:
            yield from _log_parts(source, *opening.result())


_Opening: TypeAlias = Future[tuple[OpenSegment, int, int]] | None


def _opened_ahead(sources: Iterator[Source], place: OpenPlace) -> Iterator[tuple[Source, _Opening]]:
    """Sources in order, some of the segments behind them being opened meanwhile."""
    ahead: deque[tuple[Source, _Opening]] = deque()
    try:
        for source in sources:
            piece = source.piece
            opening: _Opening = None
            if isinstance(piece, SegmentPiece):
                opening = place.background.submit(_open(piece, place))
            ahead.append((source, opening))
            if len(ahead) > _LOOK_AHEAD:
                yield ahead.popleft()
        while ahead:
            yield ahead.popleft()
    finally:
        for _, opening in ahead:
            if opening is not None:
                opening.cancel()


async def _open(piece: SegmentPiece, place: OpenPlace) -> tuple[OpenSegment, int, int]:
    """The segment, and where in its log the piece begins and ends."""
    log = await place.segments.open(piece.segment)
    if piece.exact and piece.end_offset is None:
        return log, piece.start, piece.end
    try:
        async with place.requests:
            index = await place.indexes.offset_index(piece.segment)
    except ObjectNotFoundError as error:
        raise _gone(log.store, log.indexes_key) from error
    if piece.end_offset is not None:
        return log, *_bytes_between(piece, index, piece.end_offset)
    size_bytes = piece.segment.size_bytes
    start = index.entry_from(piece.start, size_bytes)
    return log, start, index.entry_from(piece.end, size_bytes)


def _bytes_between(piece: SegmentPiece, index: OffsetIndex, end: Offset) -> tuple[int, int]:
    start_byte = max(piece.start, index.lookup(piece.first_offset))
    end_byte = index.span(Offset(end - 1))[1]
    return start_byte, piece.end if end_byte is None else min(piece.end, end_byte)


def _fetch_bytes(store: ObjectStore, size_bytes: int) -> int:
    is_mapped = reads_files(store) and worth_mapping(size_bytes)
    return MAPPED_FETCH_BYTES if is_mapped else FETCH_BYTES


def _ranges(start: int, end: int, fetch_bytes: int) -> Iterator[Range]:
    """As many as there are whole fetches, the same for all: a small rest costs a request, and
    everything that is done once for each."""
    if start < end:
        step = -(-(end - start) // max(1, (end - start) // fetch_bytes))
        for position in range(start, end, step):
            yield Range(position, min(position + step, end))


def _row_parts(source: Source, place: OpenPlace) -> Iterator[Part]:
    piece = source.piece
    assert isinstance(piece, RowPiece)
    store, key, start = place.objects, piece.object_key, piece.byte_offset
    end = start + piece.byte_size
    fetch_bytes = _fetch_bytes(store, piece.byte_size)
    for stored in _ranges(start, end, fetch_bytes):
        yield Part(source, store, key, stored, stored.start, stored.end == end, fetch_bytes)


def _log_parts(source: Source, log: OpenSegment, start: int, end: int) -> Iterator[Part]:
    if log.is_plain:
        store, key = log.store, log.log_key
        fetch_bytes = _fetch_bytes(store, end - start)
        for stored in _ranges(start, end, fetch_bytes):
            yield Part(source, store, key, stored, stored.start, stored.end == end, fetch_bytes)
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
        yield Part(source, log.store, key, stored, at, is_last, FETCH_BYTES, wanted)


async def _fetch(group: Sequence[Part], place: OpenPlace) -> list[memoryview]:
    """The bytes of each part. Those in one object are asked for together."""
    by_object: dict[tuple[int, str], list[int]] = defaultdict(list)
    for number, part in enumerate(group):
        by_object[id(part.store), part.key].append(number)
    answers = [memoryview(b"")] * len(group)

    async def read(numbers: Sequence[int]) -> None:
        first = group[numbers[0]]
        async with place.requests:
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
        " cluster's store. Plan the scan anew: a DataFrame keeps the snapshot of its first action,"
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
        place, held = chunks.stored_range(chunk), chunks.original_range(chunk)
        data = run.log.decode(chunk, stored[place.start - began : place.end - began])
        start, end = max(run.start - held.start, 0), run.end - held.start
        parts.append(memoryview(data)[start:end])
    return parts[0] if len(parts) == 1 else b"".join(parts)
