"""Stretches divided into splits of about the same size. Pure.

All that is to be read is laid end to end, by topic, partition and offset, and cut into equal
parts. A segment is cut where the part ends; a row, which cannot be, goes where its middle is. So
a thick partition is read by many tasks, and thousands of thin ones by few. Where that gives too few
splits, or too many records in one, offsets are counted instead (see `offset_cuts.py`).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from stratalog.batch.columns import AbortedRecords
from stratalog.scan.model import Piece, RowPiece, ScanRequest, ScanSplit, SegmentPiece, Stretch
from stratalog.scan.offset_cuts import count_offsets, cut_by_offsets

LEAST_CUT_BYTES = 1024 * 1024
"""No less is cut off a segment, unless splits are small themselves: a cut costs a look into the
index."""

LEAST_SPLIT_BYTES = 256
"""No smaller ones are cut by bytes: they would hold no batch."""


def cut_into_splits(
    stretches: Sequence[Stretch], request: ScanRequest, split_bytes: int
) -> list[ScanSplit]:
    """Splits of `split_bytes` at the most, but for rows that are larger.

    There are as many as were asked for, if there are so many offsets, and none has more of those
    than it may.
    """
    total_bytes = sum(stretch.size_bytes for stretch in stretches)
    if not total_bytes:
        return []
    parts = _cut_by_bytes(stretches, request.min_splits, total_bytes, split_bytes)
    offsets = count_offsets(stretches)
    most = request.max_split_offsets or offsets
    if offsets > most or len(parts) < min(request.min_splits, offsets):
        cells = max(request.min_splits, -(-offsets // most))
        parts = list(cut_by_offsets(stretches, cells, split_bytes))
    return [
        ScanSplit(
            stretches=[replace(one, pieces=_joined(one.pieces)) for one in part],
            columns=tuple(request.columns),
            rows=request.rows,
        )
        for part in parts
    ]


def _cut_by_bytes(
    stretches: Sequence[Stretch], min_splits: int, total_bytes: int, split_bytes: int
) -> list[list[Stretch]]:
    asked = min(min_splits, total_bytes // LEAST_SPLIT_BYTES)
    count = max(asked, -(-total_bytes // split_bytes), 1)
    parts: dict[int, list[Stretch]] = defaultdict(list)
    position = 0
    for stretch in stretches:
        shares: dict[int, list[Piece]] = defaultdict(list)
        for piece in stretch.pieces:
            for number, share in _shares(piece, position, total_bytes, count):
                shares[number].append(share)
            position += piece.byte_size
        for number, pieces in shares.items():
            parts[number].append(_stretch(stretch, pieces))
    return [parts[number] for number in sorted(parts)]


def _shares(
    piece: Piece, position: int, total_bytes: int, count: int
) -> Iterator[tuple[int, Piece]]:
    """The piece's shares, each with the number of its split."""
    start = 0
    if isinstance(piece, SegmentPiece):
        least = min(LEAST_CUT_BYTES, total_bytes // count // 4)
        first = position * count // total_bytes + 1
        for number in range(first, count):
            cut = number * total_bytes // count - position
            if cut > piece.byte_size - max(least, 1):
                break
            if cut - start >= max(least, 1):
                yield (
                    _number(position + start, position + cut, total_bytes, count),
                    _cut(piece, start, cut),
                )
                start = cut
        piece = piece if start == 0 else _cut(piece, start, piece.byte_size)
    end = position + start + piece.byte_size
    yield _number(position + start, end, total_bytes, count), piece


def _number(start: int, end: int, total_bytes: int, count: int) -> int:
    """The split in which the middle lies."""
    return min((start + end) * count // (2 * total_bytes), count - 1)


def _cut(piece: SegmentPiece, start: int, end: int) -> SegmentPiece:
    return replace(piece, start=piece.start + start, end=piece.start + end, exact=False)


def _stretch(stretch: Stretch, pieces: Sequence[Piece]) -> Stretch:
    first = min(_first_offset(piece) for piece in pieces)
    last = max(_last_offset(piece) for piece in pieces)
    return replace(stretch, pieces=pieces, aborted=_overlapping(stretch.aborted, first, last))


def _overlapping(
    aborted: Sequence[AbortedRecords], first: int, last: int
) -> tuple[AbortedRecords, ...]:
    return tuple(one for one in aborted if one.first_offset <= last and one.last_offset >= first)


def _first_offset(piece: Piece) -> int:
    return piece.run.base_offset if isinstance(piece, RowPiece) else piece.first_offset


def _last_offset(piece: Piece) -> int:
    return piece.last_offset if isinstance(piece, RowPiece) else piece.segment.last_offset


def _joined(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Neighbours that lie side by side become one, and are read and decoded as one."""
    runs: list[list[Piece]] = []
    for piece in pieces:
        if runs and _adjoin(runs[-1][-1], piece):
            runs[-1].append(piece)
        else:
            runs.append([piece])
    return tuple(run[0] if len(run) == 1 else _one(run) for run in runs)


def _adjoin(before: Piece, after: Piece) -> bool:
    return (
        isinstance(before, RowPiece)
        and isinstance(after, RowPiece)
        and before.object_key == after.object_key
        and before.byte_offset + before.byte_size == after.byte_offset
        and before.last_offset + 1 == after.run.base_offset
        and before.run[1:] == after.run[1:]
    )


def _one(run: Sequence[Piece]) -> Piece:
    first, last = run[0], run[-1]
    assert isinstance(first, RowPiece)
    assert isinstance(last, RowPiece)
    size_bytes = last.byte_offset + last.byte_size - first.byte_offset
    return replace(first, byte_size=size_bytes, last_offset=last.last_offset)
