"""The plan of a partition: which segments are chained, and which rows follow them. Pure.

The same offsets are often in the store more than once: in a block, in the split file into which
the block went, and in a segment. All copies hold the same records, so any will do, as long as each
piece begins where the last one ends. The plan is the way that leads farthest; of several it takes
the one with the fewest offsets that are lost, then the one with the most in segments.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stratalog.ids import Offset
from stratalog.recovery.block_offsets import infer_offsets, told_offsets
from stratalog.recovery.evidence import (
    BlockPart,
    FoundSegment,
    OffsetRange,
    PartitionEvidence,
    Source,
    Stretch,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    evidence: PartitionEvidence
    log_start: int
    remote_end: int
    block_start: int
    segments: Sequence[FoundSegment]
    """New segments, in the order in which they are chained."""
    rows: Sequence[Stretch]
    """All rows from `block_start` on. Behind a gap, the rows go on."""
    end: int
    """The first offset behind all rows and segments."""
    taken_end: int
    """The first offset that no record can have got. More than `end` if the last blocks of several
    writers are in no certain order."""
    rest: Sequence[BlockPart] = ()
    """Blocks whose offsets are not known."""

    @property
    def unproven(self) -> list[OffsetRange]:
        """The offsets that were given to records, of which none can be proven to be the right."""
        deleted = Offset(self.evidence.deleted_before)
        return [OffsetRange(max(a, deleted), b) for a, b in self.gaps if b > deleted]

    @property
    def gaps(self) -> list[OffsetRange]:
        """The offsets without rows: the unproven ones, and ones whose records were deleted."""
        ranges = list(_gaps(self.block_start, self.rows))
        rows_end = self.rows[-1].end if self.rows else self.block_start
        if self.taken_end > rows_end:
            ranges.append(OffsetRange(Offset(rows_end), Offset(self.taken_end)))
        return ranges

    @property
    def inferred(self) -> list[OffsetRange]:
        return _joined(row for row in self.rows if row.source is Source.INFERRED)

    @property
    def lost(self) -> list[OffsetRange]:
        """The offsets that rows of the control plane name, and that the store has lost."""
        return _joined(row for row in self.rows if row.source is Source.LOST)

    @property
    def recovered(self) -> int:
        """The number of offsets that the control plane did not know."""
        return self.end - self.evidence.high_watermark


def plan_partition(evidence: PartitionEvidence) -> PartitionPlan:
    told = told_offsets(evidence)
    certain = [*evidence.stretches, *told.stretches]
    covered = _covered(evidence, certain)
    inferred = infer_offsets(told, covered, evidence.high_watermark)
    stretches = [each for each in [*certain, *inferred.stretches] if each.end > evidence.log_start]
    way = _Ways(evidence, stretches).best()
    rows, end = way.rows, max(way.end, evidence.high_watermark)
    remote_end = way.segments[-1].end if way.segments else way.remote_start
    block_start = way.row_start
    log_start = max(evidence.log_start, way.first) if evidence.is_new else evidence.log_start
    return PartitionPlan(
        evidence=evidence,
        log_start=log_start,
        remote_end=remote_end,
        block_start=block_start,
        segments=way.segments,
        rows=rows,
        end=end,
        taken_end=max(
            [end, inferred.rest_end, evidence.deleted_before, *(high for _, high in covered)]
        ),
        rest=inferred.rest,
    )


def _covered(evidence: PartitionEvidence, stretches: Iterable[Stretch]) -> list[tuple[int, int]]:
    """The ranges of offsets that are certain. All below the high watermark were given out."""
    ranges = [(each.base, each.end) for each in stretches]
    ranges += [(each.base, each.end) for each in evidence.segments]
    if not evidence.is_new:
        ranges = [each for each in ranges if each[1] > evidence.high_watermark]
        ranges.append((0, evidence.high_watermark))
    return sorted(ranges)


class _Reach(NamedTuple):
    """The better way is the greater one."""

    end: int
    kept: int
    """Minus the offsets that are lost on the way."""
    chained: int
    """The offsets in segments."""


class _Way(NamedTuple):
    first: int
    remote_start: int
    row_start: int
    segments: list[FoundSegment]
    rows: list[Stretch]
    end: int


class _Ways:
    """All ways from segment to segment and then from row to row."""

    def __init__(self, evidence: PartitionEvidence, stretches: Sequence[Stretch]) -> None:
        self._evidence = evidence
        self._rows: dict[int, list[Stretch]] = defaultdict(list)
        for stretch in sorted(stretches, key=lambda each: (each.source, -each.end)):
            self._rows[stretch.base].append(stretch)
        self._segments: dict[int, list[FoundSegment]] = defaultdict(list)
        for segment in evidence.segments:
            self._segments[_chain_base(segment, evidence)].append(segment)
        self._next_row: dict[int, tuple[_Reach, Stretch]] = {}
        self._next_segment: dict[int, tuple[_Reach, FoundSegment]] = {}
        self._bases = sorted(self._rows)
        for base in reversed(self._bases):
            self._choose_row(base)
        for base in sorted(self._segments, reverse=True):
            self._choose_segment(base)

    def best(self) -> _Way:
        evidence = self._evidence
        if not evidence.is_new:
            return self._follow(evidence.remote_end, evidence.remote_end, evidence.block_start)
        starts = sorted({*self._rows, *self._segments})
        if not starts:
            return _Way(0, 0, 0, [], [], 0)
        # The way that leads farthest; of these, the one that begins first.
        first = max(starts, key=lambda start: (self._reach_of(start).end, -start))
        return self._follow(first, first, first)

    def _reach_of(self, offset: int) -> _Reach:
        if offset in self._next_segment:
            return self._next_segment[offset][0]
        return self._row_reach(offset)

    def _row_reach(self, offset: int) -> _Reach:
        if offset in self._next_row:
            return self._next_row[offset][0]
        return _Reach(offset, 0, 0)

    def _choose_row(self, base: int) -> None:
        best: tuple[_Reach, Stretch] | None = None
        for row in self._rows[base]:
            reach = self._row_reach(row.end)
            if row.source is Source.LOST:
                reach = reach._replace(kept=reach.kept - (row.end - row.base))
            if best is None or reach > best[0]:
                best = reach, row
        assert best is not None
        self._next_row[base] = best

    def _choose_segment(self, base: int) -> None:
        best: tuple[_Reach, FoundSegment] | None = None
        for segment in self._segments[base]:
            reach = self._reach_of(segment.end)
            reach = reach._replace(chained=reach.chained + segment.end - base)
            if best is None or reach > best[0]:
                best = reach, segment
        assert best is not None
        if best[0] >= self._row_reach(base):
            self._next_segment[base] = best

    def _follow(self, first: int, remote_start: int, row_start: int) -> _Way:
        segments: list[FoundSegment] = []
        end = remote_start
        # A chain in front of the rows of the control plane must end where these begin, or later.
        while end in self._next_segment and self._leads_on(end, row_start):
            segments.append(self._next_segment[end][1])
            end = segments[-1].end
        start = max(end, row_start)
        rows: list[Stretch] = []
        position = start
        while (step := self._step(position)) is not None:
            rows.append(step)
            position = step.end
        return _Way(first, remote_start, start, segments, rows, max(position, end))

    def _leads_on(self, end: int, row_start: int) -> bool:
        if row_start <= end:
            return self._next_segment[end][0] >= self._row_reach(max(end, row_start))
        return self._next_segment[end][1].end <= row_start

    def _step(self, position: int) -> Stretch | None:
        """Return the next row: the one at the position, or the first behind a gap."""
        if position in self._next_row:
            return self._next_row[position][1]
        behind = [base for base in self._bases if base > position]
        return self._next_row[behind[0]][1] if behind else None


def _chain_base(segment: FoundSegment, evidence: PartitionEvidence) -> int:
    """Offsets that a segment repeats were deleted after it was built, if the log starts there."""
    remote_end = evidence.remote_end
    if segment.base < remote_end < segment.end and evidence.log_start >= remote_end:
        return remote_end
    return segment.base


def _gaps(start: int, rows: Iterable[Stretch]) -> Iterable[OffsetRange]:
    for row in rows:
        if row.base > start:
            yield OffsetRange(Offset(start), Offset(row.base))
        start = row.end


def _joined(rows: Iterable[Stretch]) -> list[OffsetRange]:
    ranges: list[OffsetRange] = []
    for row in rows:
        if ranges and ranges[-1].end == row.base:
            ranges[-1] = OffsetRange(ranges[-1].start, Offset(row.end))
        else:
            ranges.append(OffsetRange(Offset(row.base), Offset(row.end)))
    return ranges
