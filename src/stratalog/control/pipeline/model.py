"""The pipeline: aged partitions, claims on them, splits and runs, with their tables."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple, NewType
from uuid import UUID

from stratalog.control.log.model import Coordinates
from stratalog.control.sql.table import Expression, Selection, Table
from stratalog.ids import ObjectId, Offset, PartitionIndex, TopicId, TopicPartition

RunId = NewType("RunId", UUID)
ClaimToken = NewType("ClaimToken", UUID)


class UnitKind(StrEnum):
    MERGE = "merge"
    """A partition's aged rows become segments."""
    SPLIT = "split"
    """A partition's aged rows move together into a split file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgedPartition:
    """The rows of a partition that have aged: a prefix of its block range without a hole."""

    topic_id: TopicId
    partition: PartitionIndex
    first_offset: Offset
    """`block_start`."""
    end_offset: Offset
    remote_end: Offset
    """Merging is possible if this is `first_offset`."""
    rows: int
    bytes: int
    objects: int
    """The number of objects that hold the rows."""
    oldest_ms: int
    """When the oldest batch of the first of them was committed."""
    attempts: int
    """Failures in a row of the work on this partition."""
    parked: bool
    """True if it failed too often, and waits for an operator."""
    failed_ms: int | None = None
    """When the work on it failed last, counted or not; None if it has succeeded since."""
    done_ms: int | None = None
    """When it succeeded last, if that is known."""
    claimed: bool = False
    """True if a run is at work on it now."""
    triggered_ms: int | None = None
    """All batches committed up to then are wanted in segments, however few they are."""
    paused: bool = False
    """True if no run works on its topic until it is resumed. Its rows are not counted."""

    @property
    def triggered(self) -> bool:
        return self.triggered_ms is not None and self.oldest_ms <= self.triggered_ms

    @property
    def waiting_since_ms(self) -> int:
        """When it began to wait for its turn. A split leaves the age as it is, but is a turn."""
        return max(self.oldest_ms, self.done_ms or 0)

    @property
    def has_failed(self) -> bool:
        """True if the rows that failed are still there. An older version notes none of its
        successes, but takes the rows away."""
        return self.failed_ms is not None and self.failed_ms >= self.oldest_ms

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic_id, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimWish:
    """A range that a run wants to work on."""

    partition: TopicPartition
    kind: UnitKind
    first_offset: Offset
    end_offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A range of a partition on which one run works until the claim expires."""

    token: ClaimToken
    run_id: RunId
    partition: TopicPartition
    kind: UnitKind
    first_offset: Offset
    end_offset: Offset
    expires_ms: int
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPart:
    """One partition in a split file: its old rows and the new rows that replace them."""

    token: ClaimToken
    old_rows: Sequence[Coordinates]
    """Contiguous, in offset order, exactly as planned."""
    new_rows: Sequence[Coordinates]
    """The same offsets, stamped, in the split file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitToCommit:
    """An uploaded split file. Its parts are swapped singly; one that does not fit is dropped."""

    object_id: ObjectId
    key: str
    size_bytes: int
    parts: Sequence[SplitPart]


class SplitOutcome(IntEnum):
    SWAPPED = 0
    ROWS_CHANGED = 1
    """The rows differ from the planned ones: deleted, expired, or split by others. Or the split
    file is being deleted, because all rows that it ever had are gone."""
    CLAIM_LOST = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of the pipeline, in progress or done."""

    run_id: RunId
    holder: str
    """Host and process, for people."""
    started_ms: int
    finished_ms: int | None
    report: Mapping[str, object]
    """Figures of planning, reading, writing and committing; see `pipeline/report.py`."""


class DeadObject(NamedTuple):
    """An object of which little is still referred to."""

    object_id: ObjectId
    size_bytes: int
    """With the bytes that no row refers to any more, its footer included."""


class ObjectCursor(NamedTuple):
    """The last live object that a search has looked at."""

    committed_ms: int
    object_id: ObjectId


class DeadObjects(NamedTuple):
    """The findings of one step of a search through the live objects."""

    found: Sequence[DeadObject]
    after: ObjectCursor | None
    """Where the next step begins, also if this one has found nothing. None: there is no next."""


class ParkedUnit(NamedTuple):
    partition: TopicPartition
    attempts: int
    error: str
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TierStatus:
    """Where the pipeline stands with one topic."""

    topic_id: TopicId
    tiered_end: Mapping[PartitionIndex, Offset]
    block_start: Mapping[PartitionIndex, Offset]
    high_watermark: Mapping[PartitionIndex, Offset]
    pending_rows: int
    """All rows that are not converted, aged or not."""
    pending_bytes: int
    pending_split_files: int
    eligible_rows: int
    eligible_bytes: int
    oldest_ms: int | None
    """When the oldest batch that is not converted was committed; None if there is none."""
    segments: int
    paused_since_ms: int | None
    triggered_ms: int | None
    parked: Sequence[ParkedUnit]


class TopicOrders(NamedTuple):
    """The orders of people about one topic."""

    paused_ms: int | None = None
    triggered_ms: int | None = None
    """Nothing takes a trigger back: it ends when all older batches are converted."""


CLAIMS = Table(
    "claims",
    topic_id="uuid",
    partition="integer",
    token="uuid null",
    run_id="uuid null",
    kind="text null",
    first_offset="bigint null",
    end_offset="bigint null",
    expires_ms="bigint null",
    attempts="integer",
    error="text null",
    parked_ms="bigint null",
    begun_token="uuid null",
    failed_ms="bigint null",
    done_ms="bigint null",
)
CLAIMED_PARTITION = Selection(TopicPartition, CLAIMS)
CLAIM = Selection(
    Claim,
    CLAIMS,
    partition=CLAIMED_PARTITION,
    filled=("token", "run_id", "kind", "first_offset", "end_offset", "expires_ms"),
)
"""Of claims that are held."""
PARKED_UNIT = Selection(
    ParkedUnit,
    CLAIMS,
    partition=CLAIMED_PARTITION,
    error=Expression("COALESCE(claims.error, '')", "text"),
    since_ms=CLAIMS["parked_ms"],
    filled=("since_ms",),
)
"""Of claims that are parked."""

RUNS = Table(
    "runs",
    run_id="uuid",
    holder="text",
    started_ms="bigint",
    finished_ms="bigint null",
    report="text",
)
RUN = Selection(Run, RUNS, report=RUNS["report"].decoded(json.loads))

PIPELINE_TOPICS = Table(
    "pipeline_topics", topic_id="uuid", paused_ms="bigint null", triggered_ms="bigint null"
)
TOPIC_ORDERS = Selection(TopicOrders, PIPELINE_TOPICS)
