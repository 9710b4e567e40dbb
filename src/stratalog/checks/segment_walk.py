"""Going along a partition's chained segments, one after the other, without keeping them."""

from collections.abc import Sequence

from stratalog.checks.report import Problem, Promise, Severity
from stratalog.checks.segment_promises import epochs_agree, name_of, segment_is_legal
from stratalog.control.log.model import Coordinates, PartitionState
from stratalog.control.segments.model import EpochStart, Segment
from stratalog.ids import Offset

_MAX_PROBLEMS = 100
"""Of one partition. More of them tell nothing more."""


class SegmentWalk:
    """Check that segments, in offset order, are one chain from `log_start` to `remote_end`.

    The chain of a partition that lives is read over a while: it grows at its end, and retention
    takes from its start. `before` is the state from before the first segment was read, `finish` is
    given the one from after the last. Of a snapshot, both are the same. Segments are read before
    rows, which `meet` compares with them.
    """

    def __init__(self, before: PartitionState, epochs: Sequence[EpochStart]) -> None:
        self._before = before
        self._epochs = epochs
        self._expected = before.log_start
        self._previous: Segment | None = None
        self._shared: Coordinates | None = None
        self._gaps: list[tuple[Offset, Offset]] = []
        self._problems: list[Problem] = []
        self.size_bytes = 0

    def step(self, segment: Segment) -> None:
        self.size_bytes += segment.size_bytes
        self._keep(segment_is_legal(segment))
        if segment.last_offset < self._before.log_start:
            what = f"{name_of(segment)} ends before log_start {self._before.log_start}"
            problem = Problem(promise=Promise.BOUNDARIES, what=what, severity=Severity.WASTE)
            self._keep([problem])
            return
        self._keep(epochs_agree(segment, self._epochs, "the partition"))
        if segment.base_offset > self._expected:
            self._gaps.append((self._expected, segment.base_offset))
        elif self._previous is not None and segment.base_offset < self._expected:
            self._keep(_overlap(self._previous, segment))
        self._previous = segment
        self._expected = max(self._expected, segment.end_offset)

    def meet(self, row: Coordinates) -> None:
        """Note a row that shares offsets with the segments. Of several, the last one tells."""
        if self._previous is not None and row.base_offset < self._expected:
            self._shared = row

    def finish(self, after: PartitionState) -> list[Problem]:
        gaps = [*self._gaps, (self._expected, self._before.remote_end)]
        for start, end in gaps:
            # Everything below the newest log_start may have gone between two pages.
            start = max(start, after.log_start)
            if start < end:
                what = f"offsets {start} to {end - 1} are in no segment"
                self._keep([Problem(promise=Promise.DENSE, what=what)])
        if self._previous is not None and self._expected > after.remote_end:
            what = f"segments reach {self._expected}, after remote_end {after.remote_end}"
            self._keep([Problem(promise=Promise.BOUNDARIES, what=what)])
        # Rows that were replaced by a segment stay for a while, below the block range.
        if self._shared is not None and self._shared.last_offset >= after.block_start:
            self._keep([self._in_both(self._shared)])
        return self._problems

    def _in_both(self, row: Coordinates) -> Problem:
        last = min(row.last_offset, self._expected - 1)
        what = f"offsets {row.base_offset} to {last} are in a row, of {row.object_key}, and in"
        return Problem(promise=Promise.ONE_VALUE, what=f"{what} a segment")

    def _keep(self, problems: list[Problem]) -> None:
        self._problems += problems[: max(0, _MAX_PROBLEMS - len(self._problems))]


def _overlap(left: Segment, right: Segment) -> list[Problem]:
    """Segments of another cluster may begin inside each other: after a change of leaders, Kafka's
    do. Each offset is read from the one that ends first."""
    if left.store_url and right.store_url and left.last_offset < right.last_offset:
        return []
    last = min(left.last_offset, right.last_offset)
    what = (
        f"offsets {right.base_offset} to {last} are in two segments, {left.key_base} and "
        f"{right.key_base}"
    )
    return [Problem(promise=Promise.ONE_VALUE, what=what)]
