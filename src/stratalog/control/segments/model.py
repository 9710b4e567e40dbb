"""Segments as the control plane keeps them, and their table."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from stratalog.control.sql.table import Selection, Table
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
    """A segment before its upload begins."""

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
    """None if unknown: a batch carries it only if its time is the broker's."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic_id, self.partition)

    @property
    def epochs_json(self) -> str:
        """The leader epochs as `segments` keeps them."""
        return json.dumps([list(epoch) for epoch in self.leader_epochs])


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentToBar:
    """A segment without a row, as the keys of its objects describe it."""

    topic_id: TopicId
    partition: PartitionIndex
    base_offset: Offset
    key_base: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentUploaded:
    """The upload of a segment, once its objects are in the store."""

    manifest: str
    """The text of the `.rsm-manifest`, so that a read needs no request for it."""
    stored_bytes: int
    """Of all its objects."""
    has_aborted: bool
    """True if it has a transaction index."""
    custom_metadata: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment(SegmentToAdd):
    """A row of `segments`."""

    state: SegmentState
    chained: bool
    """True if it is a part of its partition. Only then it is read, retained, counted, exported."""
    owned: bool
    """True if its objects may be deleted. Objects of an adopted topic belong to another cluster."""
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


def _read_epochs(text: str) -> tuple[EpochStart, ...]:
    return tuple(EpochStart(LeaderEpoch(epoch), Offset(start)) for epoch, start in json.loads(text))


SEGMENTS = Table(
    "segments",
    segment_id="uuid",
    topic_id="uuid",
    partition="integer",
    base_offset="bigint",
    last_offset="bigint",
    size_bytes="bigint",
    max_timestamp="bigint",
    leader_epochs="text",
    key_base="text",
    store_url="text",
    broker_id="integer",
    min_timestamp="bigint null",
    state="smallint",
    chained="boolean",
    owned="boolean",
    added_ms="bigint",
    changed_ms="bigint",
    manifest="text null",
    stored_bytes="bigint null",
    has_aborted="boolean null",
    custom_metadata="bytea null",
)
_UPLOADED = Selection(
    SegmentUploaded,
    SEGMENTS,
    filled=("manifest", "stored_bytes", "has_aborted"),
    none_without="manifest",
)
SEGMENT = Selection(
    Segment,
    SEGMENTS,
    leader_epochs=SEGMENTS["leader_epochs"].decoded(_read_epochs),
    uploaded=_UPLOADED,
)
SEGMENT_ID = SEGMENTS.shape("segment_id")
