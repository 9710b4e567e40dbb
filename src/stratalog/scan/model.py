"""The nouns of a scan: the request, and the plan with its splits.

Splits travel to executors. They name objects and byte ranges and never give access: stores and keys
come with `WorkerAccess`, which is no part of any plan that is shown or written down.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from stratalog.batch.columns import AbortedRecords
from stratalog.control.scans.model import EARLIEST, LATEST, Lease
from stratalog.ids import Offset, PartitionIndex, TopicId
from stratalog.scan.extents import Extent


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


class AtTime(NamedTuple):
    """The first offset whose record is not older than a time, as in Kafka's offsets for times."""

    timestamp_ms: int
    or_latest: bool = True
    """A partition without such a record gives its end if this is true, and an error otherwise."""


Position: TypeAlias = Offset | AtTime
"""An offset, which may be `EARLIEST` or `LATEST`, or the offset that a time stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    default: Position
    by_partition: Mapping[tuple[str, int], Position] = field(default_factory=dict)
    """By topic name and partition."""


class ResolvedPositions(NamedTuple):
    """The offsets that positions stand for at one moment."""

    offsets: Sequence[dict[tuple[str, int], Offset]]
    """The offsets of each position, by topic name and partition."""
    topic_ids: Mapping[str, TopicId]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFilter:
    """Bounds on the rows of a scan: every row that a split gives lies inside.

    Records before `first_timestamp_ms` are not even read, as far as segments, rows and indexes
    show their times. Records behind `end_timestamp_ms` can be skipped only in rows with the
    broker's times and in segments whose least time is known, because producers' times need not
    grow with the offsets. A caller who knows that times do grow ends the scan `AtTime`.
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
        """True if no row can lie inside."""
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
    """A request to read topics. Exactly one of `topics`, `pattern` and `assign` is given."""

    topics: Sequence[str] = ()
    pattern: str | None = None
    """A regular expression that matches whole names."""
    assign: Mapping[str, Sequence[PartitionIndex]] = field(default_factory=dict)
    topic_ids: Mapping[str, TopicId] = field(default_factory=dict)
    """Ids of the topics that are meant: a later topic of the same name is another topic."""
    starting: Positions = Positions(default=EARLIEST)
    ending: Positions = Positions(default=LATEST)
    rows: RowFilter = RowFilter()
    columns: Sequence[ScanColumn] = tuple(ScanColumn)
    """The wanted columns, in the order in which the answer has them."""
    committed: bool = True
    """Leave out records of aborted transactions, and all beyond the last stable offset."""
    fail_on_data_loss: bool = True
    """A start that retention has deleted is an error. If false, the scan begins at `log_start`."""
    skips_undecodable: bool = False
    """Leave out batches whose records cannot be decoded although their checksums are right."""
    split_bytes: int | None = None
    """None means the value of the settings."""
    min_splits: int = 1
    """Make at least so many splits, if there are so many offsets."""
    max_split_offsets: int | None = None
    """Give no split more offsets than this."""
    lease_ms: int | None = None
    holder: str = "scan"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Consecutive extents of one partition."""

    topic: str
    partition: PartitionIndex
    first_offset: Offset
    """Extents may hold earlier records than wanted, and later ones."""
    end_offset: Offset
    extents: Sequence[Extent]
    aborted: Sequence[AbortedRecords] = ()
    """Ranges of producers' records whose transactions were aborted."""

    @property
    def size_bytes(self) -> int:
        return sum(extent.byte_size for extent in self.extents)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanSplit:
    """The work of one task: part of a thick partition, or many thin partitions."""

    stretches: Sequence[Stretch]
    """In the order of topic, partition and offset. The next split continues after the last one."""
    columns: Sequence[ScanColumn]
    rows: RowFilter
    skips_undecodable: bool = False

    @property
    def size_bytes(self) -> int:
        return sum(stretch.size_bytes for stretch in self.stretches)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedRange:
    """The range of one partition that a scan reads."""

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
    """The objects that the splits name stay readable until this lease ends."""

    @property
    def lease_expires_ms(self) -> int:
        """The time at which the lease ends, by the database's clock."""
        return self.lease.expires_ms
