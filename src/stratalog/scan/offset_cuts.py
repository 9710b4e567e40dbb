"""Stretches divided by offsets, for those who ask for so many records or so many splits. Pure.

Bytes cannot keep such a promise: a row is never cut by them, and nobody knows how many records lie
in so many bytes of a segment. So all offsets are laid end to end and cut into cells of the same
number of them. Two splits may share a piece, of which each gives its own offsets: a row is read by
both, and of a segment each reads what the offset index says.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from stratalog.ids import Offset
from stratalog.scan.model import Piece, RowPiece, Stretch


class _Share(NamedTuple):
    """Offsets of a piece."""

    stretch: Stretch
    piece: Piece
    first: int
    end: int

    @property
    def size_bytes(self) -> int:
        """What is read for it, about. A row is read whole."""
        if isinstance(self.piece, RowPiece):
            return self.piece.byte_size
        first = max(self.piece.first_offset, self.stretch.first_offset)
        held = min(self.piece.segment.end_offset, self.stretch.end_offset) - first
        return -(-self.piece.byte_size * (self.end - self.first) // held)

    def halves(self) -> "tuple[_Share, _Share]":
        middle = (self.first + self.end) // 2
        return self._replace(end=middle), self._replace(first=middle)


def count_offsets(stretches: Sequence[Stretch]) -> int:
    """Of those that pieces hold and that are wanted."""
    return sum(share.end - share.first for share in _shares(stretches))


def cut_by_offsets(
    stretches: Sequence[Stretch], cells: int, split_bytes: int
) -> Iterator[list[Stretch]]:
    """What each split reads: no more offsets than a cell has, and no more bytes than asked for, if
    that can be."""
    shares = list(_shares(stretches))
    for cell in _cells(shares, min(cells, count_offsets(stretches))):
        for split in _packed(cell, split_bytes):
            yield [_stretch(list(part)) for _, part in groupby(split, lambda share: id(share[0]))]


def _shares(stretches: Sequence[Stretch]) -> Iterator[_Share]:
    """Every piece begins where the one before it ended, should they overlap."""
    for stretch in stretches:
        first = int(stretch.first_offset)
        for piece in stretch.pieces:
            held_first, held_end = _held(piece)
            first, end = max(first, held_first), min(held_end, stretch.end_offset)
            if first < end:
                yield _Share(stretch, piece, first, end)
                first = end


def _held(piece: Piece) -> tuple[int, int]:
    if isinstance(piece, RowPiece):
        return piece.run.base_offset, piece.last_offset + 1
    return piece.first_offset, piece.segment.end_offset


def _cells(shares: Sequence[_Share], cells: int) -> Iterator[list[_Share]]:
    total = sum(share.end - share.first for share in shares)
    cell: list[_Share] = []
    number, position = 1, 0
    for share in shares:
        first = share.first
        while first < share.end:
            end = min(share.end, first + number * total // cells - position)
            cell.append(share._replace(first=first, end=end))
            position += end - first
            first = end
            if position == number * total // cells:
                yield cell
                cell, number = [], number + 1


def _packed(cell: Sequence[_Share], split_bytes: int) -> Iterator[list[_Share]]:
    split: list[_Share] = []
    size_bytes = 0
    for share in (part for whole in cell for part in _sized(whole, split_bytes)):
        if split and size_bytes + share.size_bytes > split_bytes:
            yield split
            split, size_bytes = [], 0
        split.append(share)
        size_bytes += share.size_bytes
    if split:
        yield split


def _sized(share: _Share, split_bytes: int) -> Iterator[_Share]:
    is_row = isinstance(share.piece, RowPiece)
    if is_row or share.size_bytes <= split_bytes or share.end - share.first == 1:
        yield share
        return
    for half in share.halves():
        yield from _sized(half, split_bytes)


def _stretch(shares: Sequence[_Share]) -> Stretch:
    stretch, first, end = shares[0].stretch, shares[0].first, shares[-1].end
    return replace(
        stretch,
        first_offset=Offset(first),
        end_offset=Offset(end),
        pieces=[_cut(share) for share in shares],
        aborted=[
            one for one in stretch.aborted if one.first_offset < end and one.last_offset >= first
        ],
    )


def _cut(share: _Share) -> Piece:
    """Of a segment, the share by its offsets; the stretch has those of rows."""
    piece = share.piece
    if isinstance(piece, RowPiece) or (share.first, share.end) == _held(piece):
        return piece
    return replace(piece, first_offset=Offset(share.first), end_offset=Offset(share.end))
