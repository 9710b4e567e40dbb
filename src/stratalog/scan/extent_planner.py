"""Planning of the extents that hold a range of a partition, narrowed where that pays."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from stratalog.batch.columns import BatchRun
from stratalog.batch.header import TimestampType
from stratalog.block.batch_index import BatchIndex, joined
from stratalog.control.log.model import Coordinates
from stratalog.control.scans.model import ScannedPartition
from stratalog.control.segments.model import Segment
from stratalog.ids import Offset
from stratalog.pieces import Piece
from stratalog.scan.errors import ScanDamagedError
from stratalog.scan.extents import Extent, RowExtent, SegmentExtent
from stratalog.scan.model import RowFilter, ScannedRange
from stratalog.segment.model import IndexKind
from stratalog.segment.offset_index import OffsetIndex
from stratalog.segment.reader import SegmentReader
from stratalog.segment.time_index import TimeIndex

NARROWED_BYTES = 1024 * 1024
"""Segments up to this size are read whole: one request for an index costs about as much."""

NARROWED_ROW_BYTES = 64 * 1024
"""Rows with fewer unwanted bytes than about this are read whole, for the same reason."""


class _WantedSegment(NamedTuple):
    """A segment, and the range that is wanted of it."""

    segment: Segment
    first_offset: Offset
    end_offset: Offset
    first_timestamp_ms: int | None


async def extents_of(
    reader: SegmentReader,
    index: BatchIndex,
    scanned: ScannedPartition,
    wanted: ScannedRange,
    rows: RowFilter,
) -> list[Extent]:
    """Return the extents in offset order. Rows are not joined yet, so that splits divide them."""
    if wanted.start >= wanted.end:
        return []
    _check_whole(scanned, wanted)
    extents: list[Extent] = []
    for one in _wanted_segments(scanned.segments, wanted, rows):
        extent = await _segment_extent(reader, one)
        if extent is not None:
            extents.append(extent)
    for row in _rows(scanned.rows, wanted, rows):
        extents.append(_row_extent(await _narrowed(index, row, wanted)))
    return extents


def _check_whole(scanned: ScannedPartition, wanted: ScannedRange) -> None:
    """Raise if an offset is missing. That is damage: a scan never skips to later offsets."""
    expected = wanted.start
    for piece in scanned.pieces:
        if piece.base_offset > expected or expected >= wanted.end:
            break
        expected = max(expected, piece.end_offset)
    if expected < wanted.end:
        raise ScanDamagedError(
            f"{wanted.topic}-{wanted.partition} has no record batch for offset {expected}, which"
            f" lies before its end at {wanted.high_watermark}: run `stratalog fsck`"
        )


def _wanted_segments(
    segments: Sequence[Segment], wanted: ScannedRange, rows: RowFilter
) -> list[_WantedSegment]:
    """Return the segments that hold wanted records, each from the end of the one before it."""
    found: list[_WantedSegment] = []
    first_offset = wanted.start
    least: int | None = None
    for segment in segments:
        first = max(first_offset, segment.base_offset)
        end = min(wanted.end, segment.end_offset)
        first_offset = max(first_offset, segment.end_offset)
        if first >= end or _is_older(segment, rows) or _is_younger(segment, rows):
            continue
        # Where times grow with the offsets, all segments after the first wanted one are wanted
        # from their beginning. A segment with an earlier greatest time shows that segments before
        # it only looked young, by a few times far ahead. It may hold the true beginning.
        is_narrowed = least is None or segment.max_timestamp < least
        first_ms = rows.first_timestamp_ms if is_narrowed else None
        found.append(_WantedSegment(segment, first, end, first_ms))
        least = segment.max_timestamp if is_narrowed else least
    return found


def _is_older(piece: Piece, rows: RowFilter) -> bool:
    first_ms = rows.first_timestamp_ms
    return first_ms is not None and piece.max_timestamp < first_ms


def _is_younger(segment: Segment, rows: RowFilter) -> bool:
    end_ms, least = rows.end_timestamp_ms, segment.min_timestamp
    return end_ms is not None and least is not None and least >= end_ms


async def _segment_extent(reader: SegmentReader, wanted: _WantedSegment) -> SegmentExtent | None:
    segment, first, end, first_ms = wanted
    start_byte, end_byte = 0, segment.size_bytes
    if segment.size_bytes > NARROWED_BYTES:
        narrowed = first
        if first_ms is not None:
            index = await reader.index(segment, IndexKind.TIMESTAMP)
            times = TimeIndex(index, segment.base_offset)
            narrowed = max(first, times.lookup(first_ms))
        if narrowed >= end:
            return None
        if narrowed > segment.base_offset or end < segment.end_offset:
            start_byte, end_byte = await _bytes_between(reader, segment, narrowed, end)
    return SegmentExtent(
        segment=segment, start=start_byte, end=end_byte, exact=True, first_offset=first
    )


async def _bytes_between(
    reader: SegmentReader, segment: Segment, first: Offset, end: Offset
) -> tuple[int, int]:
    index = OffsetIndex(await reader.index(segment, IndexKind.OFFSET), segment.base_offset)
    start_byte = 0 if first <= segment.base_offset else index.lookup(first)
    end_byte = None if end >= segment.end_offset else index.span(Offset(end - 1))[1]
    return start_byte, segment.size_bytes if end_byte is None else end_byte


def _rows(
    coordinates: Sequence[Coordinates], wanted: ScannedRange, rows: RowFilter
) -> list[Coordinates]:
    overlapping = [
        row
        for row in coordinates
        if row.last_offset >= wanted.start and row.base_offset < wanted.end
    ]
    younger = set(_too_young(overlapping, rows.end_timestamp_ms))
    return [
        row
        for number, row in enumerate(overlapping)
        if number not in younger and not _is_older(row, rows)
    ]


async def _narrowed(index: BatchIndex, row: Coordinates, wanted: ScannedRange) -> Coordinates:
    """Return the wanted part of a row. Only the first and the last row of a range hold more."""
    unwanted = max(wanted.start - row.base_offset, 0) + max(row.last_offset + 1 - wanted.end, 0)
    if row.byte_size * unwanted < NARROWED_ROW_BYTES * (row.last_offset + 1 - row.base_offset):
        return row
    return joined(
        [
            batch
            for batch in await index.batches(row)
            if batch.last_offset >= wanted.start and batch.base_offset < wanted.end
        ]
    )


def _too_young(rows: Sequence[Coordinates], end_ms: int | None) -> list[int]:
    """Return the numbers of the rows that are known to hold no record before this time.

    Only the broker's times grow with the offsets. A row in a split file may hold several commits:
    the row before it shows how old its first record can be.
    """
    if end_ms is None or not rows:
        return []
    young = [0] if _is_of_one_time(rows[0]) and rows[0].max_timestamp >= end_ms else []
    for number, (before, row) in enumerate(pairwise(rows), 1):
        if row.timestamp_type is not TimestampType.LOG_APPEND_TIME:
            continue
        grows = before.timestamp_type is TimestampType.LOG_APPEND_TIME
        if (grows and before.max_timestamp >= end_ms) or (
            _is_of_one_time(row) and row.max_timestamp >= end_ms
        ):
            young.append(number)
    return young


def _is_of_one_time(row: Coordinates) -> bool:
    return row.timestamp_type is TimestampType.LOG_APPEND_TIME and not row.stamped


def _row_extent(row: Coordinates) -> RowExtent:
    return RowExtent(
        object_key=row.object_key,
        byte_offset=row.byte_offset,
        byte_size=row.byte_size,
        run=_run_of(row),
        last_offset=row.last_offset,
    )


def _run_of(row: Coordinates) -> BatchRun:
    if row.stamped:
        return BatchRun(row.base_offset)
    stamps_time = row.timestamp_type is TimestampType.LOG_APPEND_TIME
    return BatchRun(
        row.base_offset,
        stamped=False,
        leader_epoch=row.leader_epoch,
        append_time_ms=row.committed_ms if stamps_time else None,
    )
