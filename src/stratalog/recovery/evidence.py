"""The evidence of a partition's records, from the store and the control plane. Values only."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from stratalog.block.footer import EarlierAnswer
from stratalog.ids import ObjectId, Offset, TopicPartition


class Source(IntEnum):
    """How a stretch of offsets is known. Of stretches that lead equally far the lower wins."""

    KNOWN = 0
    """By a row of the control plane."""
    SPLIT = 1
    """By the stamped footer of a split file."""
    BLOCK = 2
    """By a later block of the same writer, which tells the offsets."""
    INFERRED = 3
    """Because the blocks that no footer tells of fit in one order only."""
    LOST = 4
    """By a row of the control plane, whose object the store has lost."""


class BatchSequence(NamedTuple):
    """The identity of a batch of an idempotent producer."""

    producer_id: int
    epoch: int
    base_sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartBatch:
    """One batch of a block."""

    byte_offset: int
    byte_size: int
    record_count: int
    max_timestamp: int
    sequence: BatchSequence | None = None
    """None if its producer is not idempotent, or its header was not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPart:
    """The batches of one partition in a block that the control plane does not know."""

    writer: Hashable
    """Blocks of one writer are committed in the order of their sequences."""
    sequence: int
    object_id: ObjectId
    object_key: str
    size_bytes: int
    """Of the whole object."""
    created_ms: int
    batches: Sequence[PartBatch]
    commits: int = 0
    """The commits of its writer that had succeeded when the block was sealed."""

    @property
    def record_count(self) -> int:
        return sum(batch.record_count for batch in self.batches)


class Stretch(NamedTuple):
    """Offsets that lie together: a row, a range of a split file, or a batch of a block."""

    base: int
    end: int
    source: Source
    item: object
    """Where the bytes lie; the planner does not look into it."""


class FoundSegment(NamedTuple):
    """A whole segment that the control plane does not know."""

    base: int
    end: int
    item: object


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionEvidence:
    key: TopicPartition
    log_start: int
    remote_end: int
    block_start: int
    high_watermark: int
    deleted_before: int = 0
    """All records before this offset were deleted by a client, as a note in the store tells."""
    is_new: bool = False
    """True if the control plane knows nothing of the partition, not even its first offset."""
    stretches: Sequence[Stretch] = ()
    """Of rows and split files, with all offsets known."""
    segments: Sequence[FoundSegment] = ()
    parts: Sequence[BlockPart] = ()
    answers: Mapping[tuple[Hashable, int], EarlierAnswer] = field(default_factory=dict)
    """By writer and sequence of the block that they speak of."""
    assumed: frozenset[tuple[ObjectId, int]] = frozenset()
    """Batches, by object and byte offset, whose offsets follow from the batches before
    them in the block."""


class OffsetRange(NamedTuple):
    start: Offset
    end: Offset
