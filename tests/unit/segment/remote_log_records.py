"""Records of Kafka's remote log metadata, for tests."""

from uuid import UUID

from stratalog.control.segments.model import EpochStart
from stratalog.ids import BrokerId, LeaderEpoch, Offset, PartitionIndex, SegmentId, TopicId
from stratalog.segment.remote_log_metadata import NamedPartition, SegmentAdded

PARTITION = NamedPartition("t", TopicId(UUID(int=5)), PartitionIndex(0))


def added(number: int, base: int, last: int, *epochs: tuple[int, int]) -> SegmentAdded:
    return SegmentAdded(
        partition=PARTITION,
        segment_id=SegmentId(UUID(int=number)),
        base_offset=Offset(base),
        last_offset=Offset(last),
        broker_id=BrokerId(1),
        max_timestamp=0,
        event_ms=0,
        leader_epochs=tuple(
            EpochStart(LeaderEpoch(epoch), Offset(start)) for epoch, start in epochs or [(0, base)]
        ),
        size_bytes=10,
    )
