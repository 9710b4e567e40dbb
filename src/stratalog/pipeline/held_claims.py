"""The units of a run: one claimed partition each, from the plan to the commit.

A unit is settled once: its claim is released after success, counted as failed after an error of
its own, put back behind others after one that waiting may cure, and given back as it was when
somebody else's doing kept it from being done. What its tasks bring back is committed in the order
of the offsets, whatever order they come in.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from stratalog.control.pipeline.model import Claim, ClaimToken
from stratalog.ids import Offset
from stratalog.pipeline.plan.tasks import LogMade, MergeTask, SegmentPlan, SplitPlan, Task, TaskDone

_NOTHING = MergeTask(segments=())
"""A split task without parts would write a file without any."""


@dataclass(slots=True, kw_only=True)
class Unit:
    claim: Claim
    name: str
    """Topic and partition, for people."""
    segments: list[SegmentPlan] = field(default_factory=list)
    """Still to be chained, in offset order, up to the first that cannot be made."""
    tasks_left: int = 0
    made: dict[Offset, LogMade] = field(default_factory=dict)
    """By base offset: logs that wait for those before them."""
    finishing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while its segments are finished, which come one after another."""
    commits: int = 0
    error: str | None = None
    counts: bool = False
    """Whether the error is the unit's own, so that it is parked after some of them."""
    overtaken: bool = False
    """Its rows were deleted, or the claim was lost: nobody's fault."""
    lost: bool = False
    """It was the claim: nothing is committed under it any more."""

    @property
    def is_broken(self) -> bool:
        return self.error is not None or self.overtaken

    @property
    def failed_uncounted(self) -> bool:
        return self.error is not None and not self.counts

    def fail(self, error: str, *, counts: bool) -> None:
        """Note what went wrong first."""
        if not self.is_broken:
            self.error, self.counts = error, counts

    def lose(self) -> None:
        self.overtaken = self.lost = True

    def cut(self, base_offset: Offset) -> None:
        """The segment that begins there cannot be made, so that none behind it can be chained."""
        del self.segments[bisect_left(self.segments, base_offset, key=_base_offset) :]

    def needs(self, part: SegmentPlan | SplitPlan) -> bool:
        """Whether it could still be committed. What a split file moves of a partition depends on
        nothing else of it, so that neither failures nor changed rows elsewhere matter."""
        if isinstance(part, SplitPlan):
            return not self.lost
        within = bool(self.segments) and part.base_offset <= self.segments[-1].base_offset
        return within and not self.overtaken

    def ready(self) -> tuple[LogMade, SegmentPlan] | None:
        """The next segment, if its log is there. Also if a later one has failed."""
        if self.overtaken or not self.segments or self.segments[0].base_offset not in self.made:
            return None
        plan = self.segments.pop(0)
        return self.made.pop(plan.base_offset), plan


class Units:
    def __init__(self, units: Iterable[Unit]) -> None:
        self._units = {unit.claim.token: unit for unit in units}

    def __getitem__(self, token: ClaimToken) -> Unit:
        return self._units[token]

    def plan(self, tasks: Sequence[Task]) -> None:
        """Note which tasks every unit waits for."""
        for task in tasks:
            if isinstance(task, MergeTask):
                for segment in task.segments:
                    self._units[segment.token].segments.append(segment)
            for token in tokens_of(task):
                self._units[token].tasks_left += 1

    def replan(self, tasks: Iterable[Task], pieces: Iterable[Task]) -> None:
        """Wait for these pieces instead of the tasks that they were cut from."""
        for task in pieces:
            for token in tokens_of(task):
                self._units[token].tasks_left += 1
        for task in tasks:
            for token in tokens_of(task):
                self._units[token].tasks_left -= 1

    def task_ended(self, task: Task) -> list[Unit]:
        """The units that waited for nothing but this task."""
        ended = []
        for token in tokens_of(task):
            unit = self._units[token]
            unit.tasks_left -= 1
            if unit.tasks_left == 0:
                ended.append(unit)
        return ended

    def cut_after(self, task: Task, answer: TaskDone) -> None:
        """Give up what comes behind the segments that a task should have made, and did not."""
        if not isinstance(task, MergeTask):
            return
        made = {(log.token, log.built.base_offset) for log in answer.logs}
        for segment in task.segments:
            if (segment.token, segment.base_offset) not in made:
                self._units[segment.token].cut(segment.base_offset)

    def needed(self, task: Task) -> Task:
        """The task without what cannot be committed any more."""
        if isinstance(task, MergeTask):
            segments = [each for each in task.segments if self._units[each.token].needs(each)]
            return replace(task, segments=segments)
        parts = [each for each in task.parts if self._units[each.token].needs(each)]
        return replace(task, parts=parts) if parts else _NOTHING

    def idle(self) -> list[Unit]:
        """The units for which there is nothing to do."""
        return [unit for unit in self._units.values() if unit.tasks_left == 0]

    def unsettled(self, settled: set[ClaimToken]) -> list[Unit]:
        return [unit for token, unit in self._units.items() if token not in settled]


def _base_offset(segment: SegmentPlan) -> Offset:
    return segment.base_offset


def tokens_of(task: Task) -> list[ClaimToken]:
    if isinstance(task, MergeTask):
        return list(dict.fromkeys(segment.token for segment in task.segments))
    return [part.token for part in task.parts]
