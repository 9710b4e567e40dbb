"""The cost of a plan, before anything is done. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stratalog.control.log.model import Coordinates
from stratalog.control.pipeline.model import ClaimToken
from stratalog.pipeline.kinds.kind import KindCost
from stratalog.pipeline.kinds.registry import KINDS
from stratalog.pipeline.plan.object_reads import plan_object_reads
from stratalog.pipeline.plan.tasks import Task
from stratalog.pipeline.report import counted


class TopicShare(NamedTuple):
    """The share of one topic in the tasks of one kind."""

    topic: str
    kind: str
    partitions: int
    bytes: int

    def line(self) -> str:
        partitions = counted(self.partitions, "partition")
        return f"  {self.topic}: {self.kind} {partitions}, {self.bytes / 1e6:,.1f} MB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    tasks: int
    kinds: Sequence[KindCost]
    objects_read: int
    bytes: int
    """Read once and written once."""
    bytes_read: int
    """With the bytes between two rows that one request reads along."""
    read_requests: int
    write_requests: int
    rows_removed: int
    topics: Sequence[TopicShare]

    @property
    def figures(self) -> Mapping[str, int]:
        """The numbers of all kinds, by field name."""
        return {name: number for kind in self.kinds for name, number in kind.figures.items()}

    def to_json(self) -> dict[str, object]:
        return {
            "tasks": self.tasks,
            **self.figures,
            "objects_read": self.objects_read,
            "bytes": self.bytes,
            "bytes_read": self.bytes_read,
            "read_requests": self.read_requests,
            "write_requests": self.write_requests,
            "rows_removed": self.rows_removed,
            "topics": [share._asdict() for share in self.topics],
        }

    def lines(self) -> list[str]:
        requests = self.read_requests + self.write_requests
        return [
            *(kind.line for kind in self.kinds),
            f"move    {self.bytes / 1e6:,.1f} MB out of {counted(self.objects_read, 'object')} in"
            f" {counted(self.tasks, 'task')}",
            f"ask     {counted(requests, 'request')} of the object store:"
            f" {self.read_requests:,} to read, {self.write_requests:,} to write",
            f"free    {counted(self.rows_removed, 'row')} of the control plane",
            *(share.line() for share in self.topics),
        ]


def cost_of(tasks: Sequence[Task]) -> Cost:
    by_kind = {kind.name: [task for task in tasks if task.kind == kind.name] for kind in KINDS}
    kinds = [kind.cost(by_kind[kind.name]) for kind in KINDS]
    rows = [row for task in tasks for part in task.row_lists for row in part]
    planned = [read for task in tasks for read in plan_object_reads(task.row_lists)]
    requests = [request for read in planned for request in read.requests]
    return Cost(
        tasks=len(tasks),
        kinds=kinds,
        objects_read=len({row.object_id for row in rows}),
        bytes=_bytes(rows),
        bytes_read=sum(request.end - request.start for request in requests),
        read_requests=len(requests),
        write_requests=sum(kind.write_requests for kind in kinds),
        rows_removed=len(rows) - sum(kind.rows_kept for kind in kinds),
        topics=[share for kind, found in by_kind.items() for share in _shares(kind, found)],
    )


def _shares(kind: str, tasks: Iterable[Task]) -> list[TopicShare]:
    """Sum up by topic, in the order of the names."""
    tokens: dict[str, set[ClaimToken]] = defaultdict(set)
    size_bytes: dict[str, int] = defaultdict(int)
    for task in tasks:
        for part in task.parts:
            tokens[part.topic_name].add(part.token)
            size_bytes[part.topic_name] += _bytes(part.rows)
    return [TopicShare(name, kind, len(tokens[name]), size_bytes[name]) for name in sorted(tokens)]


def _bytes(rows: Iterable[Coordinates]) -> int:
    return sum(row.byte_size for row in rows)
