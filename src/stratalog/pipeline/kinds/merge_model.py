"""The nouns of a merge: the planned segments, the task that builds them, the uploaded logs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from stratalog.control.log.model import Coordinates
from stratalog.control.pipeline.model import ClaimToken
from stratalog.ids import Offset, PartitionIndex, SegmentId, TopicId
from stratalog.pipeline.plan.tasks import Task
from stratalog.segment.build import BuiltLog
from stratalog.segment.upload import UploadedLog

MERGE = "merge"


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
class MergeTask(Task):
    """Segments of neighbouring partitions, so that one read serves several of them."""

    kind: ClassVar[str] = MERGE
    parts: Sequence[SegmentPlan]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMade:
    """A `.log` in the store, whose segment is to be finished by the driver."""

    token: ClaimToken
    segment_id: SegmentId
    key_base: str
    built: BuiltLog
    uploaded: UploadedLog
