"""Partitions whose records are in segments and in rows."""

import os
from collections.abc import Sequence

from tests.contract.control.building import batch, change, commit, state_of

from stratalog.checks.promises import boundaries_hold
from stratalog.control.log.model import Coordinates, FoundBatches
from stratalog.control.plane import ControlPlane
from stratalog.control.segments.model import EpochStart, Segment, SegmentToAdd, SegmentUploaded
from stratalog.control.sql.database import Database
from stratalog.ids import LeaderEpoch, Offset, SegmentId, TopicPartition, new_topic_id

UPLOADED = SegmentUploaded(manifest="{}", stored_bytes=200, has_aborted=False)
SEGMENT_BYTES = 250
"""Not the sum of the rows of a segment, so that a test notices which of the two was taken."""


async def finished(
    plane: ControlPlane, key: TopicPartition, base: int, end: int, *, timestamp: int = 1_000
) -> SegmentId:
    """A segment that is uploaded and not chained."""
    segment = SegmentToAdd(
        segment_id=SegmentId(new_topic_id(os.urandom)),
        topic_id=key.topic_id,
        partition=key.partition,
        base_offset=Offset(base),
        last_offset=Offset(end - 1),
        size_bytes=SEGMENT_BYTES,
        max_timestamp=timestamp,
        leader_epochs=[EpochStart(LeaderEpoch(0), Offset(base))],
        key_base=f"segments/{base}",
    )
    await plane.segments.add(segment)
    await plane.segments.finish(segment.segment_id, UPLOADED)
    return segment.segment_id


async def chain(
    plane: ControlPlane, key: TopicPartition, base: int, end: int, *, timestamp: int = 1_000
) -> SegmentId:
    segment_id = await finished(plane, key, base, end, timestamp=timestamp)
    await plane.segments.chain(segment_id)
    return segment_id


async def two_tiers(
    plane: ControlPlane, key: TopicPartition, timestamps: Sequence[int] = (1_000, 1_000, 1_000)
) -> None:
    """Offsets 0 to 59 in three segments of 20 records and 250 bytes, then four rows of 10 records
    and 100 bytes each."""
    for _ in range(10):
        await commit(plane, batch(key, 10))
    for i, timestamp in enumerate(timestamps):
        await chain(plane, key, 20 * i, 20 * (i + 1), timestamp=timestamp)


async def only_segments(plane: ControlPlane, database: Database, key: TopicPartition) -> None:
    """Offsets 0 to 59 in three segments that belong to another cluster, and no writes, as of an
    adopted topic."""
    for _ in range(6):
        await commit(plane, batch(key, 10))
    for base in (0, 20, 40):
        await chain(plane, key, base, base + 20)
    await change(database, "UPDATE segments SET owned = false")
    await change(
        database,
        "UPDATE partitions SET write_tier = 'local', block_end = 60 WHERE topic_id = $1"
        " AND partition = $2",
        *key,
    )


async def chained(plane: ControlPlane, key: TopicPartition) -> list[int]:
    """The first offsets of the chained segments."""
    return [each.base_offset for each in await plane.segments.chained(key, limit=1_000)]


async def doomed(plane: ControlPlane) -> list[Segment]:
    found = await plane.segments.doomed(grace_ms=0, limit=1_000)
    return sorted(found, key=lambda segment: segment.base_offset)


async def assert_consistent(plane: ControlPlane, key: TopicPartition) -> None:
    """Boundaries, sizes and the offsets of both tiers agree with each other."""
    state = await state_of(plane, key)
    assert boundaries_hold(state) == []
    segments = await plane.segments.chained(key, limit=1_000)
    rows = [
        row
        for row in await plane.log.all_coordinates(key, limit=1_000)
        if row.last_offset >= state.block_start
    ]
    sizes = [each.size_bytes for each in segments] + [row.byte_size for row in rows]
    assert state.size_bytes == sum(sizes)
    assert end_of([*segments, *rows], state.log_start) == state.high_watermark


def end_of(pieces: Sequence[Segment | Coordinates], offset: int) -> int:
    """The first offset after the pieces, which must hold every one from `offset` on."""
    for piece in pieces:
        assert piece.base_offset <= offset <= piece.last_offset
        offset = piece.last_offset + 1
    return offset


def bases(found: FoundBatches) -> tuple[list[int], list[int]]:
    """The first offsets of the segments and of the rows."""
    return (
        [segment.base_offset for segment in found.segments],
        [row.base_offset for row in found.rows],
    )
