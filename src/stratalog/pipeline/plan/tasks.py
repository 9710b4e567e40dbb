"""What the driver and the executors tell each other. Plain values: they are pickled.

A task is one row of a job's plan. Everything in it is fixed by the plan, so that a repeated
attempt makes the same thing under another name. A task never fails for one unit's sake: what is
wrong with a unit is part of the answer, and the other units of the task are done all the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias
from uuid import UUID

from stratalog.control.log.model import Coordinates
from stratalog.control.pipeline.model import ClaimToken
from stratalog.ids import ObjectId, Offset, PartitionIndex, SegmentId, TopicId
from stratalog.segment.build import BuiltLog
from stratalog.segment.upload import UploadedLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """What every executor must know. It travels in the pickled function, never in a plan's rows,
    because the options may hold credentials; its text shows none."""

    objects_url: str
    segments_url: str
    """Empty if segments are kept in the same store."""
    segments_prefix: str
    chunk_bytes: int
    compress: bool
    encryption_key: str | None
    task_bytes_per_second: int = 0
    """What a task reads at the most; 0 is no limit."""
    cluster_id: UUID | None = None
    """Whose stores these must be; None if nobody has claimed them yet."""
    object_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    public_keys_pem: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The text of the PEM files: executors may not have them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPlan:
    """One segment to be built: consecutive rows of one partition, and nothing between them."""

    token: ClaimToken
    topic_id: TopicId
    topic_name: str
    partition: PartitionIndex
    base_offset: Offset
    last_offset: Offset
    size_bytes: int
    index_interval_bytes: int
    rows: Sequence[Coordinates]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeTask:
    """Segments of neighbouring partitions, so that one read serves several of them."""

    segments: Sequence[SegmentPlan]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPlan:
    """One partition's part of a split file."""

    token: ClaimToken
    topic_name: str
    """For the footer, which is to be understood without the control plane."""
    rows: Sequence[Coordinates]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitTask:
    """One split file to be written, its partitions in key order."""

    parts: Sequence[SplitPlan]
    salvages: bool = False
    """Whether a row that cannot be moved leaves its part with the longest run that can."""


Task: TypeAlias = MergeTask | SplitTask


def row_lists(task: Task) -> list[Sequence[Coordinates]]:
    """The rows of each segment, or of each part."""
    if isinstance(task, MergeTask):
        return [segment.rows for segment in task.segments]
    return [part.rows for part in task.parts]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitFailed:
    """Why a unit could not be done. The text names objects and offsets, never a secret."""

    token: ClaimToken
    error: str
    retriable: bool
    """Whether waiting may help (the store did not answer), or the data is bad."""
    row: Coordinates | None = None
    """The one that could not be moved, if it is that."""
    lost: bool = False
    """The row's object is not there: either the row is out of date, or the data is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMade:
    """A `.log` in the store, whose segment is to be finished by the driver."""

    token: ClaimToken
    segment_id: SegmentId
    key_base: str
    built: BuiltLog
    uploaded: UploadedLog


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPartMade:
    token: ClaimToken
    old_rows: Sequence[Coordinates]
    new_rows: Sequence[Coordinates]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitMade:
    """A split file in the store, to be committed by the driver."""

    object_id: ObjectId
    key: str
    size_bytes: int
    parts: Sequence[SplitPartMade]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """What a task cost."""

    bytes_read: int = 0
    bytes_written: int = 0
    requests: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDone:
    logs: Sequence[LogMade] = ()
    splits: Sequence[SplitMade] = ()
    failed: Sequence[UnitFailed] = ()
    effort: Effort = Effort()
