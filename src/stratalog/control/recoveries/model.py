"""Recoveries, and the changes that one makes to the control plane."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from stratalog.control.log.model import Coordinates
from stratalog.control.log.sequences import ProducerState
from stratalog.control.objects.model import ObjectKind, ObjectState
from stratalog.control.segments.model import EpochStart, SegmentToAdd, SegmentUploaded
from stratalog.control.sql.table import Selection, Table
from stratalog.ids import LeaderEpoch, ObjectId, Offset, ProducerId, TopicId, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """One restore of a backup, or one rebuild from the store."""

    recovery_id: UUID
    ground: str
    """The name of the backup, or how else the control plane came to be."""
    begun_ms: int
    finished_ms: int | None
    report: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredTopic:
    """A topic of which only the store tells, or that has more partitions there, or whose name
    belongs to another one."""

    topic_id: TopicId
    name: str
    partition_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredObject:
    object_id: ObjectId
    key: str
    kind: ObjectKind
    state: ObjectState
    size_bytes: int
    created_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredPartition:
    """All that changes in one partition."""

    key: TopicPartition
    log_start: Offset
    remote_end: Offset
    block_start: Offset
    high_watermark: Offset
    leader_epoch: LeaderEpoch
    last_commit_ms: int
    epochs: Sequence[EpochStart]
    """The epochs that the control plane may not know."""
    segments: Sequence[tuple[SegmentToAdd, SegmentUploaded]]
    removed_rows: Sequence[Coordinates]
    new_rows: Sequence[Coordinates]
    forget_producers: bool
    """True if some of the recovered records were not read, so that the sequences that are
    remembered may be too old. A producer that is not remembered may go on with any sequence."""
    producers: Mapping[ProducerId, ProducerState]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    topics: Sequence[RecoveredTopic]
    """A topic that gives a name up stands before the one that gets it."""
    objects: Sequence[RecoveredObject]
    partitions: Sequence[RecoveredPartition]


RECOVERIES = Table(
    "recoveries",
    recovery_id="uuid",
    ground="text",
    begun_ms="bigint",
    finished_ms="bigint null",
    report="text null",
)
RECOVERY = Selection(Recovery, RECOVERIES)
