"""The check that a partition's segments make one chain. It keeps none of them in memory."""

from collections.abc import Sequence

from stratalog.checks.report import Problem, Promise, Severity
from stratalog.checks.segment_promises import epochs_agree, name_of, segment_is_legal
from stratalog.control.log.model import Coordinates, PartitionState
from stratalog.control.segments.model import EpochStart, Segment
from stratalog.ids import Offset

_MAX_PROBLEMS = 100
"""The most problems that are reported for one partition: more would not help."""


class SegmentChain:
    """Checks that segments, in offset order, are one chain from `log_start` to `remote_end`.

    A live partition changes while its chain is read: merges add to its end, and retention removes
    from its start. `before` is the state before the first segment was read, and `finish` gets the
    state after the last. For a snapshot, both are the same. Segments are read before rows, which
    `meet` compares with them.
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
            text = f"{name_of(segment)} ends before log_start {self._before.log_start}"
            problem = Problem(promise=Promise.BOUNDARIES, text=text, severity=Severity.WASTE)
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
        """Note a row that shares offsets with the segments. Only the last such row is kept."""
        if self._previous is not None and row.base_offset < self._expected:
            self._shared = row

    def finish(self, after: PartitionState) -> list[Problem]:
        gaps = [*self._gaps, (self._expected, self._before.remote_end)]
        for start, end in gaps:
            # Retention may have removed all below the newest log_start between two pages.
            start = max(start, after.log_start)
            if start < end:
                text = f"offsets {start} to {end - 1} are in no segment"
                self._keep([Problem(promise=Promise.DENSE, text=text)])
        if self._previous is not None and self._expected > after.remote_end:
            text = f"segments reach {self._expected}, after remote_end {after.remote_end}"
            self._keep([Problem(promise=Promise.BOUNDARIES, text=text)])
        # Rows that a segment replaced stay for a while, below the block range.
        if self._shared is not None and self._shared.last_offset >= after.block_start:
            self._keep([self._in_both(self._shared)])
        return self._problems

    def _in_both(self, row: Coordinates) -> Problem:
        last = min(row.last_offset, self._expected - 1)
        text = f"offsets {row.base_offset} to {last} are in a row, of {row.object_key}, and in"
        return Problem(promise=Promise.ONE_VALUE, text=f"{text} a segment")

    def _keep(self, problems: list[Problem]) -> None:
        self._problems += problems[: max(0, _MAX_PROBLEMS - len(self._problems))]


def _overlap(left: Segment, right: Segment) -> list[Problem]:
    """Return a problem if two segments overlap, unless both are of another cluster.

    Kafka's segments may overlap after a change of leaders. Then each offset is read from the
    segment that ends first.
    """
    if left.store_url and right.store_url and left.last_offset < right.last_offset:
        return []
    last = min(left.last_offset, right.last_offset)
    text = (
        f"offsets {right.base_offset} to {last} are in two segments, {left.key_base} and "
        f"{right.key_base}"
    )
    return [Problem(promise=Promise.ONE_VALUE, text=text)]
