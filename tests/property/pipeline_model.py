"""The pieces that retention may and must remove from a partition: whole pieces, from its start
on."""

from collections.abc import Sequence

from tests.unit.pipeline.lab import Lab, WrittenBatch

from stratalog.control.log.model import PartitionState
from stratalog.control.topics.model import Topic
from stratalog.ids import Offset
from stratalog.janitor.retention import Retention


def check_kept(
    batches: Sequence[WrittenBatch], kept: Retention, start: int, new_start: int
) -> None:
    """Nothing went that the limits protect. Starts move forward only."""
    assert new_start >= start
    gone = [one for one in batches if start < one.end <= new_start]
    assert new_start == (gone[-1].end if gone else start), "whole batches go"
    assert all(is_due(batches, kept, one.end, [one]) for one in gone)


def is_due(
    batches: Sequence[WrittenBatch], kept: Retention, end: int, piece: Sequence[WrittenBatch]
) -> bool:
    """Tell if a piece up to `end` is too old, or if enough bytes remain after it."""
    too_old = kept.ms is not None and all(one.age_ms > kept.ms for one in piece)
    after = sum(one.size_bytes for one in batches if one.base >= end)
    return too_old or (kept.bytes is not None and after >= kept.bytes)


async def check_gone(lab: Lab, topic: Topic, state: PartitionState, kept: Retention) -> None:
    """The first piece that is left is not due."""
    batches = lab.batches[state.topic_partition]
    piece = await first_piece(lab, topic, state)
    if piece is not None:
        base, end = piece
        held = [one for one in batches if one.base >= base and one.end <= end]
        assert not is_due(batches, kept, end, held)


async def first_piece(lab: Lab, topic: Topic, state: PartitionState) -> tuple[int, int] | None:
    """The offsets of the partition's first segment, or, without any, of its first row."""
    segments = await lab.segments(topic, state.partition)
    if segments:
        return segments[0]
    after = Offset(state.block_start - 1)
    rows = await lab.control.log.all_coordinates(state.topic_partition, after=after, limit=1)
    return (rows[0].base_offset, rows[0].last_offset + 1) if rows else None
