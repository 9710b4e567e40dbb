"""A topic that was adopted from Kafka, made of batches that a test has chosen."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from uuid import uuid4

from tests.support.clusters import folder_storage

from stratalog.batch.header import parse_header
from stratalog.clock import SystemClock
from stratalog.control.open import open_control_plane
from stratalog.control.segments.model import EpochStart, SegmentToAdd
from stratalog.control.topics.model import AdoptedSegment, PartitionToAdopt, TopicToAdopt
from stratalog.ids import LeaderEpoch, Offset, PartitionIndex, SegmentId, TopicId
from stratalog.objects.open import open_store
from stratalog.objects.store import Buffer, ObjectStore
from stratalog.opening.claim import claim_store
from stratalog.segment.build import SegmentBuilder
from stratalog.segment.chunk_encoding import Encoding
from stratalog.segment.epoch_checkpoint import encode_checkpoint
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.keys import segment_key_base
from stratalog.segment.model import SegmentIndexes, SourceRun
from stratalog.segment.producer_state import PartitionTail, advance
from stratalog.segment.txn_index import encode_aborted
from stratalog.segment.upload import upload_indexes, upload_log

EPOCH = LeaderEpoch(5)


async def adopt_log(folder: Path, topic: str, segments: Sequence[Sequence[bytes]]) -> list[bool]:
    """A topic of one partition with these batches. Tells which segments note aborted ones."""
    storage = folder_storage(folder)
    control = await open_control_plane(storage.control)
    store = open_store(storage.objects, clock=SystemClock())
    # A cluster claims its store before Kafka's objects come into it, or is refused the store.
    await claim_store(control, store)
    topic_id = TopicId(uuid4())
    uploaded = await _upload(store, topic, topic_id, segments)
    partition = PartitionToAdopt(
        partition=PartitionIndex(0),
        log_start=Offset(0),
        segments=uploaded,
        epochs=[EpochStart(EPOCH, Offset(0))],
        producers=[],
    )
    await control.topics.adopt(
        TopicToAdopt(topic_id=topic_id, name=topic, configs={}, partitions=[partition])
    )
    await store.close()
    await control.close()
    return [one.uploaded.has_aborted for one in uploaded]


async def _upload(
    store: ObjectStore, topic: str, topic_id: TopicId, segments: Sequence[Sequence[bytes]]
) -> list[AdoptedSegment]:
    tail, base = PartitionTail(), 0
    uploaded = []
    for batches in segments:
        end = base + sum(parse_header(data).last_offset_delta + 1 for data in batches)
        builder = SegmentBuilder(Offset(base), index_interval_bytes=200)
        run = SourceRun(Offset(base), Offset(end - 1), EPOCH, stamped=False)
        log = builder.add(bytearray(b"".join(batches)), run)
        built = builder.finish()
        tail, aborted = advance(tail, built)
        segment_id = SegmentId(uuid4())
        segment = SegmentToAdd(
            segment_id=segment_id,
            topic_id=topic_id,
            partition=PartitionIndex(0),
            base_offset=built.base_offset,
            last_offset=built.last_offset,
            size_bytes=built.size_bytes,
            max_timestamp=built.max_timestamp,
            leader_epochs=built.leader_epochs,
            key_base=segment_key_base(
                "kafka/", topic, topic_id, PartitionIndex(0), built.base_offset, segment_id
            ),
        )
        indexes = SegmentIndexes(
            offset=built.offset_index,
            timestamp=built.time_index,
            producer_snapshot=tail.to_snapshot(),
            leader_epoch=encode_checkpoint([EpochStart(EPOCH, Offset(0))]),
            transaction=encode_aborted(aborted),
        )
        uploaded.append(await _put(store, topic, segment, log, indexes))
        base = end
    return uploaded


async def _put(
    store: ObjectStore, topic: str, segment: SegmentToAdd, log: Buffer, indexes: SegmentIndexes
) -> AdoptedSegment:
    stored = await upload_log(store, segment.key_base, _once(log), Encoding(), KeyRing())
    finished = await upload_indexes(
        store,
        segment.key_base,
        indexes,
        stored,
        segment,
        topic,
        KeyRing(),
        event_ms=SystemClock().now_ms(),
    )
    return AdoptedSegment(segment=segment, uploaded=finished)


async def _once(part: Buffer) -> AsyncIterator[Buffer]:
    yield part
