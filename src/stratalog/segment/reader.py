"""The read path of the remote tier: from segments to record batches.

A read finds its position by the offset index, or knows it from the read before. Then it requests
the bytes that can answer it, with one request for each segment. For a consumer that reads on, more
bytes are read ahead. The CRC of every answered batch is checked. Damage of one segment ends the
answer of its partition, after the good batches before it. Other partitions are not affected.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from stratalog.batch.header import HEADER_BYTES
from stratalog.control.segments.model import Segment
from stratalog.errors import DamagedError, StratalogError
from stratalog.ids import Offset
from stratalog.metrics import Metrics
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.objects.store import Buffer
from stratalog.pieces import PiecesRead, PiecesWanted, Start, TimedRecord
from stratalog.segment.aborted_transactions import find_aborted
from stratalog.segment.byte_cache import ByteCache
from stratalog.segment.errors import IndexDamagedError, IndexObjectDamagedError
from stratalog.segment.index_bytes import IndexBytes
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.log_batches import BatchAnswer, BatchQuery, Stop, select_batches
from stratalog.segment.log_bytes import ChunkKey, LogBytes, LogRead
from stratalog.segment.model import AbortedTransaction, IndexKind
from stratalog.segment.offset_index import OffsetIndex
from stratalog.segment.open_segment import PLAIN_CHUNK_BYTES
from stratalog.segment.open_segment_cache import OpenSegmentCache
from stratalog.segment.read_metrics import ReadMetrics
from stratalog.segment.read_plan import (
    FIRST_LOOK_BYTES,
    MOST_LOOK_BYTES,
    Cursor,
    LogSpan,
    plan_spans,
    spans_after,
)
from stratalog.segment.sequential_reads import LogPosition, SequentialReads
from stratalog.segment.stores import SegmentStores
from stratalog.segment.thread_offload import offload
from stratalog.segment.times import TimeSearch
from stratalog.settings import RemoteSettings

_OPEN_SHARE = Fraction(1, 8)
"""The share of the index cache for manifests."""
_YOUNG_SHARE = Fraction(1, 2)
"""The share of the chunk cache for chunks that are read ahead and not known to be read again."""
_PLAIN_SHARE = Fraction(1, 4)
"""The most of the chunk cache for one chunk of a plain log, whose chunks may have any size."""
_LEAST_CHUNK_BYTES = 64 * 1024
_READS_AT_ONCE = 32
"""The most reads in progress, others wait: each may hold chunks of which it needs few batches."""
_COPIED_BYTES = 256 * 1024
"""A smaller answer is copied: otherwise it would keep its whole chunk in memory until it is
sent."""


_FIRST_BYTES = 1 << 20
"""The bytes that the first batch of a segment counts for in a budget. Its size is not known before
it is read; rows are coalesced to this size, and hardly any topic takes larger batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentStart(Start):
    cursor: Cursor


class SegmentReader:
    stale_errors: ClassVar[tuple[type[StratalogError], ...]] = (
        ObjectNotFoundError,
        # Indexes that do not fit their row may just have been repaired.
        IndexObjectDamagedError,
        IndexDamagedError,
    )

    def __init__(
        self,
        *,
        stores: SegmentStores,
        keys: KeyRing,
        settings: RemoteSettings,
        metrics: Metrics | None = None,
    ) -> None:
        counted = ReadMetrics(metrics or Metrics())
        chunks: ByteCache[ChunkKey, Buffer] = ByteCache(
            settings.chunk_cache_bytes, young_share=_YOUNG_SHARE
        )
        open_bytes = int(settings.index_cache_bytes * _OPEN_SHARE)
        self._opened = OpenSegmentCache(
            stores=stores,
            keys=keys,
            cache_bytes=open_bytes,
            plain_chunk_bytes=_plain_chunk_bytes(settings.chunk_cache_bytes),
        )
        self._indexes = IndexBytes(
            self._opened, cache_bytes=settings.index_cache_bytes - open_bytes, metrics=counted
        )
        self._logs = LogBytes(chunks, counted)
        self._times = TimeSearch(self._opened, self._indexes, self._logs)
        self._sequential = SequentialReads(chunks.young_bytes)
        self._read_ahead_bytes = settings.read_ahead_bytes
        self._turns = asyncio.Semaphore(_READS_AT_ONCE)

    async def locate(self, wanted: Sequence[PiecesWanted[Segment]]) -> list[Start | StratalogError]:
        """Find the position in the log at which each read begins. Each fails alone."""
        return list(await asyncio.gather(*map(self._locate, wanted)))

    async def read(self, wanted: Sequence[PiecesWanted[Segment]]) -> list[PiecesRead]:
        """Read each partition's batches, from the one that holds its offset. Each fails alone."""
        return list(await asyncio.gather(*map(self._read_one, wanted)))

    async def index(self, segment: Segment, kind: IndexKind) -> bytes:
        """Return an index as the file that Kafka would write. Empty if the segment has none."""
        return await self._indexes.read(segment, kind)

    async def first_at_time(
        self, segment: Segment, timestamp: int, log_start: Offset
    ) -> TimedRecord | None:
        """Find the first record that is not older than asked, and not deleted."""
        return await self._times.first(segment, timestamp, log_start)

    async def newest(self, segment: Segment, log_start: Offset) -> TimedRecord | None:
        """Find the first record with the greatest timestamp that is not deleted."""
        return await self._times.newest(segment, log_start)

    async def aborted(
        self, segments: AsyncIterator[Segment] | Sequence[Segment], first: Offset, end: Offset
    ) -> list[AbortedTransaction]:
        """Find the aborted transactions with records in `[first, end)` of consecutive segments."""
        return await find_aborted(self._indexes, segments, first, end)

    async def close(self) -> None:
        await self._logs.close()
        await self._indexes.close()
        await self._opened.close()

    async def _locate(self, want: PiecesWanted[Segment]) -> Start | StratalogError:
        try:
            cursor = await self._find(want.pieces[0], want.offset)
        except StratalogError as error:
            return error
        # At least 1, because the segments hold the offset.
        size_bytes = max(1, sum(one.size_bytes for one in want.pieces) - cursor.position)
        return SegmentStart(
            size_bytes=size_bytes,
            first_bytes=min(size_bytes, _FIRST_BYTES),
            is_estimate=True,
            cursor=cursor,
        )

    async def _read_one(self, want: PiecesWanted[Segment]) -> PiecesRead:
        answer = PiecesRead(next_offset=want.offset)
        try:
            async with self._turns:
                cursor: Cursor | None
                if isinstance(want.start, SegmentStart):
                    cursor = want.start.cursor
                else:
                    cursor = await self._find(want.pieces[0], want.offset)
                while cursor is not None:
                    cursor = await self._read_from(cursor, want, answer)
        except StratalogError as error:
            answer.error = error
        return answer

    async def _find(self, segment: Segment, offset: Offset) -> Cursor:
        """Find the position of an offset, from the read that ended there or by the index."""
        assert segment.base_offset <= offset <= segment.last_offset, "another segment holds it"
        end = self._sequential.position(segment.topic_partition, offset)
        position = 0
        if end is not None and end.segment_id == segment.segment_id:
            position = end.position
        elif offset != segment.base_offset:
            index = await self._indexes.offset_index(segment)
            position = index.lookup(offset)
            needed_bytes = _needed_bytes(index, segment, offset, position)
            return Cursor(number=0, position=position, expected=None, needed_bytes=needed_bytes)
        return Cursor(
            number=0,
            position=position,
            expected=offset,
            needed_bytes=self._first_look_bytes(segment, offset, position),
            reads_on=end is not None,
        )

    def _first_look_bytes(self, segment: Segment, offset: Offset, position: int) -> int:
        """Return the bytes to request at a known position. A cached index gives a better bound."""
        index = self._indexes.cached_offset_index(segment)
        if index is None:
            return FIRST_LOOK_BYTES
        return _needed_bytes(index, segment, offset, position)

    async def _read_from(
        self, cursor: Cursor, want: PiecesWanted[Segment], answer: PiecesRead
    ) -> Cursor | None:
        """Read on into the answer. Returns a cursor if its first batch is still to be found."""
        spans = plan_spans(want.pieces, cursor, want.max_bytes)
        if cursor.reads_on and self._read_ahead_bytes:
            await self._read_ahead(want.pieces, spans)
        reads = await asyncio.gather(*(self._read_span(want.pieces, span) for span in spans))
        reads[0] = await self._less_if_damaged(want.pieces, cursor, spans[0], reads[0])
        expected = cursor.expected
        for span, read in zip(spans, reads, strict=True):
            segment = want.pieces[span.number]
            selected = await self._select(want, answer, span, read, expected)
            _take(answer, selected.part)
            answer.error = selected.error
            if answer.error is None and selected.stop is not Stop.FULL:
                answer.error = read.error
            if selected.error is not None:
                await self._forget(segment, span)
            if selected.position < segment.size_bytes or answer.error is not None:
                return self._stopped(span.number, segment, selected, answer)
            answer.next_offset = expected = segment.end_offset
            self._remember(segment, selected, answer)
        if span.number + 1 == len(want.pieces):
            answer.ended = True
            return None
        return None if answer.parts else _at_segment(want.pieces, span.number + 1)

    def _stopped(
        self, number: int, segment: Segment, selected: BatchAnswer, answer: PiecesRead
    ) -> Cursor | None:
        """Handle a stop inside a segment. Without any batch yet, the read must go on."""
        if answer.parts:
            answer.next_offset = max(answer.next_offset, selected.next_offset)
            self._remember(segment, selected, answer)
        if answer.parts or answer.error is not None:
            return None
        # Unless the header of the batch was seen, its distance is not known.
        in_sight = selected.needed_bytes > HEADER_BYTES
        return Cursor(
            number=number,
            position=selected.position,
            expected=selected.next_offset,
            needed_bytes=selected.needed_bytes if in_sight else MOST_LOOK_BYTES,
        )

    def _remember(self, segment: Segment, selected: BatchAnswer, answer: PiecesRead) -> None:
        position = LogPosition(segment.segment_id, selected.position)
        self._sequential.ended(segment.topic_partition, answer.next_offset, position)

    async def _select(
        self,
        want: PiecesWanted[Segment],
        answer: PiecesRead,
        span: LogSpan,
        read: LogRead,
        expected: Offset | None,
    ) -> BatchAnswer:
        segment = want.pieces[span.number]
        query = BatchQuery(
            segment=segment,
            offset=max(want.offset, segment.base_offset),
            max_bytes=want.max_bytes - answer.size_bytes,
            at_least_one=not answer.parts,
        )
        return await offload(
            read.size_bytes, select_batches, read.parts, span.start, query, expected=expected
        )

    async def _read_span(self, segments: Sequence[Segment], span: LogSpan) -> LogRead:
        try:
            log = await self._opened.open(segments[span.number])
        except StratalogError as error:
            return LogRead(error=error)
        began = span.start - span.before_bytes
        return await self._logs.read(log, span.start, span.end, began=began)

    async def _forget(self, segment: Segment, span: LogSpan) -> None:
        """Drop damaged bytes from the caches, so that a repair takes effect without a restart."""
        self._indexes.forget(segment)
        self._logs.forget(await self._opened.open(segment), span.start, span.end)

    async def _less_if_damaged(
        self, segments: Sequence[Segment], cursor: Cursor, span: LogSpan, read: LogRead
    ) -> LogRead:
        """Read less after damage: bytes before the cut of a truncated object are readable."""
        end = cursor.position + cursor.needed_bytes
        if not isinstance(read.error, DamagedError) or read.parts or span.end <= end:
            return read
        return await self._read_span(segments, span._replace(end=end))

    async def _read_ahead(self, segments: Sequence[Segment], spans: Sequence[LogSpan]) -> None:
        """Fetch the wanted bytes and the next ones in the background, chunk by chunk."""
        room_bytes = self._sequential.reads_on(segments[0].topic_partition)
        # Half of the space is for the bytes that are being read now.
        ahead_bytes = min(self._read_ahead_bytes, room_bytes // 2)
        for span in (*spans, *spans_after(segments, spans[-1], ahead_bytes)):
            try:
                log = await self._opened.open(segments[span.number])
            except StratalogError:
                return
            fits = log.chunks.chunk_bytes <= room_bytes
            if not fits or not self._logs.read_ahead(log, span.start, span.end):
                return


def _take(answer: PiecesRead, part: memoryview) -> None:
    if len(part):
        small = len(part) < _COPIED_BYTES
        answer.parts.append(memoryview(bytes(part)) if small else part)
        answer.size_bytes += len(part)


def _needed_bytes(index: OffsetIndex, segment: Segment, offset: Offset, position: int) -> int:
    """Return the bytes to read from a position on to have the batch that holds the offset."""
    _, sure_end = index.span(offset)
    end = segment.size_bytes if sure_end is None else sure_end
    return min(max(end - position, 1), MOST_LOOK_BYTES)


def _plain_chunk_bytes(cache_bytes: int) -> int:
    """Return a chunk size of which the cache takes several, unless it is too small for any."""
    fitting = int(cache_bytes * _PLAIN_SHARE)
    if fitting < _LEAST_CHUNK_BYTES:
        return PLAIN_CHUNK_BYTES
    return min(PLAIN_CHUNK_BYTES, fitting)


def _at_segment(segments: Sequence[Segment], number: int) -> Cursor:
    return Cursor(number=number, position=0, expected=segments[number].base_offset)
