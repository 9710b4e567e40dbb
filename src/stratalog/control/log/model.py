"""Partitions, the coordinates of their batches and commits, and their tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple

from stratalog.batch.header import TimestampType
from stratalog.control.objects.model import OBJECTS
from stratalog.control.segments.model import Segment
from stratalog.control.sql.table import Expression, Selection, Table
from stratalog.ids import (
    NO_EPOCH,
    NO_OFFSET,
    BrokerId,
    LeaderEpoch,
    ObjectId,
    Offset,
    PartitionIndex,
    ProducerId,
    TopicId,
    TopicPartition,
)
from stratalog.pieces import Piece, Tier


class WriteTier(StrEnum):
    BLOCK = "block"
    LOCAL = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """The offsets of one partition, from one snapshot. See the table in docs/architecture.md."""

    topic_id: TopicId
    partition: PartitionIndex
    log_start: Offset
    remote_end: Offset
    block_start: Offset
    block_end: Offset
    high_watermark: Offset
    last_stable: Offset
    write_tier: WriteTier
    leader_epoch: LeaderEpoch
    size_bytes: int
    """Bytes of the chained segments and of the rows from `block_start` on, as batches: neither
    chunk compression nor encryption of segments counts."""
    last_commit_ms: int
    migrating: bool = False
    """True while the switch from local files to blocks is begun and neither done nor given up."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic_id, self.partition)


class BatchToCommit(NamedTuple):
    """One record batch inside a block that is about to be committed."""

    topic_id: TopicId
    partition: PartitionIndex
    byte_offset: int
    byte_size: int
    last_offset_delta: int
    max_timestamp: int
    timestamp_type: TimestampType
    producer_id: ProducerId
    producer_epoch: int
    base_sequence: int
    must_follow: bool = False
    """True if the broker has given up a batch before this one. Then an unknown producer must not
    begin with it, and out of order means that it is to be sent again."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic_id, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockToCommit:
    """An uploaded object and its batches, in byte order, sorted by partition."""

    object_id: ObjectId
    key: str
    size_bytes: int
    broker_id: BrokerId
    batches: Sequence[BatchToCommit]


class CommitOutcome(IntEnum):
    ACCEPTED = 0
    DUPLICATE = 1
    """The same sequence was committed before; the answer carries its first offset."""
    UNKNOWN_PARTITION = 2
    OUT_OF_ORDER_SEQUENCE = 3
    FENCED_PRODUCER = 4
    """A newer epoch of this producer has written already."""
    WRONG_TIER = 5
    """The partition does not write to blocks (any more)."""
    FOLLOWS_MISSING = 6
    """Out of order, because the broker gave up a batch before this one. The client has to send it
    again after that one; the answer "out of order" would make it start a new epoch instead."""


class CommitAnswer(NamedTuple):
    """The answer to one `BatchToCommit`. A tuple, because a commit makes thousands of them."""

    outcome: CommitOutcome
    base_offset: Offset = NO_OFFSET
    append_time_ms: int = -1
    """The commit's time, with which LOG_APPEND_TIME batches are stamped."""
    log_start: Offset = NO_OFFSET
    leader_epoch: LeaderEpoch = NO_EPOCH


class Coordinates(NamedTuple):
    """A row: which object, which bytes, which offsets. It may span several adjoining batches.

    A tuple because there are so many: it is made and packed in a quarter of a dataclass's time.
    """

    topic_id: TopicId
    partition: PartitionIndex
    base_offset: Offset
    last_offset: Offset
    object_id: ObjectId
    object_key: str
    byte_offset: int
    byte_size: int
    max_timestamp: int
    """The newest record's time; of a LOG_APPEND_TIME row, the commit's."""
    timestamp_type: TimestampType
    committed_ms: int
    """When its newest batch was committed. Tiering and retention go by it, so that neither takes a
    batch too soon."""
    leader_epoch: LeaderEpoch
    stamped: bool
    """True if offsets, epochs and append times are already in the bytes."""
    oldest_ms: int | None = None
    """When its oldest batch was committed, if a split has joined it from several rows. None: at
    `committed_ms`."""

    @property
    def tier(self) -> Tier:
        return Tier.BLOCK

    @property
    def end_offset(self) -> Offset:
        return Offset(self.last_offset + 1)

    @property
    def size_bytes(self) -> int:
        return self.byte_size

    @property
    def oldest_commit_ms(self) -> int:
        """The time since which its first batch waits for a segment."""
        return self.committed_ms if self.oldest_ms is None else self.oldest_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A request to read one partition from an offset."""

    topic_id: TopicId
    partition: PartitionIndex
    offset: Offset
    max_bytes: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic_id, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundBatches:
    """Where one span lives and the boundaries that belong to it, from one snapshot.

    `state` is None when the partition does not exist. `pieces` are one sequence without a gap, in
    offset order. It begins with the piece that contains the asked offset, and is empty at the high
    watermark and outside the partition. Empty anywhere else means that a piece is missing: a
    reader must never skip to a later one.
    """

    state: PartitionState | None
    pieces: Sequence[Piece]

    @property
    def segments(self) -> list[Segment]:
        return [piece for piece in self.pieces if isinstance(piece, Segment)]

    @property
    def rows(self) -> list[Coordinates]:
        return [piece for piece in self.pieces if isinstance(piece, Coordinates)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeQuery:
    topic_id: TopicId
    partition: PartitionIndex
    timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochQuery:
    partition: TopicPartition
    epoch: int


class EpochEnd(NamedTuple):
    """Where an epoch ended. Without an answer, `epoch` and `end_offset` are -1."""

    current_epoch: LeaderEpoch
    """The partition's own, at the time of the answer."""
    epoch: LeaderEpoch
    """The largest one that is not above the asked epoch."""
    end_offset: Offset
    """The first offset that was not written in it."""


class ActiveProducer(NamedTuple):
    """An idempotent producer whose sequences are remembered."""

    producer_id: ProducerId
    epoch: int
    last_sequence: int
    last_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsDeleted:
    """The answer to one DeleteRecords target."""

    topic_id: TopicId
    partition: PartitionIndex
    log_start: Offset


PARTITIONS = Table(
    "partitions",
    topic_id="uuid",
    partition="integer",
    log_start="bigint",
    remote_end="bigint",
    block_start="bigint",
    block_end="bigint null",
    last_stable="bigint null",
    write_tier="text",
    migrating_since_ms="bigint null",
)
HEADS = Table(
    "heads",
    topic_id="uuid",
    partition="integer",
    high_watermark="bigint",
    size_bytes="bigint",
    last_commit_ms="bigint",
    leader_epoch="integer",
)
EPOCHS = Table(
    "epochs",
    topic_id="uuid",
    partition="integer",
    leader_epoch="integer",
    start_offset="bigint",
)
PRODUCERS = Table(
    "producers",
    topic_id="uuid",
    partition="integer",
    producer_id="bigint",
    producer_epoch="integer",
    recent="bytea",
    last_ms="bigint",
)
BATCHES = Table(
    "batches",
    topic_id="uuid",
    partition="integer",
    base_offset="bigint",
    last_offset="bigint",
    object_id="uuid",
    byte_offset="bigint",
    byte_size="bigint",
    max_timestamp="bigint",
    timestamp_type="smallint",
    committed_ms="bigint",
    leader_epoch="integer",
    stamped="boolean",
    oldest_ms="bigint null",
)
BLOCK_ROW = BATCHES.shape_without("stamped", "oldest_ms")
"""A new row of a block. All its batches were committed at the same time."""
SPLIT_ROW = BATCHES.shape_without("stamped")
"""A new row of a split file, whose bytes are stamped with their offsets and epochs."""

STABLE_END = "COALESCE(partitions.last_stable, heads.high_watermark)"
"""`last_stable` is null while no transaction is open."""
OLDEST_MS = "COALESCE(batches.oldest_ms, batches.committed_ms)"
"""When the oldest batch of a row was committed: `Coordinates.oldest_commit_ms`."""

PARTITION_STATE = Selection(
    PartitionState,
    HEADS,
    PARTITIONS,
    # Null while blocks are being written.
    block_end=Expression("COALESCE(partitions.block_end, heads.high_watermark)", "bigint"),
    last_stable=Expression(STABLE_END, "bigint"),
    migrating=Expression("partitions.migrating_since_ms IS NOT NULL", "boolean"),
)
COORDINATES = Selection(Coordinates, BATCHES, object_key=OBJECTS["key"])
