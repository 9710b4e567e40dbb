"""The control plane's nouns about segments: plain, frozen values that cross its interface."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from stratalog.ids import (
    NO_BROKER,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    SegmentId,
    TopicId,
    TopicPartition,
)
from stratalog.pieces import Tier


class SegmentState(IntEnum):
    """The states of a remote log segment in Kafka, with their numbers there."""

    COPY_STARTED = 0
    COPY_FINISHED = 1
    DELETE_STARTED = 2
    DELETE_FINISHED = 3


class EpochStart(NamedTuple):
    epoch: LeaderEpoch
    start_offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentToAdd:
    """What is known of a segment before its upload begins."""

    segment_id: SegmentId
    topic_id: TopicId
    partition: PartitionIndex
    base_offset: Offset
    last_offset: Offset
    size_bytes: int
    """Of the `.log` as record batches, before chunks are compressed or encrypted."""
    max_timestamp: int
    leader_epochs: Sequence[EpochStart]
    """The epochs of its records. The first one's start is the segment's base."""
    key_base: str
    """The keys of its objects without their suffixes."""
    store_url: str = ""
    """Where an adopted segment lies. Empty is the cluster's own segment store."""
    broker_id: BrokerId = NO_BROKER
    min_timestamp: int | None = None
    """None if nobody knows: a batch tells it only if its time is the broker's."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic_id, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentToBar:
    """What the keys of a segment's objects say about it."""

    topic_id: TopicId
    partition: PartitionIndex
    base_offset: Offset
    key_base: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentUploaded:
    """What is known of a segment once its objects are in the store."""

    manifest: str
    """The text of the `.rsm-manifest`, so that a read needs no request for it."""
    stored_bytes: int
    """Of all its objects."""
    has_aborted: bool
    """Whether it has a transaction index."""
    custom_metadata: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment(SegmentToAdd):
    """A row of `segments`."""

    state: SegmentState
    chained: bool
    """Whether it is a part of its partition. Only then it is read, retained, counted, exported."""
    owned: bool
    """Whether its objects may be deleted. Those of an adopted topic belong to somebody else."""
    added_ms: int
    changed_ms: int
    uploaded: SegmentUploaded | None
    """None until it is finished."""

    @property
    def tier(self) -> Tier:
        return Tier.REMOTE

    @property
    def end_offset(self) -> Offset:
        return Offset(self.last_offset + 1)


class ChainOutcome(IntEnum):
    CHAINED = 0
    OVERTAKEN = 1
    """All its records were deleted meanwhile; so is the segment."""
