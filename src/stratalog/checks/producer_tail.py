"""The state of a partition's producers at a segment's start, from the segment before it."""

from stratalog.checks.remote_tier import RemoteTier
from stratalog.checks.segment_audit import open_whole
from stratalog.control.segments.model import Segment
from stratalog.errors import CallError, DamagedError
from stratalog.ids import NO_OFFSET, Offset
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.objects.store import Buffer, Range
from stratalog.segment.index_object import read_index
from stratalog.segment.log_batches import is_dense
from stratalog.segment.manifest import IndexRange
from stratalog.segment.metadata import SegmentMetadata
from stratalog.segment.model import IndexKind
from stratalog.segment.producer_state import PartitionTail


async def segment_before(metadata: SegmentMetadata, segment: Segment) -> Segment | None:
    """Return the chained segment that ends where this one begins."""
    after = Offset(segment.base_offset - 2)
    found = await metadata.chained(segment.topic_partition, after=after, limit=1)
    return found[0] if found and found[0].end_offset == segment.base_offset else None


async def tail_before(
    metadata: SegmentMetadata, segment: Segment, tier: RemoteTier
) -> PartitionTail | None:
    """Return the state at the segment's start. None if the segment before it cannot give it."""
    before = await segment_before(metadata, segment)
    return None if before is None else await tail_between(before, segment, tier)


async def tail_between(before: Segment, segment: Segment, tier: RemoteTier) -> PartitionTail | None:
    """Return the state between two adjoining segments. None if the former cannot give it."""
    tail = await _tail_of(before, tier)
    is_first_of_ours = is_dense(segment) and not is_dense(before)
    return tail.decided() if tail is not None and is_first_of_ours else tail


async def _tail_of(segment: Segment, tier: RemoteTier) -> PartitionTail | None:
    """Read the segment's producer snapshot. None if it cannot be read, or cannot be true."""
    if segment.uploaded is None:
        return None
    try:
        tail = PartitionTail.from_snapshot(await _snapshot(segment, tier))
    except (ObjectNotFoundError, DamagedError, CallError):
        return None
    newest = max((entry.last_offset for entry in tail.producers.values()), default=NO_OFFSET)
    return tail if newest <= segment.last_offset else None


async def _snapshot(segment: Segment, tier: RemoteTier) -> bytes:
    opened = await open_whole(segment, tier)
    kind = IndexKind.PRODUCER_SNAPSHOT
    index_range = opened.manifest.indexes.get(kind, IndexRange(0, 0))
    stored: Buffer = b""
    if index_range.size_bytes:
        wanted = [Range(index_range.position, index_range.end)]
        [stored] = await opened.store.get_ranges(opened.indexes_key, wanted)
    return read_index(opened.manifest, kind, stored, opened.cipher, f"object {opened.indexes_key}")
