"""Nouns of the remote tier that its files share."""

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
    """Everything beside the `.log`, as the files that Kafka would write."""

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
    """Of the marker that aborted it."""
    last_stable: Offset
    """The partition's last stable offset after that."""


class SourceRun(NamedTuple):
    """Consecutive batches that go into a segment, and what the control plane says of them."""

    base_offset: Offset
    last_offset: Offset
    leader_epoch: LeaderEpoch
    stamped: bool
    """Whether offsets, epochs and append times are already in the bytes."""
    append_time_ms: int | None = None
    """The time to stamp, of log-append-time batches that are not stamped."""
