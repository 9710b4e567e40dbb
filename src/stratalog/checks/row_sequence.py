"""The check that a partition's rows cover its block range. It keeps none of them in memory."""

from dataclasses import dataclass

from stratalog.checks.report import Problem, Promise
from stratalog.control.log.model import Coordinates, PartitionState
from stratalog.ids import Offset

_MAX_PROBLEMS = 100
"""The most problems that are reported for one partition: more would not help."""


@dataclass(frozen=True, slots=True)
class _Gap:
    start: Offset
    end: Offset


def claimed_twice(left: Coordinates, right: Coordinates) -> Problem:
    last = min(left.last_offset, right.last_offset)
    return Problem(
        promise=Promise.ONE_VALUE,
        text=f"offsets {right.base_offset} to {last} are in two rows, of {left.object_key} "
        f"and {right.object_key}",
    )


class RowSequence:
    """Checks that rows, in offset order, cover the block range without a gap or an overlap.

    A live partition changes while its rows are read. `before` is its state before the first row was
    read, and `finish` gets the state after the last: rows that retention removed or producers added
    meanwhile are no problem. For a snapshot, both states are the same.

    Rows that lie wholly below the range are being deleted: the boundary moves first, and the rows
    are deleted some at a time.

    Offsets below `remote_end` are in segments, which `segment_chain.py` checks. No other tier holds
    offsets in this version, so no offset may be missing between `remote_end` and the block range.
    """

    def __init__(self, before: PartitionState) -> None:
        self._before = before
        self._expected = before.block_start
        self._gaps: list[_Gap] = []
        self._problems: list[Problem] = []
        self._previous: Coordinates | None = None
        self._furthest: Coordinates | None = None

    def step(self, row: Coordinates) -> None:
        if row.base_offset <= row.last_offset < self._before.block_start:
            return
        if row.last_offset < row.base_offset:
            self._add(
                Promise.DENSE, f"row {row.base_offset} ends before it begins, at {row.last_offset}"
            )
        if row.base_offset < self._expected:
            self._overlap(row)
        elif row.base_offset > self._expected and len(self._gaps) < _MAX_PROBLEMS:
            self._gaps.append(_Gap(self._expected, row.base_offset))
        if self._previous is not None:
            self._compare(self._previous, row)
        self._previous = row
        if row.last_offset >= self._expected:
            self._expected = Offset(row.last_offset + 1)
            self._furthest = row

    def finish(self, after: PartitionState) -> list[Problem]:
        # All rows below the newest block_start may have been deleted between two pages.
        gaps = [gap for gap in self._gaps if gap.end > after.block_start]
        end = max(self._expected, after.block_start)
        if end < self._before.block_end:
            gaps.append(_Gap(end, self._before.block_end))
        below = max(after.log_start, after.remote_end)
        if below < after.block_start:
            gaps.insert(0, _Gap(below, after.block_start))
        for gap in gaps:
            self._add(Promise.DENSE, f"offsets {gap.start} to {gap.end - 1} are in no row")
        if end > after.block_end:
            self._add(Promise.BOUNDARIES, f"rows reach {end}, after block_end {after.block_end}")
        return self._problems

    def _overlap(self, row: Coordinates) -> None:
        if self._furthest is not None:
            self._keep(claimed_twice(self._furthest, row))
        else:
            self._add(
                Promise.BOUNDARIES,
                f"row {row.base_offset} lies across block_start {self._expected}",
            )

    def _compare(self, left: Coordinates, right: Coordinates) -> None:
        if right.committed_ms < left.committed_ms:
            self._add(
                Promise.BOUNDARIES,
                f"row {right.base_offset} was committed before row {left.base_offset}",
            )
        if right.leader_epoch < left.leader_epoch:
            self._add(
                Promise.BOUNDARIES,
                f"row {right.base_offset} has epoch {right.leader_epoch}, the row before it "
                f"{left.leader_epoch}",
            )

    def _add(self, promise: Promise, text: str) -> None:
        self._keep(Problem(promise=promise, text=text))

    def _keep(self, problem: Problem) -> None:
        if len(self._problems) < _MAX_PROBLEMS:
            self._problems.append(problem)
