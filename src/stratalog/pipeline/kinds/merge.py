"""The merge: aged rows of a partition become segments.

A partition with enough aged bytes for a segment is merged straight from the objects that its rows
point at, so that every byte is read once and written once. A partition whose oldest record is
older than the topic's `segment.ms` is merged however little it has, so that everything is converted
in the end. So is one whose oldest record was there when the topic was triggered.

A partition is not merged yet if it has enough bytes, but all of them in crumbs that are scattered
over very many objects, as after a time without a pipeline. A merge would read it with a request per
crumb. If it is split first, together with the other partitions whose crumbs lie beside its own, the
reading takes a request per object.
"""

import asyncio
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from stratalog.control.pipeline.model import ClaimToken, UnitKind
from stratalog.control.segments.model import ChainOutcome
from stratalog.ids import Offset
from stratalog.objects.upload import put_requests
from stratalog.pipeline.kinds.committer import CommitContext, Committer
from stratalog.pipeline.kinds.kind import AgedKind, ClaimedWork, KindCost
from stratalog.pipeline.kinds.merge_model import MERGE, LogMade, MergeTask, SegmentPlan
from stratalog.pipeline.kinds.merge_plan import least_segment_bytes, plan_merges
from stratalog.pipeline.kinds.merge_task import run_merge
from stratalog.pipeline.plan.selection import Candidate
from stratalog.pipeline.plan.tasks import TaskDone
from stratalog.pipeline.report import counted
from stratalog.pipeline.units import Unit
from stratalog.pipeline.workplace import OpenWorkplace

CRUMB_BYTES = 32 * 1024
"""If a partition has fewer bytes than this in an object, they are a crumb. A request takes as long
as a megabyte does (see `objects/ranges.py`), so that reading crumbs one by one is thirty times as
slow as reading them along with their neighbours, and a second copy costs little beside it. Rows of
100 KiB and more are merged from where they are."""
MANY_OBJECTS = 1024
"""Crumbs out of fewer objects are read in seconds, whatever they cost."""
_FINISHED_AT_ONCE = 16
"""Segments of different partitions. To finish one takes a few small requests in sequence."""
_SEGMENT_REQUESTS = 3
"""Beside the log: a look at it, the indexes and the manifest."""


class MergeKind(AgedKind[MergeTask]):
    name: ClassVar[str] = MERGE
    unit_kind: ClassVar[UnitKind] = UnitKind.MERGE

    def wants(self, candidate: Candidate) -> bool:
        partition, topic, settings, now_ms = candidate
        if partition.remote_end != partition.first_offset:
            return False
        if partition.triggered or now_ms - partition.oldest_ms >= topic.segment_ms:
            return True
        enough = partition.bytes >= least_segment_bytes(topic, settings)
        return enough and not _is_scattered(candidate)

    def plan(self, work: ClaimedWork) -> list[MergeTask]:
        return plan_merges(work.claimed, work.topics, work.settings, work.now_ms)

    async def run(self, task: MergeTask, place: OpenWorkplace) -> TaskDone:
        return await run_merge(task, place)

    def committer(self, context: CommitContext) -> "MergeCommitter":
        return MergeCommitter(context)

    def cost(self, tasks: Sequence[MergeTask]) -> KindCost:
        segments = [segment for task in tasks for segment in task.parts]
        partitions = len({segment.token for segment in segments})
        requests = [put_requests(segment.size_bytes) + _SEGMENT_REQUESTS for segment in segments]
        return KindCost(
            figures={"merged_partitions": partitions, "segments": len(segments)},
            line=f"merge   {counted(partitions, 'partition')} into"
            f" {counted(len(segments), 'segment')}",
            write_requests=sum(requests),
            rows_kept=0,
        )


def _is_scattered(candidate: Candidate) -> bool:
    """Tell whether the rows are crumbs in so many objects that they should be split first.

    Such a partition has too many rows, so that it is split, again and again until it has few.
    """
    objects = candidate.partition.objects
    return (
        objects > MANY_OBJECTS
        and candidate.has_too_many_rows
        and candidate.partition.bytes < objects * CRUMB_BYTES
    )


@dataclass(slots=True)
class _PartitionSegments:
    """The segments of one unit that are still to be chained."""

    planned: list[SegmentPlan] = field(default_factory=list)
    """In offset order, up to the first segment that cannot be made."""
    made: dict[Offset, LogMade] = field(default_factory=dict)
    """By base offset: logs that wait for the segments before them."""
    finishing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a segment is finished: the segments of a partition come one after another."""

    def cut(self, base_offset: Offset) -> None:
        """Give up the segment that begins there, and those behind it, which cannot be chained."""
        del self.planned[bisect_left(self.planned, base_offset, key=_base_offset) :]

    def is_planned(self, segment: SegmentPlan) -> bool:
        return bool(self.planned) and segment.base_offset <= self.planned[-1].base_offset

    def take_next(self) -> tuple[LogMade, SegmentPlan] | None:
        """Take the next segment, if its log is there. A later one may have failed."""
        if not self.planned or self.planned[0].base_offset not in self.made:
            return None
        plan = self.planned.pop(0)
        return self.made.pop(plan.base_offset), plan


class MergeCommitter(Committer[MergeTask]):
    """Finishes and chains segments in the order of their offsets, not of their answers."""

    def __init__(self, context: CommitContext) -> None:
        super().__init__(context)
        self._segments: dict[ClaimToken, _PartitionSegments] = defaultdict(_PartitionSegments)
        self._finishing = asyncio.Semaphore(_FINISHED_AT_ONCE)

    def planned(self, task: MergeTask) -> None:
        for segment in task.parts:
            self._segments[segment.token].planned.append(segment)

    def needs(self, part: SegmentPlan) -> bool:
        overtaken = self.units[part.token].overtaken
        return not overtaken and self._segments[part.token].is_planned(part)

    def answered(self, task: MergeTask, answer: TaskDone) -> None:
        """Give up everything behind the segments that the task should have made, and did not."""
        logs: Sequence[LogMade] = answer.made
        made = {(log.token, log.built.base_offset) for log in logs}
        for segment in task.parts:
            if (segment.token, segment.base_offset) not in made:
                self._segments[segment.token].cut(segment.base_offset)

    async def commit(self, answer: TaskDone) -> None:
        logs: Sequence[LogMade] = answer.made
        for log in logs:
            self._segments[log.token].made[log.built.base_offset] = log
        tokens = dict.fromkeys(log.token for log in logs)
        await asyncio.gather(*(self._finish_ready(self.units[token]) for token in tokens))

    def settled(self, unit: Unit) -> None:
        self.context.finisher.forget(unit.claim.partition)
        self._segments.pop(unit.claim.token, None)
        self.report.merged_partitions += bool(unit.commits)

    async def _finish_ready(self, unit: Unit) -> None:
        """Finish one segment of a unit after another, also if several tasks have brought some."""
        segments = self._segments[unit.claim.token]
        async with segments.finishing, self._finishing:
            while not unit.overtaken and (ready := segments.take_next()) is not None:
                made, plan = ready
                try:
                    outcome = await self.context.finisher.finish(made, plan)
                except Exception as error:
                    unit.note_error(error)
                    segments.planned.clear()
                else:
                    if outcome is ChainOutcome.CHAINED:
                        self._count(unit, plan)

    def _count(self, unit: Unit, plan: SegmentPlan) -> None:
        unit.commits += 1
        self.report.segments += 1
        self.report.merged_bytes += plan.size_bytes
        self.report.rows_removed += len(plan.rows)


def _base_offset(segment: SegmentPlan) -> Offset:
    return segment.base_offset
