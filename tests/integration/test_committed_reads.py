"""Readers of committed records in an adopted topic whose segments hold aborted transactions."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AiokafkaPlace
from confluent_kafka import TopicPartition as Place
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11.response import FetchResponse
from kio.schema.metadata.v7 import request as metadata_request
from kio.schema.metadata.v7.response import MetadataResponse
from kio.schema.types import TopicName
from tests.support.adopted_log import EPOCH, adopt_log
from tests.support.clients.confluent_client import confluent_consumer, confluent_poll
from tests.support.clusters import one_broker
from tests.support.wire import Wire, connected, fetch_of

from stratalog.batch.build import build_batch
from stratalog.batch.control import ControlType, EndTxnMarker, end_txn_record
from stratalog.batch.records import Record
from stratalog.clock import SystemClock

TOPIC = "transactions"
NOW_MS = SystemClock().now_ms()


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
    assert await adopt_log(folder, TOPIC, SEGMENTS) == [False, True, False]


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
