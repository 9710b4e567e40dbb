"""The nouns of a scan: what is asked for, and the pieces of work that answer it.

Splits travel to executors. They say where bytes lie and never how to get in: stores and keys
come with `WorkerAccess`, which is no part of any plan that is shown or written down.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from stratalog.batch.columns import AbortedRecords, BatchRun
from stratalog.control.scans.model import EARLIEST, LATEST, Lease
from stratalog.control.segments.model import Segment
from stratalog.ids import Offset, PartitionIndex, TopicId


class ScanColumn(StrEnum):
    """The columns of a topic, in order, named as Spark's Kafka source names them."""

    KEY = "key"
    VALUE = "value"
    TOPIC = "topic"
    PARTITION = "partition"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    TIMESTAMP_TYPE = "timestampType"
    HEADERS = "headers"
    LEADER_EPOCH = "leaderEpoch"
    TIER = "tier"


class Tier(StrEnum):
    BLOCK = "block"
    REMOTE = "remote"


class AtTime(NamedTuple):
    """The first offset whose record is not older, as Kafka's offsets for times."""

    timestamp_ms: int
    or_latest: bool = True
    """What a partition without such a record gives: its end, or an error."""


Position: TypeAlias = Offset | AtTime
"""An offset (`EARLIEST` and `LATEST` among them), or one that a time stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    default: Position
    by_partition: Mapping[tuple[str, int], Position] = field(default_factory=dict)
    """By topic name and partition."""


class ResolvedPositions(NamedTuple):
    """What positions stand for at one moment."""

    offsets: Sequence[dict[tuple[str, int], Offset]]
    """Of each of the positions, by topic name and partition."""
    topic_ids: Mapping[str, TopicId]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFilter:
    """Rows outside are not wanted: every row that a split gives is inside.

    What lies before `first_timestamp_ms` is not even read, as far as segments, rows and indexes
    tell. Of what lies behind `end_timestamp_ms` that can only be said where times are the broker's,
    of rows and of segments whose least time is known: producers' own need not grow with the
    offsets. Whoever knows that they do ends a scan `AtTime`.
    """

    partitions: frozenset[int] | None = None
    first_partition: int | None = None
    end_partition: int | None = None
    first_offset: int | None = None
    end_offset: int | None = None
    first_timestamp_ms: int | None = None
    end_timestamp_ms: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no row can be inside."""
        bounds = (
            (self.first_partition, self.end_partition),
            (self.first_offset, self.end_offset),
            (self.first_timestamp_ms, self.end_timestamp_ms),
        )
        return any(first is not None and end is not None and first >= end for first, end in bounds)

    def has_partition(self, partition: int) -> bool:
        return (
            not self.is_empty
            and (self.partitions is None or partition in self.partitions)
            and (self.first_partition is None or partition >= self.first_partition)
            and (self.end_partition is None or partition < self.end_partition)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """What to read. Exactly one of `topics`, `pattern` and `assign` is given."""

    topics: Sequence[str] = ()
    pattern: str | None = None
    """A regular expression that matches whole names."""
    assign: Mapping[str, Sequence[PartitionIndex]] = field(default_factory=dict)
    topic_ids: Mapping[str, TopicId] = field(default_factory=dict)
    """Topics that are meant by their ids: a later one of the same name is another topic."""
    starting: Positions = Positions(default=EARLIEST)
    ending: Positions = Positions(default=LATEST)
    rows: RowFilter = RowFilter()
    columns: Sequence[ScanColumn] = tuple(ScanColumn)
    """In the order in which they are wanted."""
    committed: bool = True
    """Leave out what was rolled back, and all that lies beyond the last stable offset."""
    fail_on_data_loss: bool = True
    """Whether a start below what retention has left is an error; otherwise it is lifted."""
    split_bytes: int | None = None
    """None is the settings'."""
    min_splits: int = 1
    """Make splits smaller until there are so many, if there are so many offsets."""
    max_split_offsets: int | None = None
    """Let no split have more offsets."""
    lease_ms: int | None = None
    holder: str = "scan"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPiece:
    """Bytes of a block or a split file: one row of the control plane, or neighbours joined."""

    object_key: str
    byte_offset: int
    byte_size: int
    run: BatchRun
    last_offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPiece:
    """Bytes of a segment's log, from the batch that belongs to `start` to the one of `end`.

    A batch begins at either if the piece is exact. Otherwise both mean the first entry of the
    offset index that lies there or later, or the end of the log: for the executor to look up,
    because a planner that read the indexes of all segments would not scale. Two pieces that meet
    look up the same entry, so every batch is in one of them.
    """

    segment: Segment
    start: int
    end: int
    exact: bool
    first_offset: Offset
    """What comes before it is left out: it is in the segment before, where adopted ones overlap."""
    end_offset: Offset | None = None
    """If the piece was cut by offsets: then the executor also looks up, between `start` and `end`,
    where the batches from `first_offset` to before this one lie."""

    @property
    def byte_size(self) -> int:
        """What is read, or more of it if it was cut by offsets."""
        return self.end - self.start


Piece: TypeAlias = RowPiece | SegmentPiece


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Consecutive pieces of one partition."""

    topic: str
    partition: PartitionIndex
    first_offset: Offset
    """Pieces may hold earlier records, and later ones than wanted."""
    end_offset: Offset
    pieces: Sequence[Piece]
    aborted: Sequence[AbortedRecords] = ()
    """Ranges of producers' records that were rolled back."""

    @property
    def size_bytes(self) -> int:
        return sum(piece.byte_size for piece in self.pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanSplit:
    """The work of one task: a piece of a thick partition, or many thin ones."""

    stretches: Sequence[Stretch]
    """By topic, partition and offset. The next split goes on from here."""
    columns: Sequence[ScanColumn]
    rows: RowFilter

    @property
    def size_bytes(self) -> int:
        return sum(stretch.size_bytes for stretch in self.stretches)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedRange:
    """What of one partition a scan reads."""

    topic: str
    partition: PartitionIndex
    start: Offset
    end: Offset
    high_watermark: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan:
    splits: Sequence[ScanSplit]
    ranges: Sequence[ScannedRange]
    lease: Lease
    """What the splits point at stays readable until it ends."""

    @property
    def lease_expires_ms(self) -> int:
        """By the database's clock."""
        return self.lease.expires_ms
