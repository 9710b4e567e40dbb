"""Scans, which read topics whole, and sinks, which write once, with their tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from stratalog.control.log.model import Coordinates, PartitionState
from stratalog.control.segments.model import Segment
from stratalog.control.sql.table import Selection, Table
from stratalog.ids import (
    Offset,
    TopicPartition,
)
from stratalog.pieces import Piece

EARLIEST = Offset(-2)
LATEST = Offset(-1)


class ScanWish(NamedTuple):
    """A range of one partition that a scan wants to read."""

    partition: TopicPartition
    start: Offset = EARLIEST
    """`EARLIEST` is `log_start`, `LATEST` the high watermark."""
    end: Offset = LATEST
    """The first offset that is not wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedPartition:
    """Where a range of a partition lives, all of it, and its boundaries, from one snapshot.

    `segments` and then `rows` overlap with the range, in offset order: the first holds the range's
    start and the last its end, as far as both lie between `log_start` and the high watermark.
    """

    state: PartitionState
    pieces: Sequence[Piece]
    noted: Sequence[Segment]
    """The chained segments from the range's start on, also beyond its end, that note aborted
    transactions. The notes are where the marker is, which may come long after the records."""

    @property
    def segments(self) -> list[Segment]:
        return [piece for piece in self.pieces if isinstance(piece, Segment)]

    @property
    def rows(self) -> list[Coordinates]:
        return [piece for piece in self.pieces if isinstance(piece, Coordinates)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to all objects that its snapshot saw, until it expires."""

    lease_id: UUID
    holder: str
    started_ms: int
    expires_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanSnapshot:
    """The coordinates in `partitions`, which stay readable until the lease ends."""

    lease: Lease
    partitions: Sequence[ScannedPartition | None]
    """In the order of the wishes; None for a partition that does not exist."""


class SinkOrigin(NamedTuple):
    """The stream that writes to a sink: the same in every run from one checkpoint."""

    kind: str
    """The source of the name. Names of different kinds cannot be compared."""
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


class SinkOutcome(IntEnum):
    COMMITTED = 0
    REPEATED = 1
    """This batch of the sink was committed before, maybe long ago. Its new objects are not used,
    and the sweeper takes them."""


LEASES = Table("leases", lease_id="uuid", holder="text", started_ms="bigint", expires_ms="bigint")
LEASE = Selection(Lease, LEASES)

SINKS = Table(
    "sinks",
    sink_id="text",
    batch_id="bigint",
    committed_ms="bigint",
    records="bigint null",
    counted_batch_id="bigint null",
    origin="text null",
)
