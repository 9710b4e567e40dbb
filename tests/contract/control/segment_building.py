"""Short ways to say which segments a test has."""

import os
from itertools import count
from typing import Any

from stratalog.control.plane import ControlPlane
from stratalog.control.segments.model import EpochStart, Segment, SegmentToAdd, SegmentUploaded
from stratalog.ids import LeaderEpoch, Offset, SegmentId, TopicPartition, uuid7

_numbers = count(1)

UPLOADED = SegmentUploaded(manifest='{"version": "1"}', stored_bytes=1_234, has_aborted=False)


def epoch(number: int, start: int) -> EpochStart:
    return EpochStart(LeaderEpoch(number), Offset(start))


def segment(
    partition: TopicPartition, base: int, last: int, *, size: int = 1_000, **changes: Any
) -> SegmentToAdd:
    segment_id = SegmentId(uuid7(next(_numbers), os.urandom))
    values: dict[str, Any] = {
        "segment_id": segment_id,
        "topic_id": partition.topic_id,
        "partition": partition.partition,
        "base_offset": Offset(base),
        "last_offset": Offset(last),
        "size_bytes": size,
        "max_timestamp": 1_000,
        "leader_epochs": (epoch(0, base),),
        "key_base": f"segments/{partition.partition}/{base:020}-{segment_id}",
    }
    return SegmentToAdd(**values | changes)


async def finished(plane: ControlPlane, partition: TopicPartition, *args: Any) -> SegmentId:
    """A segment that waits to be chained."""
    return await finish(plane, segment(partition, *args))


async def finish(plane: ControlPlane, added: SegmentToAdd) -> SegmentId:
    await plane.segments.add(added)
    await plane.segments.finish(added.segment_id, UPLOADED)
    return added.segment_id


async def known(plane: ControlPlane, segment_id: SegmentId) -> Segment | None:
    for each in await plane.segments.all(limit=1_000):
        if each.segment_id == segment_id:
            return each
    return None


async def chain_of(plane: ControlPlane, partition: TopicPartition) -> list[tuple[int, int]]:
    """First and last offset of every chained segment."""
    chained = await plane.segments.chained(partition, limit=1_000)
    return [(each.base_offset, each.last_offset) for each in chained]
