"""Readers of committed records in an adopted topic whose segments hold aborted transactions."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AiokafkaPlace
from confluent_kafka import TopicPartition as Place
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11.response import FetchResponse
from kio.schema.metadata.v7 import request as metadata_request
from kio.schema.metadata.v7.response import MetadataResponse
from kio.schema.types import TopicName
from tests.integration.transactional_log import COMMITTED, END, EVERYTHING, TOPIC, adopt
from tests.support.adopted_log import EPOCH
from tests.support.clients.confluent_client import confluent_consumer, confluent_poll
from tests.support.clusters import one_broker
from tests.support.wire import Wire, connected, fetch_of


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("committed")
    asyncio.run(adopt(folder))
    with one_broker(folder) as cluster:
        yield cluster.bootstrap


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
