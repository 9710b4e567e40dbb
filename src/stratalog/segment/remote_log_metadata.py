"""The values of records in `__remote_log_metadata`, the topic in which Kafka keeps its segments.

    uvarint frame version 1, uvarint kind, uvarint version 0, the message (compact encoding)

A reader refuses bytes after the end and unknown states, and skips unknown tagged fields. Kafka's
own reader stops for good at a record that it cannot handle, so the records that are written here
must be right: see `export_records`. Keys of these records are null.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeAlias, TypedDict

from stratalog.control.segments.model import EpochStart, Segment, SegmentState, SegmentToAdd
from stratalog.ids import BrokerId, LeaderEpoch, Offset, PartitionIndex, SegmentId, TopicId
from stratalog.ids import TopicPartition as IdPartition
from stratalog.segment.compact_encoding import CompactReader, CompactWriter
from stratalog.segment.errors import RemoteLogRecordError, UnexportableSegmentError

METADATA_TOPIC = "__remote_log_metadata"
METADATA_PARTITIONS = 50
"""Kafka's default for the number of partitions of the metadata topic."""

_FRAME_VERSION = 1
_MESSAGE_VERSION = 0
_TXN_INDEX_EMPTY_TAG = 0
_INT32_LAST = 2**31 - 1


class RecordKind(IntEnum):
    """The kind of a record, which Kafka calls its API key."""

    SEGMENT_ADDED = 0
    SEGMENT_UPDATED = 1
    PARTITION_DELETED = 2
    SEGMENT_SNAPSHOT = 3


class PartitionDeleteState(IntEnum):
    MARKED = 0
    STARTED = 1
    FINISHED = 2


class NamedPartition(NamedTuple):
    topic: str
    topic_id: TopicId
    partition: PartitionIndex

    @property
    def id_partition(self) -> IdPartition:
        return IdPartition(self.topic_id, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentAdded:
    """All fields that Kafka has for a segment."""

    partition: NamedPartition
    segment_id: SegmentId
    base_offset: Offset
    last_offset: Offset
    broker_id: BrokerId
    max_timestamp: int
    event_ms: int
    leader_epochs: tuple[EpochStart, ...]
    """The starts of epochs, in ascending order."""
    size_bytes: int
    custom_metadata: bytes | None = None
    state: SegmentState = SegmentState.COPY_STARTED
    txn_index_empty: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentUpdated:
    """A new state, with the other fields that may change along with it."""

    partition: NamedPartition
    segment_id: SegmentId
    broker_id: BrokerId
    event_ms: int
    custom_metadata: bytes | None
    """Replaces the earlier value, even if it is None."""
    state: SegmentState


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDeleted:
    partition: NamedPartition
    broker_id: BrokerId
    event_ms: int
    state: PartitionDeleteState


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSnapshot:
    """A segment in a snapshot of a broker's memory. Kafka's topic never holds such a record."""

    segment_id: SegmentId
    base_offset: Offset
    last_offset: Offset
    broker_id: BrokerId
    max_timestamp: int
    event_ms: int
    leader_epochs: tuple[EpochStart, ...]
    size_bytes: int
    custom_metadata: bytes | None
    state: SegmentState
    txn_index_empty: bool


RemoteLogRecord: TypeAlias = SegmentAdded | SegmentUpdated | PartitionDeleted | SegmentSnapshot


def encode_record(record: RemoteLogRecord) -> bytes:
    writer = CompactWriter()
    writer.uvarint(_FRAME_VERSION)
    writer.uvarint(_kind_of(record))
    writer.uvarint(_MESSAGE_VERSION)
    match record:
        case SegmentAdded():
            _write_segment_id(writer, record.partition, record.segment_id)
            _write_segment(writer, record)
        case SegmentUpdated():
            _write_updated(writer, record)
        case PartitionDeleted():
            _write_deleted(writer, record)
        case SegmentSnapshot():
            writer.uuid(record.segment_id)
            _write_segment(writer, record)
    return writer.getvalue()


def decode_record(value: bytes | bytearray | memoryview | None) -> RemoteLogRecord:
    if not value:
        raise RemoteLogRecordError("the record has no value")
    try:
        reader = CompactReader(value)
        record = _decode(reader)
        reader.finish()
    except ValueError as error:
        raise RemoteLogRecordError(str(error)) from None
    return record


def added_record(
    segment: SegmentToAdd, topic_name: str, *, event_ms: int, txn_index_empty: bool
) -> SegmentAdded:
    """Return the record that Kafka would write before it uploads this segment."""
    return SegmentAdded(
        partition=NamedPartition(topic_name, segment.topic_id, segment.partition),
        segment_id=segment.segment_id,
        base_offset=segment.base_offset,
        last_offset=segment.last_offset,
        broker_id=segment.broker_id,
        max_timestamp=segment.max_timestamp,
        event_ms=event_ms,
        leader_epochs=tuple(segment.leader_epochs),
        size_bytes=segment.size_bytes,
        txn_index_empty=txn_index_empty,
    )


def export_records(segment: Segment, topic_name: str) -> list[bytes]:
    """Return the records that make a chained segment known to Kafka, in order.

    At a record that it cannot handle, a Kafka broker stops reading until it is restarted. So
    segments that would give such a record are refused here: a segment without epochs, with offsets
    or a size that Kafka does not take, or one that is not finished.
    """
    problem = _export_problem(segment)
    if problem is not None:
        raise UnexportableSegmentError(
            f"segment {segment.segment_id} of {topic_name}-{segment.partition} {problem}"
        )
    assert segment.uploaded is not None
    added = added_record(
        segment,
        topic_name,
        event_ms=segment.added_ms,
        txn_index_empty=not segment.uploaded.has_aborted,
    )
    updated = SegmentUpdated(
        partition=added.partition,
        segment_id=segment.segment_id,
        broker_id=segment.broker_id,
        event_ms=segment.changed_ms,
        custom_metadata=segment.uploaded.custom_metadata,
        state=SegmentState.COPY_FINISHED,
    )
    return [encode_record(added), encode_record(updated)]


def metadata_partition(
    partition: IdPartition, partition_count: int = METADATA_PARTITIONS
) -> PartitionIndex:
    """Return the partition of `__remote_log_metadata` with the records about a partition."""
    high, low = divmod(partition.topic_id.int, 1 << 64)
    hashed = 31 * (31 * (31 + _java_hash(low)) + _java_hash(high)) + partition.partition
    hashed_bytes = (hashed & 0xFFFF_FFFF).to_bytes(4)
    return PartitionIndex((_murmur2_of_4(hashed_bytes) & 0x7FFF_FFFF) % partition_count)


def _export_problem(segment: Segment) -> str | None:
    if not segment.chained or segment.state is not SegmentState.COPY_FINISHED:
        return f"is not a finished part of its partition, but {segment.state.name}"
    if segment.uploaded is None:
        return "has no manifest"
    if not segment.leader_epochs:
        return "has no leader epochs"
    if not 0 <= segment.base_offset <= segment.last_offset:
        return f"ends at offset {segment.last_offset}, before its base {segment.base_offset}"
    if not 0 <= segment.size_bytes <= _INT32_LAST:
        return f"has {segment.size_bytes} bytes, which is no size of a segment in Kafka"
    return None


def _kind_of(record: RemoteLogRecord) -> RecordKind:
    match record:
        case SegmentAdded():
            return RecordKind.SEGMENT_ADDED
        case SegmentUpdated():
            return RecordKind.SEGMENT_UPDATED
        case PartitionDeleted():
            return RecordKind.PARTITION_DELETED
        case SegmentSnapshot():
            return RecordKind.SEGMENT_SNAPSHOT


def _write_partition(writer: CompactWriter, partition: NamedPartition) -> None:
    writer.text(partition.topic)
    writer.uuid(partition.topic_id)
    writer.i32(partition.partition)
    writer.tags()


def _write_segment_id(
    writer: CompactWriter, partition: NamedPartition, segment_id: SegmentId
) -> None:
    _write_partition(writer, partition)
    writer.uuid(segment_id)
    writer.tags()


def _write_segment(writer: CompactWriter, segment: SegmentAdded | SegmentSnapshot) -> None:
    writer.i64(segment.base_offset)
    writer.i64(segment.last_offset)
    writer.i32(segment.broker_id)
    writer.i64(segment.max_timestamp)
    writer.i64(segment.event_ms)
    writer.count(len(segment.leader_epochs))
    for epoch, start_offset in segment.leader_epochs:
        writer.i32(epoch)
        writer.i64(start_offset)
        writer.tags()
    writer.i32(segment.size_bytes)
    writer.nullable_bytes(segment.custom_metadata)
    writer.i8(segment.state)
    writer.tags({_TXN_INDEX_EMPTY_TAG: b"\x01"} if segment.txn_index_empty else None)


def _write_updated(writer: CompactWriter, updated: SegmentUpdated) -> None:
    _write_segment_id(writer, updated.partition, updated.segment_id)
    writer.i32(updated.broker_id)
    writer.i64(updated.event_ms)
    writer.nullable_bytes(updated.custom_metadata)
    writer.i8(updated.state)
    writer.tags()


def _write_deleted(writer: CompactWriter, deleted: PartitionDeleted) -> None:
    _write_partition(writer, deleted.partition)
    writer.i32(deleted.broker_id)
    writer.i64(deleted.event_ms)
    writer.i8(deleted.state)
    writer.tags()


def _decode(reader: CompactReader) -> RemoteLogRecord:
    frame_version = reader.uvarint()
    if frame_version != _FRAME_VERSION:
        raise ValueError(f"frame version {frame_version} is not {_FRAME_VERSION}")
    kind = RecordKind(reader.uvarint())
    version = reader.uvarint()
    if version != _MESSAGE_VERSION:
        raise ValueError(f"version {version} of {kind.name} is not {_MESSAGE_VERSION}")
    match kind:
        case RecordKind.SEGMENT_ADDED:
            partition, segment_id = _read_segment_id(reader)
            return SegmentAdded(partition=partition, segment_id=segment_id, **_read_segment(reader))
        case RecordKind.SEGMENT_UPDATED:
            return _read_updated(reader)
        case RecordKind.PARTITION_DELETED:
            return _read_deleted(reader)
        case RecordKind.SEGMENT_SNAPSHOT:
            return SegmentSnapshot(segment_id=SegmentId(reader.uuid()), **_read_segment(reader))


def _read_partition(reader: CompactReader) -> NamedPartition:
    topic = reader.text()
    topic_id = TopicId(reader.uuid())
    index = reader.i32()
    reader.tags()
    if index < 0:
        raise ValueError(f"the partition {index} of {topic!r} is negative")
    return NamedPartition(topic, topic_id, PartitionIndex(index))


def _read_segment_id(reader: CompactReader) -> tuple[NamedPartition, SegmentId]:
    partition = _read_partition(reader)
    segment_id = SegmentId(reader.uuid())
    reader.tags()
    return partition, segment_id


class _SegmentFields(TypedDict):
    base_offset: Offset
    last_offset: Offset
    broker_id: BrokerId
    max_timestamp: int
    event_ms: int
    leader_epochs: tuple[EpochStart, ...]
    size_bytes: int
    custom_metadata: bytes | None
    state: SegmentState
    txn_index_empty: bool


def _read_segment(reader: CompactReader) -> _SegmentFields:
    base_offset, last_offset = Offset(reader.i64()), Offset(reader.i64())
    if not 0 <= base_offset <= last_offset:
        raise ValueError(f"a segment from offset {base_offset} to {last_offset} cannot be")
    return _SegmentFields(
        base_offset=base_offset,
        last_offset=last_offset,
        broker_id=BrokerId(reader.i32()),
        max_timestamp=reader.i64(),
        event_ms=reader.i64(),
        leader_epochs=_read_epochs(reader),
        size_bytes=reader.i32(),
        custom_metadata=reader.nullable_bytes(),
        state=SegmentState(reader.i8()),
        txn_index_empty=any(reader.tags().get(_TXN_INDEX_EMPTY_TAG, b"")),
    )


def _read_epochs(reader: CompactReader) -> tuple[EpochStart, ...]:
    epochs: dict[LeaderEpoch, Offset] = {}
    for _ in range(reader.count()):
        epoch = LeaderEpoch(reader.i32())
        epochs[epoch] = Offset(reader.i64())
        reader.tags()
    if not epochs:
        raise ValueError("a segment without leader epochs cannot be")
    return tuple(EpochStart(epoch, epochs[epoch]) for epoch in sorted(epochs))


def _read_updated(reader: CompactReader) -> SegmentUpdated:
    partition, segment_id = _read_segment_id(reader)
    updated = SegmentUpdated(
        partition=partition,
        segment_id=segment_id,
        broker_id=BrokerId(reader.i32()),
        event_ms=reader.i64(),
        custom_metadata=reader.nullable_bytes(),
        state=SegmentState(reader.i8()),
    )
    reader.tags()
    return updated


def _read_deleted(reader: CompactReader) -> PartitionDeleted:
    deleted = PartitionDeleted(
        partition=_read_partition(reader),
        broker_id=BrokerId(reader.i32()),
        event_ms=reader.i64(),
        state=PartitionDeleteState(reader.i8()),
    )
    reader.tags()
    return deleted


def _java_hash(value: int) -> int:
    """Return Java's `Long.hashCode` of 64 bits."""
    return (value ^ value >> 32) & 0xFFFF_FFFF


def _murmur2_of_4(data: bytes) -> int:
    """Compute Kafka's murmur2 of 4 bytes, the only length that is needed here."""
    mask, multiplier = 0xFFFF_FFFF, 0x5BD1_E995
    word = int.from_bytes(data, "little") * multiplier & mask
    word = (word ^ word >> 24) * multiplier & mask
    hashed = (0x9747_B28C ^ len(data)) * multiplier & mask ^ word
    hashed = (hashed ^ hashed >> 13) * multiplier & mask
    return hashed ^ hashed >> 15
