"""The nouns of the remote tier that several of its files share."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from stratalog.ids import LeaderEpoch, Offset, ProducerId


class IndexKind(StrEnum):
    """The parts of an `.indexes` object by their names in the manifest, in their order there."""

    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    PRODUCER_SNAPSHOT = "producerSnapshot"
    LEADER_EPOCH = "leaderEpoch"
    TRANSACTION = "transaction"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentIndexes:
    """All indexes of a segment, as the files that Kafka would write."""

    offset: bytes
    timestamp: bytes
    producer_snapshot: bytes
    leader_epoch: bytes
    transaction: bytes = b""
    """Empty if no transaction was aborted in the segment."""


class AbortedTransaction(NamedTuple):
    """An entry of a transaction index."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    """The offset of the marker that aborted it."""
    last_stable: Offset
    """The partition's last stable offset after the marker."""


class SourceRun(NamedTuple):
    """Consecutive batches that go into a segment, as the control plane describes them."""

    base_offset: Offset
    last_offset: Offset
    leader_epoch: LeaderEpoch
    stamped: bool
    """True if offsets, epochs and append times are already in the bytes."""
    append_time_ms: int | None = None
    """The time to stamp into log-append-time batches that are not stamped yet."""
