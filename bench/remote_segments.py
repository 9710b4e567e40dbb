"""Segments of one partition in an object store, for the benchmarks that read them."""

import os
from collections.abc import AsyncIterator
from uuid import UUID

from stratalog.batch.build import build_batch
from stratalog.batch.header import Codec
from stratalog.batch.records import Record
from stratalog.control.segments.model import Segment, SegmentState, SegmentToAdd
from stratalog.ids import LeaderEpoch, Offset, PartitionIndex, SegmentId, TopicId
from stratalog.objects.store import Buffer, ObjectStore
from stratalog.segment.build import BuiltLog, SegmentBuilder
from stratalog.segment.chunk_encoding import Encoding
from stratalog.segment.epoch_checkpoint import encode_checkpoint
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.keys import segment_key_base
from stratalog.segment.model import SegmentIndexes, SourceRun
from stratalog.segment.producer_state import PartitionTail
from stratalog.segment.upload import upload_indexes, upload_log

RECORD_BYTES = 1000
RECORDS_PER_BATCH = 16
_TOPIC = TopicId(UUID(int=1))
_PARTITION = PartitionIndex(0)
_START_MS = 1_700_000_000_000


async def make_segments(
    store: ObjectStore, keys: KeyRing, encoding: Encoding, *, count: int, size_bytes: int
) -> list[Segment]:
    """Consecutive segments of about this size, in batches of 16 records of 1000 random bytes."""
    segments: list[Segment] = []
    batches = max(1, size_bytes // len(_batch()))
    for number in range(count):
        base = number * batches * RECORDS_PER_BATCH
        data, built = _build(batches, base)
        segments.append(await _upload(store, keys, encoding, number, data, built))
    return segments


def _batch() -> bytes:
    records = [
        Record(at, _START_MS + at, None, os.urandom(RECORD_BYTES))
        for at in range(RECORDS_PER_BATCH)
    ]
    return build_batch(records, codec=Codec.NONE)


def _build(batches: int, base: int) -> tuple[bytes, BuiltLog]:
    builder = SegmentBuilder(Offset(base))
    last = base + batches * RECORDS_PER_BATCH - 1
    run = SourceRun(Offset(base), Offset(last), LeaderEpoch(0), stamped=False)
    data = builder.add(bytearray(b"".join(_batch() for _ in range(batches))), run)
    return bytes(data), builder.finish()


async def _upload(
    store: ObjectStore,
    keys: KeyRing,
    encoding: Encoding,
    number: int,
    data: bytes,
    built: BuiltLog,
) -> Segment:
    segment_id = SegmentId(UUID(int=1000 + number))
    key_base = segment_key_base(
        "segments/", "bench", _TOPIC, _PARTITION, built.base_offset, segment_id
    )
    to_add = SegmentToAdd(
        segment_id=segment_id,
        topic_id=_TOPIC,
        partition=_PARTITION,
        base_offset=built.base_offset,
        last_offset=built.last_offset,
        size_bytes=built.size_bytes,
        max_timestamp=built.max_timestamp,
        leader_epochs=built.leader_epochs,
        key_base=key_base,
    )
    indexes = SegmentIndexes(
        offset=built.offset_index,
        timestamp=built.time_index,
        producer_snapshot=PartitionTail().to_snapshot(),
        leader_epoch=encode_checkpoint(built.leader_epochs),
    )
    log = await upload_log(store, key_base, _parts(data), encoding, keys)
    uploaded = await upload_indexes(
        store, key_base, indexes, log, to_add, "bench", keys, event_ms=_START_MS
    )
    return Segment(
        **{name: getattr(to_add, name) for name in SegmentToAdd.__dataclass_fields__},
        state=SegmentState.COPY_FINISHED,
        chained=True,
        owned=True,
        added_ms=_START_MS,
        changed_ms=_START_MS,
        uploaded=uploaded,
    )


async def _parts(data: bytes) -> AsyncIterator[Buffer]:
    yield data
