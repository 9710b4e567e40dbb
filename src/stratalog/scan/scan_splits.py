"""Splits: stretches divided into work of about the same size. Pure.

All stretches are laid end to end, by topic, partition and offset, and cut into equal parts. A
segment is cut where a part ends. A row cannot be cut and goes to the part that its middle lies in.
So many tasks read a thick partition, and few tasks read thousands of thin ones. Where equal bytes
would give too few splits, or too many records in one, offsets are counted instead (see
`splits_by_offset.py`).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from stratalog.batch.columns import AbortedRecords
from stratalog.scan.extents import Extent
from stratalog.scan.model import ScanRequest, ScanSplit, Stretch
from stratalog.scan.splits_by_offset import count_offsets, cut_by_offsets

LEAST_CUT_BYTES = 1024 * 1024
"""The least that is cut off a segment, unless splits are small themselves: a cut costs a look into
the index."""

LEAST_SPLIT_BYTES = 256
"""The least size of a split that is cut by bytes: a smaller split would hold no batch."""


def cut_into_splits(
    stretches: Sequence[Stretch], request: ScanRequest, split_bytes: int
) -> list[ScanSplit]:
    """Cut into splits of `split_bytes` at most. A row that is larger makes its split larger.

    There are at least `min_splits`, if there are so many offsets, and no split has more than
    `max_split_offsets`.
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
            stretches=[replace(one, extents=_joined(one.extents)) for one in part],
            columns=tuple(request.columns),
            rows=request.rows,
            skips_undecodable=request.skips_undecodable,
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
        shares: dict[int, list[Extent]] = defaultdict(list)
        for extent in stretch.extents:
            for number, share in _shares(extent, position, total_bytes, count):
                shares[number].append(share)
            position += extent.byte_size
        for number, extents in shares.items():
            parts[number].append(_stretch(stretch, extents))
    return [parts[number] for number in sorted(parts)]


def _shares(
    extent: Extent, position: int, total_bytes: int, count: int
) -> Iterator[tuple[int, Extent]]:
    """Yield the extent's shares, each with the number of its split."""
    start = 0
    if extent.is_divisible:
        least = min(LEAST_CUT_BYTES, total_bytes // count // 4)
        first = position * count // total_bytes + 1
        for number in range(first, count):
            cut = number * total_bytes // count - position
            if cut > extent.byte_size - max(least, 1):
                break
            if cut - start >= max(least, 1):
                yield (
                    _number(position + start, position + cut, total_bytes, count),
                    extent.between_bytes(start, cut),
                )
                start = cut
        extent = extent if start == 0 else extent.between_bytes(start, extent.byte_size)
    end = position + start + extent.byte_size
    yield _number(position + start, end, total_bytes, count), extent


def _number(start: int, end: int, total_bytes: int, count: int) -> int:
    """Return the number of the split in which the middle lies."""
    return min((start + end) * count // (2 * total_bytes), count - 1)


def _stretch(stretch: Stretch, extents: Sequence[Extent]) -> Stretch:
    first = min(extent.first_offset for extent in extents)
    end = max(extent.end_offset for extent in extents)
    return replace(stretch, extents=extents, aborted=_overlapping(stretch.aborted, first, end))


def _overlapping(
    aborted: Sequence[AbortedRecords], first: int, end: int
) -> tuple[AbortedRecords, ...]:
    return tuple(one for one in aborted if one.first_offset < end and one.last_offset >= first)


def _joined(extents: Sequence[Extent]) -> tuple[Extent, ...]:
    """Join extents that lie side by side, so that they are read and decoded as one."""
    joined: list[Extent] = []
    for extent in extents:
        both = joined[-1].joined(extent) if joined else None
        if both is None:
            joined.append(extent)
        else:
            joined[-1] = both
    return tuple(joined)
