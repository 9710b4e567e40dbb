"""Splits cut by offsets, for requests that bound the records or the number of splits. Pure.

Cuts by bytes cannot keep such a bound: a row is never cut by bytes, and the number of records in so
many bytes of a segment is unknown. So all offsets are laid end to end and cut into cells of equal
numbers of offsets. Two splits may share an extent, and each gives its own offsets of it: both read
the whole row, and of a segment each reads the bytes that the offset index names.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from stratalog.ids import Offset
from stratalog.scan.extents import Extent
from stratalog.scan.model import Stretch


class _Share(NamedTuple):
    """Offsets of an extent."""

    stretch: Stretch
    extent: Extent
    first: int
    end: int

    @property
    def size_bytes(self) -> int:
        """About the bytes that are read for the share. A row is read whole."""
        extent = self.extent
        if not extent.is_divisible:
            return extent.byte_size
        first = max(extent.first_offset, self.stretch.first_offset)
        held = min(extent.end_offset, self.stretch.end_offset) - first
        return -(-extent.byte_size * (self.end - self.first) // held)

    def halves(self) -> "tuple[_Share, _Share]":
        middle = (self.first + self.end) // 2
        return self._replace(end=middle), self._replace(first=middle)


def count_offsets(stretches: Sequence[Stretch]) -> int:
    """Count the wanted offsets that extents hold."""
    return sum(share.end - share.first for share in _shares(stretches))


def cut_by_offsets(
    stretches: Sequence[Stretch], cells: int, split_bytes: int
) -> Iterator[list[Stretch]]:
    """Yield the stretches of each split, which has no more offsets than a cell.

    A split also has no more than `split_bytes`, if cutting can achieve that.
    """
    shares = list(_shares(stretches))
    for cell in _cells(shares, min(cells, count_offsets(stretches))):
        for split in _packed(cell, split_bytes):
            yield [_stretch(list(part)) for _, part in groupby(split, lambda share: id(share[0]))]


def _shares(stretches: Sequence[Stretch]) -> Iterator[_Share]:
    """Yield each extent's offsets. Where two extents overlap, the first one has the offsets."""
    for stretch in stretches:
        first = int(stretch.first_offset)
        for extent in stretch.extents:
            first = max(first, extent.first_offset)
            end = min(extent.end_offset, stretch.end_offset)
            if first < end:
                yield _Share(stretch, extent, first, end)
                first = end


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
    is_small = share.size_bytes <= split_bytes or share.end - share.first == 1
    if is_small or not share.extent.is_divisible:
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
        extents=[
            share.extent.between_offsets(Offset(share.first), Offset(share.end)) for share in shares
        ],
        aborted=[
            one for one in stretch.aborted if one.first_offset < end and one.last_offset >= first
        ],
    )
