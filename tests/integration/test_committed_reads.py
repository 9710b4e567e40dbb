"""Readers of committed records in an adopted topic whose segments hold aborted transactions."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AiokafkaPlace
from confluent_kafka import TopicPartition as Place
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11.response import FetchResponse
from kio.schema.metadata.v7 import request as metadata_request
from kio.schema.metadata.v7.response import MetadataResponse
from kio.schema.types import TopicName
from tests.compat.clusters import folder_storage, one_broker
from tests.compat.confluent_client import confluent_consumer, confluent_poll
from tests.compat.wire import Wire, connected, fetch_of

from stratalog.batch.build import build_batch
from stratalog.batch.control import ControlType, EndTxnMarker, end_txn_record
from stratalog.batch.records import Record
from stratalog.clock import SystemClock
from stratalog.control.open import open_control_plane
from stratalog.control.segment_model import (
    AdoptedSegment,
    EpochStart,
    PartitionToAdopt,
    SegmentToAdd,
    TopicToAdopt,
)
from stratalog.ids import LeaderEpoch, Offset, PartitionIndex, SegmentId, TopicId
from stratalog.objects.open import open_store
from stratalog.objects.store import Buffer, ObjectStore
from stratalog.segment.build import SegmentBuilder
from stratalog.segment.epoch_checkpoint import encode_checkpoint
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.keys import segment_key_base
from stratalog.segment.model import SegmentIndexes, SourceRun
from stratalog.segment.producer_state import PartitionTail, advance
from stratalog.segment.transform import Encoding
from stratalog.segment.txn_index import encode_aborted
from stratalog.segment.upload import upload_indexes, upload_log

TOPIC = "transactions"
TOPIC_ID = TopicId(uuid4())
NOW_MS = SystemClock().now_ms()
EPOCH = LeaderEpoch(5)


def record(producer: int = -1, sequence: int = 0) -> bytes:
    """A batch with one record, of a transaction if there is a producer."""
    one = [Record(0, NOW_MS, None, b"a value")]
    if producer < 0:
        return build_batch(one)
    return build_batch(
        one, producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=True
    )


def ended(producer: int, kind: ControlType) -> bytes:
    marker = end_txn_record(EndTxnMarker(kind, 0), offset=0, timestamp_ms=NOW_MS)
    return build_batch(
        [marker], producer_id=producer, producer_epoch=0, transactional=True, control=True
    )


SEGMENTS = [
    # The transaction of producer 1 goes on into the next segment.
    [record(1, 0), record(), record(2), record(1, 1), ended(2, ControlType.COMMIT), record()],
    [record(1, 2), ended(1, ControlType.ABORT), record(1, 3), ended(1, ControlType.COMMIT)],
    [record(), record()],
]
END = 12
COMMITTED = [1, 2, 5, 8, 10, 11]
EVERYTHING = [0, 1, 2, 3, 5, 6, 8, 10, 11]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("committed")
    asyncio.run(adopt(folder))
    with one_broker(folder) as cluster:
        yield cluster.bootstrap


async def adopt(folder: Path) -> None:
    storage = folder_storage(folder)
    control = await open_control_plane(storage.control)
    store = open_store(storage.objects, clock=SystemClock())
    partition = PartitionToAdopt(
        partition=PartitionIndex(0),
        log_start=Offset(0),
        segments=await upload(store),
        epochs=[EpochStart(EPOCH, Offset(0))],
        producers=[],
    )
    await control.adopt_topic(
        TopicToAdopt(topic_id=TOPIC_ID, name=TOPIC, configs={}, partitions=[partition])
    )
    await store.close()
    await control.close()


async def upload(store: ObjectStore) -> list[AdoptedSegment]:
    tail, base = PartitionTail(), 0
    uploaded = []
    for batches in SEGMENTS:
        adopted, tail = await upload_one(store, base, batches, tail)
        uploaded.append(adopted)
        base += len(batches)
    assert [one.uploaded.has_aborted for one in uploaded] == [False, True, False]
    return uploaded


async def upload_one(
    store: ObjectStore, base: int, batches: Sequence[bytes], tail: PartitionTail
) -> tuple[AdoptedSegment, PartitionTail]:
    builder = SegmentBuilder(Offset(base))
    run = SourceRun(Offset(base), Offset(base + len(batches) - 1), EPOCH, stamped=False)
    log = builder.add(bytearray(b"".join(batches)), run)
    built = builder.finish()
    tail, aborted = advance(tail, built)
    segment_id = SegmentId(uuid4())
    segment = SegmentToAdd(
        segment_id=segment_id,
        topic_id=TOPIC_ID,
        partition=PartitionIndex(0),
        base_offset=built.base_offset,
        last_offset=built.last_offset,
        size_bytes=built.size_bytes,
        max_timestamp=built.max_timestamp,
        leader_epochs=built.leader_epochs,
        key_base=segment_key_base(
            "kafka/", TOPIC, TOPIC_ID, PartitionIndex(0), built.base_offset, segment_id
        ),
    )
    indexes = SegmentIndexes(
        offset=built.offset_index,
        timestamp=built.time_index,
        producer_snapshot=tail.to_snapshot(),
        leader_epoch=encode_checkpoint([EpochStart(EPOCH, Offset(0))]),
        transaction=encode_aborted(aborted),
    )
    stored = await upload_log(store, segment.key_base, _once(log), Encoding(), KeyRing())
    finished = await upload_indexes(
        store, segment.key_base, indexes, stored, segment, TOPIC, KeyRing(), event_ms=NOW_MS
    )
    return AdoptedSegment(segment=segment, uploaded=finished), tail


async def _once(part: Buffer) -> AsyncIterator[Buffer]:
    yield part


@pytest.mark.parametrize("fetch_bytes", [1, 8_000_000])
@pytest.mark.parametrize("start", range(END))
def test_confluent_leaves_aborted_records_out_from_wherever_it_starts(
    bootstrap: str, start: int, fetch_bytes: int
) -> None:
    for isolation, expected in (("read_committed", COMMITTED), ("read_uncommitted", EVERYTHING)):
        consumer = confluent_consumer(
            bootstrap,
            **{"isolation.level": isolation, "fetch.message.max.bytes": fetch_bytes},
        )
        consumer.assign([Place(TOPIC, 0, start)])
        wanted = [offset for offset in expected if offset >= start]
        read = confluent_poll(consumer, len(wanted))
        consumer.close()
        assert [one.offset for one in read] == wanted


@pytest.mark.parametrize("fetch_bytes", [1, 8_000_000])
async def test_aiokafka_leaves_aborted_records_out_from_wherever_it_starts(
    bootstrap: str, fetch_bytes: int
) -> None:
    for isolation, expected in (("read_committed", COMMITTED), ("read_uncommitted", EVERYTHING)):
        async with AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            isolation_level=isolation,
            enable_auto_commit=False,
            auto_offset_reset="none",
            max_partition_fetch_bytes=fetch_bytes,
        ) as consumer:
            place = AiokafkaPlace(TOPIC, 0)
            consumer.assign([place])
            for start in range(END):
                consumer.seek(place, start)
                wanted = [offset for offset in expected if offset >= start]
                async with asyncio.timeout(30):
                    read = [(await consumer.getone()).offset for _ in wanted]
                assert read == wanted


def test_the_adopted_epoch_is_the_partitions_own(bootstrap: str) -> None:
    named = metadata_request.MetadataRequestTopic(name=TopicName(TOPIC))
    asked = metadata_request.MetadataRequest(topics=(named,), allow_auto_topic_creation=False)
    with connected(bootstrap) as wire:
        answer: MetadataResponse = wire.ask(asked, MetadataResponse)
        assert int(answer.topics[0].partitions[0].leader_epoch) == int(EPOCH)
        codes = [fetch_code(wire, epoch) for epoch in (-1, EPOCH - 1, EPOCH, EPOCH + 1)]
    assert codes == [
        ErrorCode.none,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.none,
        ErrorCode.unknown_leader_epoch,
    ]


def fetch_code(wire: Wire, epoch: int) -> ErrorCode:
    request = fetch_of(TOPIC, 0, 0)
    [place] = request.topics[0].partitions
    place = replace(place, current_leader_epoch=epoch)
    request = replace(request, topics=(replace(request.topics[0], partitions=(place,)),))
    answer: FetchResponse = wire.ask(request, FetchResponse)
    return answer.responses[0].partitions[0].error_code
