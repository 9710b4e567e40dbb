"""Rows of `segments` and the values they stand for."""

import json
from collections.abc import Sequence

from stratalog.control.segments.model import (
    EpochStart,
    Segment,
    SegmentState,
    SegmentToAdd,
    SegmentUploaded,
)
from stratalog.control.sql.database import Row, as_uuid
from stratalog.ids import (
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    SegmentId,
    TopicId,
)

SEGMENT_COLUMNS = (
    "s.segment_id, s.topic_id, s.partition, s.base_offset, s.last_offset, s.size_bytes,"
    " s.max_timestamp, s.leader_epochs, s.key_base, s.store_url, s.broker_id, s.state, s.chained,"
    " s.owned, s.added_ms, s.changed_ms, s.min_timestamp, s.manifest, s.stored_bytes,"
    " s.has_aborted, s.custom_metadata"
)


def segment_of(row: Row) -> Segment:
    (
        segment_id, topic_id, partition, base_offset, last_offset, size_bytes, max_timestamp,
        leader_epochs, key_base, store_url, broker_id, state, chained, owned, added_ms, changed_ms,
        min_timestamp, *uploaded,
    ) = row  # fmt: skip
    return Segment(
        segment_id=SegmentId(as_uuid(segment_id)),
        topic_id=TopicId(as_uuid(topic_id)),
        partition=PartitionIndex(partition),
        base_offset=Offset(base_offset),
        last_offset=Offset(last_offset),
        size_bytes=size_bytes,
        max_timestamp=max_timestamp,
        min_timestamp=min_timestamp,
        leader_epochs=_read_epochs(leader_epochs),
        key_base=key_base,
        store_url=store_url,
        broker_id=BrokerId(broker_id),
        state=SegmentState(state),
        chained=bool(chained),
        owned=bool(owned),
        added_ms=added_ms,
        changed_ms=changed_ms,
        uploaded=_uploaded(uploaded),
    )


ADDED_COLUMNS = (
    "segment_id, topic_id, partition, base_offset, last_offset, size_bytes, max_timestamp,"
    " leader_epochs, key_base, store_url, broker_id, min_timestamp"
)


def added_values(segment: SegmentToAdd) -> tuple[object, ...]:
    """What stands in `ADDED_COLUMNS`."""
    return (
        segment.segment_id,
        segment.topic_id,
        segment.partition,
        segment.base_offset,
        segment.last_offset,
        segment.size_bytes,
        segment.max_timestamp,
        json.dumps([list(epoch) for epoch in segment.leader_epochs]),
        segment.key_base,
        segment.store_url,
        segment.broker_id,
        segment.min_timestamp,
    )


def _read_epochs(text: str) -> tuple[EpochStart, ...]:
    return tuple(EpochStart(LeaderEpoch(epoch), Offset(start)) for epoch, start in json.loads(text))


def _uploaded(columns: Sequence[object]) -> SegmentUploaded | None:
    manifest, stored_bytes, has_aborted, custom_metadata = columns
    if manifest is None:
        return None
    assert isinstance(manifest, str)
    assert isinstance(stored_bytes, int)
    assert isinstance(custom_metadata, bytes | None)
    return SegmentUploaded(
        manifest=manifest,
        stored_bytes=stored_bytes,
        has_aborted=bool(has_aborted),
        custom_metadata=custom_metadata,
    )
