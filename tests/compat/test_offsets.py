"""Where reading begins, and when it goes on: offsets, times, acknowledgements and long polls."""

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AiokafkaPartition
from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition
from tests.support.clients.client import Client
from tests.support.clients.confluent_client import (
    ConfluentClient,
    confluent_consumer,
    confluent_poll,
)
from tests.support.clients.kcat_client import run_kcat
from tests.support.clients.message import Message, numbered, values
from tests.support.clusters import (
    BASE,
    Cluster,
    create,
    fresh_topic,
    two_brokers,
    with_poll_ms,
)
from tests.support.servers import PostgresServer, S3Server
from tests.support.wire import batch_of, connected

START_MS = 1_700_000_000_000
STEP_MS = 1000

WAIT_MS = 60_000
WOKEN_SECONDS = 20
"""Far below the wait, and far above the time that a loaded machine takes."""


@pytest.fixture
def timed_topic(cluster: Cluster) -> str:
    """Offset n has the time START_MS + n * STEP_MS; offsets 4 and 5 were written in disorder."""
    topic = create(cluster, fresh_topic("timed"), message_timestamp_before_max_ms=str(2**62))
    for order in ([0, 1, 2, 3], [5, 4], [6, 7, 8, 9]):
        messages = [Message(b"%d" % at, timestamp_ms=START_MS + at * STEP_MS) for at in order]
        ConfluentClient().write(cluster.bootstrap, topic, messages)
    return topic


EXPECTED_BY_TIME = {
    START_MS - 1: 0,
    START_MS: 0,
    START_MS + 1: 1,
    START_MS + 3 * STEP_MS: 3,
    # The first record that is not older, in the order of offsets: it is the one of time 5.
    START_MS + 4 * STEP_MS: 4,
    START_MS + 5 * STEP_MS: 4,
    START_MS + 5 * STEP_MS + 1: 6,
    START_MS + 9 * STEP_MS: 9,
    START_MS + 9 * STEP_MS + 1: None,
}


def test_confluent_finds_offsets_by_time_and_both_ends(cluster: Cluster, timed_topic: str) -> None:
    with closing_consumer(cluster) as consumer:
        assert consumer.get_watermark_offsets(TopicPartition(timed_topic, 0), 30) == (0, 10)
        for asked_ms, expected in EXPECTED_BY_TIME.items():
            found = consumer.offsets_for_times([TopicPartition(timed_topic, 0, asked_ms)], 30)
            assert found[0].error is None
            assert found[0].offset == (OFFSET_END if expected is None else expected), asked_ms


def test_kafka_python_finds_offsets_by_time_and_both_ends(
    cluster: Cluster, timed_topic: str
) -> None:
    place = KafkaPythonPartition(timed_topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap.split(","))
    try:
        assert consumer.beginning_offsets([place]) == {place: 0}
        assert consumer.end_offsets([place]) == {place: 10}
        for asked_ms, expected in EXPECTED_BY_TIME.items():
            found = consumer.offsets_for_times({place: asked_ms})[place]
            assert (None if found is None else found.offset) == expected, asked_ms
    finally:
        consumer.close()


async def test_aiokafka_finds_offsets_by_time_and_both_ends(
    cluster: Cluster, timed_topic: str
) -> None:
    place = AiokafkaPartition(timed_topic, 0)
    async with AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap.split(",")) as consumer:
        assert await consumer.beginning_offsets([place]) == {place: 0}
        assert await consumer.end_offsets([place]) == {place: 10}
        for asked_ms, expected in EXPECTED_BY_TIME.items():
            found = (await consumer.offsets_for_times({place: asked_ms}))[place]
            assert (None if found is None else found.offset) == expected, asked_ms


def test_kcat_finds_offsets_by_time(cluster: Cluster, timed_topic: str) -> None:
    for asked_ms, expected in EXPECTED_BY_TIME.items():
        asked = f"{timed_topic}:0:{asked_ms}"
        answer = run_kcat(["-Q", "-b", cluster.bootstrap, "-t", asked]).decode()
        shown = -1 if expected is None else expected
        assert answer.strip() == f"{timed_topic} [0] offset {shown}", asked_ms


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acknowledgement_level_stores_everything(
    cluster: Cluster, client: Client, acks: str
) -> None:
    topic = create(cluster, fresh_topic(f"acks-{acks}"))
    client.write(cluster.bootstrap, topic, numbered(50), acks=acks)
    assert values(client.read(cluster.bootstrap, topic, count=50)) == values(numbered(50))


def test_reading_starts_in_the_middle_of_a_batch(cluster: Cluster, client: Client) -> None:
    topic = create(cluster, fresh_topic("middle"))
    with connected(cluster.addresses[0]) as wire:
        wire.produce(topic, batch_of([b"%d" % number for number in range(10)]))
    received = client.read(cluster.bootstrap, topic, count=4, start=6)
    assert [(each.offset, each.value) for each in received] == [
        (6, b"6"),
        (7, b"7"),
        (8, b"8"),
        (9, b"9"),
    ]


def test_an_offset_beyond_the_end_is_out_of_range(cluster: Cluster) -> None:
    topic = create(cluster, fresh_topic("beyond"))
    ConfluentClient().write(cluster.bootstrap, topic, numbered(3))
    with closing_consumer(cluster) as consumer:
        consumer.assign([TopicPartition(topic, 0, 3)])
        assert confluent_poll(consumer, 1, seconds=0.5) == []
        consumer.assign([TopicPartition(topic, 0, 4)])
        with pytest.raises(KafkaException) as refused:
            confluent_poll(consumer, 1, seconds=10)
    # The error that `auto.offset.reset=error` makes of the broker's answer.
    assert refused.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET
    assert "out of range" in refused.value.args[0].str()


def test_a_waiting_consumer_is_woken_by_a_write_to_its_broker(cluster: Cluster) -> None:
    topic = create(cluster, fresh_topic("woken"))
    with closing_consumer(cluster, **{"fetch.wait.max.ms": WAIT_MS}) as consumer:
        seconds = seconds_until_seen(consumer, cluster, topic, through=cluster.leader_of(topic))
    assert seconds < WOKEN_SECONDS


def test_a_hint_wakes_a_consumer_that_waits_on_another_broker(
    postgres_server: PostgresServer, s3_server: S3Server
) -> None:
    """Watermarks are polled so seldom here that a hint alone can have brought the news."""
    base = with_poll_ms(BASE, 600_000)
    with two_brokers(postgres_server, s3_server, base=base) as cluster:
        topic = create(cluster, fresh_topic("hinted"))
        other = cluster.other_than(cluster.leader_of(topic))
        with closing_consumer(cluster, **{"fetch.wait.max.ms": WAIT_MS}) as consumer:
            for _ in range(3):
                assert seconds_until_seen(consumer, cluster, topic, through=other) < WOKEN_SECONDS


def test_a_consumer_on_another_broker_sees_writes_although_hints_are_lost(
    postgres_server: PostgresServer, s3_server: S3Server
) -> None:
    """Hints travel to the advertised address, and the proxies there pass no datagrams."""
    base = with_poll_ms(BASE, 300)
    with two_brokers(postgres_server, s3_server, base=base, proxied=True) as cluster:
        topic = create(cluster, fresh_topic("unhinted"))
        other = cluster.other_than(cluster.leader_of(topic))
        with closing_consumer(cluster, **{"fetch.wait.max.ms": WAIT_MS}) as consumer:
            for _ in range(3):
                assert seconds_until_seen(consumer, cluster, topic, through=other) < WOKEN_SECONDS


async def test_aiokafka_and_kafka_python_see_a_write_while_they_wait(cluster: Cluster) -> None:
    topic = create(cluster, fresh_topic("tail"))
    leader = cluster.leader_of(topic)
    waiting = [
        asyncio.to_thread(KafkaPythonTail(cluster.bootstrap, topic).next),
        _aiokafka_next(cluster.bootstrap, topic),
    ]
    tasks = [asyncio.ensure_future(each) for each in waiting]
    writing = asyncio.create_task(_write_until_done(leader, topic, tasks))
    for task in tasks:
        assert await asyncio.wait_for(task, 30) == b"news"
    await writing


class KafkaPythonTail:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._place = KafkaPythonPartition(topic, 0)

    def next(self) -> bytes | None:
        consumer = KafkaConsumer(
            bootstrap_servers=self._bootstrap.split(","), fetch_max_wait_ms=10_000
        )
        try:
            consumer.assign([self._place])
            consumer.seek_to_end(self._place)
            found = consumer.poll(timeout_ms=20_000)
            value: bytes | None = found[self._place][0].value
            return value
        finally:
            consumer.close()


async def _aiokafka_next(bootstrap: str, topic: str) -> bytes | None:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap.split(","), fetch_max_wait_ms=10_000)
    async with consumer:
        place = AiokafkaPartition(topic, 0)
        consumer.assign([place])
        await consumer.seek_to_end(place)
        value: bytes | None = (await consumer.getone()).value
        return value


async def _write_until_done(
    address: str, topic: str, tasks: "Sequence[asyncio.Future[bytes | None]]"
) -> None:
    """When a client has taken its place at the end is not to be seen from outside."""
    while not all(task.done() for task in tasks):
        await asyncio.to_thread(_write_one, address, topic, b"news")
        await asyncio.sleep(0.2)


@contextmanager
def closing_consumer(cluster: Cluster, **more: object) -> Iterator[Consumer]:
    consumer = confluent_consumer(cluster.bootstrap, **more)
    try:
        yield consumer
    finally:
        consumer.close()


def seconds_until_seen(consumer: Consumer, cluster: Cluster, topic: str, *, through: str) -> float:
    """How long a write through one broker takes to reach a consumer that already waits."""
    with connected(through) as wire:
        end = wire.produce(topic, batch_of([b"earlier"])).base_offset + 1
    consumer.assign([TopicPartition(topic, 0, end - 1)])
    assert values(confluent_poll(consumer, 1)) == [b"earlier"]
    # The consumer has asked again by itself. A moment makes it likely that its request reaches the
    # broker before the write; the expected result is the same without it.
    assert confluent_poll(consumer, 1, seconds=0.3) == []
    written: list[float] = []

    def write() -> None:
        written.append(time.monotonic())
        _write_one(through, topic, b"news")

    writer = threading.Thread(target=write)
    writer.start()
    received = confluent_poll(consumer, 1)
    seen = time.monotonic()
    writer.join()
    assert values(received) == [b"news"]
    return seen - written[0]


def _write_one(address: str, topic: str, value: bytes) -> None:
    with connected(address) as wire:
        assert wire.produce(topic, batch_of([value])).error_code == 0
