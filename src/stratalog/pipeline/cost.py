"""What a plan will cost, before anything is done. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from stratalog.control.model import Coordinates
from stratalog.objects.upload import put_requests
from stratalog.pipeline.report import counted
from stratalog.pipeline.split_plan import rows_needed
from stratalog.pipeline.tasks import MergeTask, Task
from stratalog.pipeline.units import tokens_of
from stratalog.pipeline.visits import plan_visits

_SEGMENT_REQUESTS = 3
"""Beside the log: a look at it, the indexes and the manifest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    tasks: int
    merged_partitions: int
    segments: int
    split_partitions: int
    split_files: int
    objects_read: int
    bytes: int
    """Read once and written once."""
    bytes_read: int
    """Those between two pieces that one request reads along included."""
    read_requests: int
    write_requests: int
    rows_removed: int

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    def lines(self) -> list[str]:
        requests = self.read_requests + self.write_requests
        return [
            f"merge   {counted(self.merged_partitions, 'partition')} into"
            f" {counted(self.segments, 'segment')}",
            f"split   {counted(self.split_partitions, 'partition')} into"
            f" {counted(self.split_files, 'file')}",
            f"move    {self.bytes / 1e6:,.1f} MB out of {counted(self.objects_read, 'object')} in"
            f" {counted(self.tasks, 'task')}",
            f"ask     {counted(requests, 'request')} of the object store:"
            f" {self.read_requests:,} to read, {self.write_requests:,} to write",
            f"free    {counted(self.rows_removed, 'row')} of the control plane",
        ]


def cost_of(tasks: Sequence[Task]) -> Cost:
    merges = [task for task in tasks if isinstance(task, MergeTask)]
    splits = [task for task in tasks if not isinstance(task, MergeTask)]
    segments = [segment for task in merges for segment in task.segments]
    parts = [part for task in splits for part in task.parts]
    rows = [row for task in tasks for unit in _row_lists(task) for row in unit]
    visits = [visit for task in tasks for visit in plan_visits(_row_lists(task))]
    reads = [read for visit in visits for read in visit.requests]
    files = [_bytes(row for part in task.parts for row in part.rows) for task in splits]
    return Cost(
        tasks=len(tasks),
        merged_partitions=_units(merges),
        segments=len(segments),
        split_partitions=_units(splits),
        split_files=len(splits),
        objects_read=len({row.object_id for row in rows}),
        bytes=_bytes(rows),
        bytes_read=sum(read.end - read.start for read in reads),
        read_requests=len(reads),
        write_requests=sum(
            put_requests(segment.size_bytes) + _SEGMENT_REQUESTS for segment in segments
        )
        + sum(map(put_requests, files)),
        rows_removed=len(rows) - sum(rows_needed(part.rows) for part in parts),
    )


def _units(tasks: Iterable[Task]) -> int:
    return len({token for task in tasks for token in tokens_of(task)})


def _row_lists(task: Task) -> list[Sequence[Coordinates]]:
    if isinstance(task, MergeTask):
        return [segment.rows for segment in task.segments]
    return [part.rows for part in task.parts]


def _bytes(rows: Iterable[Coordinates]) -> int:
    return sum(row.byte_size for row in rows)
