"""What a plan will cost, before anything is done. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import NamedTuple

from stratalog.control.log.model import Coordinates
from stratalog.control.pipeline.model import ClaimToken
from stratalog.objects.upload import put_requests
from stratalog.pipeline.held_claims import tokens_of
from stratalog.pipeline.plan.object_reads import plan_visits
from stratalog.pipeline.plan.split_plan import rows_needed
from stratalog.pipeline.plan.tasks import (
    MergeTask,
    SegmentPlan,
    SplitPlan,
    SplitTask,
    Task,
    row_lists,
)
from stratalog.pipeline.report import counted

_SEGMENT_REQUESTS = 3
"""Beside the log: a look at it, the indexes and the manifest."""
_SPLIT_REQUESTS = 1
"""Beside the file: a look at it."""


class Kind(StrEnum):
    """What is done with a partition."""

    MERGE = "merge"
    SPLIT = "split"
    REWRITE = "rewrite"


class TopicShare(NamedTuple):
    """What a plan does with a topic, in one way."""

    topic: str
    kind: Kind
    partitions: int
    bytes: int

    def line(self) -> str:
        what = f"{counted(self.partitions, 'partition')}, {self.bytes / 1e6:,.1f} MB"
        return f"  {self.topic}: {self.kind.value} {what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    tasks: int
    merged_partitions: int
    segments: int
    split_partitions: int
    split_files: int
    rewritten_partitions: int
    """Whose last rows are moved out of objects that are mostly dead."""
    rewritten_files: int
    objects_read: int
    bytes: int
    """Read once and written once."""
    bytes_read: int
    """Those between two pieces that one request reads along included."""
    read_requests: int
    write_requests: int
    rows_removed: int
    topics: Sequence[TopicShare]

    def to_json(self) -> dict[str, object]:
        return asdict(self) | {"topics": [share._asdict() for share in self.topics]}

    def lines(self) -> list[str]:
        requests = self.read_requests + self.write_requests
        return [
            f"merge   {counted(self.merged_partitions, 'partition')} into"
            f" {counted(self.segments, 'segment')}",
            f"split   {counted(self.split_partitions, 'partition')} into"
            f" {counted(self.split_files, 'file')}",
            f"rewrite {counted(self.rewritten_partitions, 'partition')} into"
            f" {counted(self.rewritten_files, 'file')}, out of objects that are mostly dead",
            f"move    {self.bytes / 1e6:,.1f} MB out of {counted(self.objects_read, 'object')} in"
            f" {counted(self.tasks, 'task')}",
            f"ask     {counted(requests, 'request')} of the object store:"
            f" {self.read_requests:,} to read, {self.write_requests:,} to write",
            f"free    {counted(self.rows_removed, 'row')} of the control plane",
            *(share.line() for share in self.topics),
        ]


def cost_of(tasks: Sequence[Task], rewrites: Sequence[SplitTask] = ()) -> Cost:
    """`rewrites` are those tasks that move rows out of objects that are mostly dead."""
    merges = [task for task in tasks if isinstance(task, MergeTask)]
    splits = [task for task in tasks if isinstance(task, SplitTask)]
    everything: list[Task] = [*tasks, *rewrites]
    segments = [segment for task in merges for segment in task.segments]
    parts = [*_parts(splits), *_parts(rewrites)]
    rows = [row for task in everything for unit in row_lists(task) for row in unit]
    visits = [visit for task in everything for visit in plan_visits(row_lists(task))]
    reads = [read for visit in visits for read in visit.requests]
    return Cost(
        tasks=len(everything),
        merged_partitions=_units(merges),
        segments=len(segments),
        split_partitions=_units(splits),
        split_files=len(splits),
        rewritten_partitions=_units(rewrites),
        rewritten_files=len(rewrites),
        objects_read=len({row.object_id for row in rows}),
        bytes=_bytes(rows),
        bytes_read=sum(read.end - read.start for read in reads),
        read_requests=len(reads),
        write_requests=sum(
            put_requests(segment.size_bytes) + _SEGMENT_REQUESTS for segment in segments
        )
        + sum(put_requests(_task_bytes(task)) + _SPLIT_REQUESTS for task in (*splits, *rewrites)),
        rows_removed=len(rows) - sum(rows_needed(part.rows) for part in parts),
        topics=[
            *_shares(Kind.MERGE, segments),
            *_shares(Kind.SPLIT, _parts(splits)),
            *_shares(Kind.REWRITE, _parts(rewrites)),
        ],
    )


def _shares(kind: Kind, units: Sequence[SegmentPlan] | Sequence[SplitPlan]) -> list[TopicShare]:
    """By topic name."""
    tokens: dict[str, set[ClaimToken]] = defaultdict(set)
    size_bytes: dict[str, int] = defaultdict(int)
    for unit in units:
        tokens[unit.topic_name].add(unit.token)
        size_bytes[unit.topic_name] += _bytes(unit.rows)
    return [TopicShare(name, kind, len(tokens[name]), size_bytes[name]) for name in sorted(tokens)]


def _parts(tasks: Iterable[SplitTask]) -> list[SplitPlan]:
    return [part for task in tasks for part in task.parts]


def _task_bytes(task: Task) -> int:
    return sum(_bytes(rows) for rows in row_lists(task))


def _units(tasks: Iterable[Task]) -> int:
    return len({token for task in tasks for token in tokens_of(task)})


def _bytes(rows: Iterable[Coordinates]) -> int:
    return sum(row.byte_size for row in rows)
