"""The segments that the records of `__remote_log_metadata` describe, replayed in order.

The rules are the ones of KIP-405, as Kafka's own cache applies them: a segment is started, then
finished; its deletion is started, then finished; a record that does not fit the state is dropped.
An update replaces the custom metadata along with the state. A segment that finishes later and
holds all records of an earlier one supersedes it for good: the earlier segment does not come back
when the later one is deleted.

`epoch_lineage.py` decides which of the segments make up the partition.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from stratalog.control.segments.model import SegmentState
from stratalog.ids import NO_EPOCH, LeaderEpoch, Offset, SegmentId, TopicPartition
from stratalog.segment.errors import RemoteLogRecordError
from stratalog.segment.remote_log_metadata import (
    NamedPartition,
    PartitionDeleted,
    PartitionDeleteState,
    SegmentAdded,
    SegmentSnapshot,
    SegmentUpdated,
    decode_record,
)

_NEXT_STATES: Mapping[SegmentState, frozenset[SegmentState]] = {
    SegmentState.COPY_STARTED: frozenset(
        {SegmentState.COPY_STARTED, SegmentState.COPY_FINISHED, SegmentState.DELETE_STARTED}
    ),
    SegmentState.COPY_FINISHED: frozenset(
        {SegmentState.COPY_FINISHED, SegmentState.DELETE_STARTED}
    ),
    SegmentState.DELETE_STARTED: frozenset(
        {SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED}
    ),
    SegmentState.DELETE_FINISHED: frozenset({SegmentState.DELETE_FINISHED}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedPartition:
    partition: NamedPartition
    segments: tuple[SegmentAdded, ...]
    """The finished segments that no other supersedes, in the order in which they finished."""
    superseded: tuple[SegmentAdded, ...]
    unfinished: tuple[SegmentAdded, ...]
    """Segments whose upload or deletion is in progress, or was given up."""
    delete_state: PartitionDeleteState | None
    """Not None if the deletion of the partition has begun in Kafka."""
    known_end: Offset
    """The offset after the last one of all segments ever, unfinished and deleted ones included."""
    finished_end: Offset
    """The offset after the last one of all segments that ever finished."""
    highest_epoch: LeaderEpoch
    """The highest epoch of all segments ever. `NO_EPOCH` if there was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedTopics:
    partitions: Mapping[TopicPartition, FoldedPartition]
    dropped: int
    """The number of records that do not fit the records before them."""


def fold_records(values: Iterable[bytes | bytearray | memoryview | None]) -> FoldedTopics:
    """Replay the values of records. The records of one partition must come in order."""
    partitions: dict[TopicPartition, _Partition] = {}
    dropped = 0
    for index, value in enumerate(values):
        try:
            record = decode_record(value)
        except RemoteLogRecordError as error:
            raise RemoteLogRecordError(f"record {index}: {error}") from None
        # Kafka's own handler refuses snapshot records too: they do not name their partition.
        if isinstance(record, SegmentSnapshot):
            dropped += 1
            continue
        key = record.partition.id_partition
        partition = partitions.setdefault(key, _Partition(record.partition))
        dropped += not partition.apply(record)
    return FoldedTopics(
        partitions={key: partition.folded() for key, partition in sorted(partitions.items())},
        dropped=dropped,
    )


@dataclass(slots=True)
class _Partition:
    name: NamedPartition
    segments: dict[SegmentId, SegmentAdded] = field(default_factory=dict)
    """Finished segments are in the order in which they finished."""
    superseded: set[SegmentId] = field(default_factory=set)
    last_finished: int = -1
    """The highest offset of any segment that ever finished."""
    known_end: int = 0
    highest_epoch: LeaderEpoch = NO_EPOCH
    delete_state: PartitionDeleteState | None = None

    def apply(self, record: SegmentAdded | SegmentUpdated | PartitionDeleted) -> bool:
        """Apply a record. Returns False if it does not fit."""
        match record:
            case SegmentAdded():
                return self._add(record)
            case SegmentUpdated():
                return self._update(record)
            case PartitionDeleted():
                return self._delete(record)

    def folded(self) -> FoldedPartition:
        finished = [
            segment
            for segment in self.segments.values()
            if segment.state is SegmentState.COPY_FINISHED
        ]
        return FoldedPartition(
            partition=self.name,
            segments=tuple(s for s in finished if s.segment_id not in self.superseded),
            superseded=tuple(s for s in finished if s.segment_id in self.superseded),
            unfinished=tuple(
                segment
                for segment in self.segments.values()
                if segment.state in (SegmentState.COPY_STARTED, SegmentState.DELETE_STARTED)
            ),
            delete_state=self.delete_state,
            known_end=Offset(self.known_end),
            finished_end=Offset(self.last_finished + 1),
            highest_epoch=self.highest_epoch,
        )

    def _add(self, added: SegmentAdded) -> bool:
        known = self.segments.get(added.segment_id)
        if added.state is not SegmentState.COPY_STARTED:
            return False
        if known is not None and known.state is not SegmentState.COPY_STARTED:
            return False
        self.segments[added.segment_id] = added
        self.known_end = max(self.known_end, added.last_offset + 1)
        self.highest_epoch = max(self.highest_epoch, added.leader_epochs[-1].epoch)
        return True

    def _update(self, updated: SegmentUpdated) -> bool:
        known = self.segments.get(updated.segment_id)
        if known is None or updated.state not in _NEXT_STATES[known.state]:
            return False
        segment = replace(
            known,
            broker_id=updated.broker_id,
            event_ms=updated.event_ms,
            custom_metadata=updated.custom_metadata,
            state=updated.state,
        )
        if updated.state is SegmentState.COPY_FINISHED and known.state is not updated.state:
            self._finish(segment)
        else:
            self.segments[segment.segment_id] = segment
        return True

    def _finish(self, segment: SegmentAdded) -> None:
        # Nearly every segment begins after the end of all others. Then it supersedes none.
        if segment.base_offset <= self.last_finished:
            self.superseded |= {
                other.segment_id
                for other in self.segments.values()
                if other.state is SegmentState.COPY_FINISHED and _holds(segment, other)
            }
        self.last_finished = max(self.last_finished, segment.last_offset)
        del self.segments[segment.segment_id]
        self.segments[segment.segment_id] = segment

    def _delete(self, deleted: PartitionDeleted) -> bool:
        known = -1 if self.delete_state is None else self.delete_state
        if deleted.state - known not in (0, 1):
            return False
        self.delete_state = deleted.state
        if deleted.state is PartitionDeleteState.FINISHED:
            self.segments.clear()
        return True


def _holds(segment: SegmentAdded, other: SegmentAdded) -> bool:
    """Tell if a segment holds all offsets of another one, epoch by epoch."""
    ranges, others = _epoch_ranges(segment), _epoch_ranges(other)
    return all(
        epoch in ranges and ranges[epoch][0] <= start and end <= ranges[epoch][1]
        for epoch, (start, end) in others.items()
    )


def _epoch_ranges(segment: SegmentAdded) -> dict[int, tuple[int, int]]:
    """Return the offsets `[start, end)` of each epoch of a segment."""
    starts = [start for _, start in segment.leader_epochs]
    ends = [*starts[1:], segment.last_offset + 1]
    return {
        epoch: (start, end)
        for (epoch, start), end in zip(segment.leader_epochs, ends, strict=True)
        if start < end
    }
