"""Topics whose older records have become segments, as real clients of a real broker see them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any, TypeVar
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AiokafkaPlace
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as Place
from kio.schema.describe_log_dirs.v1.request import DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v1.response import DescribeLogDirsResponse
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11.response import FetchResponse
from tests.integration.storage import run_in
from tests.support.clients.aiokafka_client import AiokafkaClient
from tests.support.clients.client import Client
from tests.support.clients.confluent_admin import ConfluentAdmin
from tests.support.clients.confluent_client import ConfluentClient, confluent_consumer
from tests.support.clients.kafka_python_client import KafkaPythonClient
from tests.support.clients.kcat_client import KcatClient
from tests.support.clients.message import Message, Received
from tests.support.clusters import (
    BASE,
    Cluster,
    create,
    folder_storage,
    fresh_topic,
    one_broker,
    running_cluster,
    shared_storage,
)
from tests.support.segment_keys import KEYED, PRIVATE, PUBLIC
from tests.support.servers import S3Server
from tests.support.tiering import Converter
from tests.support.wire import batch_of, connected, fetch_of

from stratalog.batch.records import iter_records
from stratalog.clock import SystemClock
from stratalog.control.log.model import PartitionState
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.model import PartitionToAdopt, Topic, TopicToAdopt
from stratalog.ids import Offset, PartitionIndex, TopicId, TopicPartition
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectStore
from stratalog.segment.chunk_encoding import Encoding
from stratalog.segment.key_ring import KeyRing
from stratalog.settings import RemoteSettings, Settings
from stratalog.topic.read import TopicReader

T = TypeVar("T")

CLIENTS: list[Client] = [ConfluentClient(), KafkaPythonClient(), AiokafkaClient(), KcatClient()]
START_MS = SystemClock().now_ms() - 3_600_000
COUNT = 240
WATCHED_SECONDS = 3


@dataclass(frozen=True)
class Tiered:
    """A broker, with the store and the control plane that it shares with converters."""

    cluster: Cluster
    settings: Settings

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    def run(self, work: Callable[[ControlPlane, ObjectStore], Awaitable[T]]) -> T:
        return run_in(self.settings, work)

    def convert(
        self, topic: str, partition: int = 0, *, up_to: int | None = None, **how: Any
    ) -> None:
        """Make all rows that end at or before `up_to` into segments of some rows each."""

        async def work(control: ControlPlane, store: ObjectStore) -> None:
            converter = Converter(control=control, store=store, **how)
            found = await named(control, topic)
            while await converter.convert(found, partition, up_to=up_to, max_rows=3):
                pass

        self.run(work)

    def state(self, topic: str) -> PartitionState:
        async def work(control: ControlPlane, store: ObjectStore) -> PartitionState:
            key = TopicPartition((await named(control, topic)).id, PartitionIndex(0))
            return (await control.log.partitions([key]))[key]

        return self.run(work)


async def named(control: ControlPlane, topic: str) -> Topic:
    [found] = await control.topics.named([topic])
    return found


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiered]:
    folder = tmp_path_factory.mktemp("tiered")
    settings = replace(BASE, storage=folder_storage(folder), remote=KEYED)
    with one_broker(folder, base=settings) as cluster:
        yield Tiered(cluster, settings)


def message(number: int) -> Message:
    return Message(
        b"value %d " % number + b"." * (number % 7 * 100),
        key=b"key %d" % (number % 5),
        headers=(("number", b"%d" % number),),
        timestamp_ms=START_MS + number * 1000,
    )


def fill(bootstrap: str, topic: str, count: int = COUNT) -> None:
    """Several rows of each codec, batches of several records."""
    for place in range(0, count, 20):
        codec = ("none", "lz4", "zstd", "snappy")[place // 20 % 4]
        some = [message(number) for number in range(place, place + 20)]
        ConfluentClient().write(bootstrap, topic, some, codec=codec)


def everything(client: Client, tiered: Tiered, topic: str, start: int = 0) -> list[Received]:
    return client.read(tiered.bootstrap, topic, count=COUNT - start, start=start)


# Reads of clients.


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_clients_read_the_same_before_and_after_records_became_segments(
    tiered: Tiered, client: Client
) -> None:
    topic = create(tiered.cluster, fresh_topic("same"))
    fill(tiered.bootstrap, topic)
    before = everything(client, tiered, topic)
    assert [one.offset for one in before] == list(range(COUNT))
    for up_to in (100, 180, None):
        tiered.convert(topic, up_to=up_to)
        assert everything(client, tiered, topic) == before
    state = tiered.state(topic)
    assert (state.remote_end, state.block_start) == (COUNT, COUNT)
    fill(tiered.bootstrap, topic, 20)
    assert [one.offset for one in client.read(tiered.bootstrap, topic, count=30, start=230)] == [
        *range(230, 260)
    ]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_clients_begin_anywhere_inside_segments(tiered: Tiered, client: Client) -> None:
    topic = create(tiered.cluster, fresh_topic("anywhere"))
    fill(tiered.bootstrap, topic)
    tiered.convert(topic, up_to=200)
    for start in (1, 59, 60, 61, 139, 199, 200, 239):
        read = client.read(tiered.bootstrap, topic, count=1, start=start)
        assert [(one.offset, one.value) for one in read] == [(start, message(start).value)]


@pytest.mark.parametrize(("compress", "encrypt"), [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("chunk_bytes", [500, 1 << 20])
def test_compressed_and_encrypted_segments_read_the_same(
    tiered: Tiered, compress: bool, encrypt: bool, chunk_bytes: int
) -> None:
    topic = create(tiered.cluster, fresh_topic("encoded"))
    fill(tiered.bootstrap, topic)
    before = everything(ConfluentClient(), tiered, topic)
    tiered.convert(
        topic,
        up_to=200,
        encoding=Encoding(chunk_bytes=chunk_bytes, compress=compress, encrypt=encrypt),
        keys=KeyRing.load({"k": PUBLIC}, {"k": PRIVATE}, "k"),
    )
    assert everything(ConfluentClient(), tiered, topic) == before


def test_log_append_times_are_the_same_in_segments(tiered: Tiered) -> None:
    topic = create(tiered.cluster, fresh_topic("stamped"), message_timestamp_type="LogAppendTime")
    fill(tiered.bootstrap, topic)
    before = everything(ConfluentClient(), tiered, topic)
    assert before[0].timestamp_ms > START_MS + 1_000_000
    tiered.convert(topic, up_to=200)
    assert everything(ConfluentClient(), tiered, topic) == before


def test_one_fetch_reaches_across_the_boundary(tiered: Tiered) -> None:
    topic = create(tiered.cluster, fresh_topic("across"))
    fill(tiered.bootstrap, topic)
    tiered.convert(topic, up_to=120)
    assert tiered.state(topic).remote_end == 120
    with connected(tiered.bootstrap) as wire:
        for start in (0, 60, 119, 120, 200):
            error, records = wire.fetch(topic, 0, start)
            assert error is ErrorCode.none
            read = [record.offset for record in records if record.offset >= start]
            assert read == list(range(start, COUNT))
        assert [error for error, _ in (wire.fetch(topic, 0, at) for at in (-1, COUNT + 1))] == [
            ErrorCode.offset_out_of_range
        ] * 2


def test_a_damaged_segment_fails_its_partition_and_no_other(
    tiered: Tiered,
) -> None:
    topic = create(tiered.cluster, fresh_topic("damaged"), partitions=2)
    for partition in range(2):
        some = [message(number) for number in range(20)]
        ConfluentClient().write(tiered.bootstrap, topic, some, partition=partition)
        tiered.convert(topic, partition)

    async def damage(control: ControlPlane, store: ObjectStore) -> None:
        key = TopicPartition((await named(control, topic)).id, PartitionIndex(0))
        [segment] = await control.segments.chained(key, limit=9)
        log = bytearray((await store.get(segment.key_base + ".log")).data)
        log[-1] ^= 1
        await store.put(segment.key_base + ".log", [log])

    tiered.run(damage)
    asked, other = (fetch_of(topic, partition, 19) for partition in range(2))
    places = asked.topics[0].partitions + other.topics[0].partitions
    both = replace(asked, topics=(replace(asked.topics[0], partitions=places),))
    with connected(tiered.bootstrap) as wire:
        answer: FetchResponse = wire.ask(both, FetchResponse)
    damaged, whole = answer.responses[0].partitions
    assert damaged.error_code is ErrorCode.corrupt_message
    assert not damaged.records
    assert whole.error_code is ErrorCode.none
    assert [record.offset for record in iter_records(whole.records or b"")][-1] == 19


# Offsets, deletion, sizes.


def times_of(tiered: Tiered, topic: str) -> tuple[list[int], list[object]]:
    """Where two clients are led to by times around records, and before and after all of them."""
    moments = [START_MS + number * 1000 + after for number in range(0, 240, 13) for after in (0, 1)]
    moments += [START_MS - 5, START_MS + COUNT * 1000]
    with closing(confluent_consumer(tiered.bootstrap)) as consumer:
        by_confluent = [
            consumer.offsets_for_times([Place(topic, 0, moment)], timeout=30)[0].offset
            for moment in moments
        ]
    return by_confluent, asyncio.run(aiokafka_times(tiered.bootstrap, topic, moments))


async def aiokafka_times(bootstrap: str, topic: str, moments: list[int]) -> list[object]:
    place = AiokafkaPlace(topic, 0)
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
        return [(await consumer.offsets_for_times({place: moment}))[place] for moment in moments]


def test_times_lead_to_the_same_offsets_before_and_after(tiered: Tiered) -> None:
    topic = create(tiered.cluster, fresh_topic("times"))
    fill(tiered.bootstrap, topic)
    before = times_of(tiered, topic)
    assert before[0][:4] == [0, 1, 13, 14]
    for up_to in (100, None):
        tiered.convert(topic, up_to=up_to)
        assert times_of(tiered, topic) == before


def test_deleted_records_inside_segments_are_gone_for_all(tiered: Tiered) -> None:
    topic = create(tiered.cluster, fresh_topic("deleted"))
    fill(tiered.bootstrap, topic)
    tiered.convert(topic, up_to=120)
    for start in (30, 60, 119, 150):
        assert ConfluentAdmin().delete_records(tiered.bootstrap, topic, start) == start
        with closing(confluent_consumer(tiered.bootstrap)) as consumer:
            assert consumer.get_watermark_offsets(Place(topic, 0), 30) == (start, COUNT)
        with connected(tiered.bootstrap) as wire:
            assert wire.fetch(topic, 0, start - 1)[0] is ErrorCode.offset_out_of_range
        read = ConfluentClient().read(tiered.bootstrap, topic, count=COUNT - start, start=start)
        assert [one.offset for one in read] == list(range(start, COUNT))


def test_retention_takes_whole_segments_first_and_then_rows(tiered: Tiered) -> None:
    topic = create(tiered.cluster, fresh_topic("retained"))
    fill(tiered.bootstrap, topic)
    tiered.convert(topic, up_to=120)
    key = tiered.state(topic).topic_partition

    async def segment_bytes(control: ControlPlane, store: ObjectStore) -> list[int]:
        return [one.size_bytes for one in await control.segments.chained(key, limit=9)]

    def keep(kept_bytes: int) -> int:
        async def enforce(control: ControlPlane, store: ObjectStore) -> None:
            await control.log.enforce_retention(
                key, retention_ms=None, retention_bytes=kept_bytes, max_rows=1000
            )

        tiered.run(enforce)
        log_start = tiered.state(topic).log_start
        if log_start < COUNT:
            read = everything(ConfluentClient(), tiered, topic, log_start)
            assert [one.offset for one in read] == list(range(log_start, COUNT))
        return log_start

    first, second = tiered.run(segment_bytes)
    size = tiered.state(topic).size_bytes
    assert keep(size - first + 1) == 0
    assert keep(size - first) == 60
    assert keep(size - first - second + 1) == 60
    assert keep(size - first - second) == 120
    assert 120 < keep((size - first - second) // 2) < COUNT
    assert keep(0) == COUNT


def test_a_partitions_size_does_not_depend_on_its_tiers(tiered: Tiered) -> None:
    topic = create(tiered.cluster, fresh_topic("size"))
    fill(tiered.bootstrap, topic)
    before = tiered.state(topic).size_bytes
    for up_to in (100, None):
        tiered.convert(topic, up_to=up_to)
        assert tiered.state(topic).size_bytes == described_bytes(tiered, topic) == before > 0


def described_bytes(tiered: Tiered, topic: str) -> int:
    """The answer of DescribeLogDirs."""
    with connected(tiered.bootstrap) as wire:
        answer: DescribeLogDirsResponse = wire.ask(
            DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse
        )
    [found] = [one for one in answer.results[0].topics if one.name == topic]
    return found.partitions[0].partition_size


def test_a_deleted_topic_is_gone_with_its_segments(tiered: Tiered) -> None:
    topic = create(tiered.cluster, fresh_topic("gone"))
    fill(tiered.bootstrap, topic)
    tiered.convert(topic, up_to=120)
    topic_id = tiered.state(topic).topic_id
    ConfluentAdmin().delete(tiered.bootstrap, topic)
    with connected(tiered.bootstrap) as wire:
        assert wire.fetch(topic, 0, 0)[0] is ErrorCode.unknown_topic_or_partition

    async def purge(control: ControlPlane, store: ObjectStore) -> tuple[int, int]:
        while await control.topics.purge_deleted(window_ms=0, max_rows=1000):
            pass
        key = TopicPartition(topic_id, PartitionIndex(0))
        doomed = await control.segments.doomed(grace_ms=0, limit=1000)
        return len(await control.segments.chained(key, limit=1000)), len(
            [one for one in doomed if one.topic_id == topic_id]
        )

    assert tiered.run(purge) == (0, 2)


# The tier switched off, and topics that take no writes.


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_with_remote_reads_off_clients_wait_and_neither_skip_nor_reset_nor_spin(
    tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(BASE, storage=folder_storage(tmp_path))
    off = replace(settings, remote=RemoteSettings(reads=False))
    readers: list[TopicReader] = []
    read = TopicReader.read_watched

    async def counted(self: TopicReader, *spans: Any, **limits: Any) -> Any:
        readers.append(self)
        return await read(self, *spans, **limits)

    monkeypatch.setattr(TopicReader, "read_watched", counted)
    with one_broker(tmp_path, base=off) as cluster:
        tiered = Tiered(cluster, settings)
        topic = create(cluster, fresh_topic("off"))
        fill(tiered.bootstrap, topic)
        tiered.convert(topic, up_to=120)
        served = client.read(tiered.bootstrap, topic, count=COUNT - 120, start=120)
        assert [one.offset for one in served] == list(range(120, COUNT))
        with ThreadPoolExecutor() as threads:
            readers.clear()
            waiting = threads.submit(client.read, tiered.bootstrap, topic, count=1, start=50)
            sleep(WATCHED_SECONDS)
            assert not waiting.done()
            assert 1 <= len(readers) < 10 * WATCHED_SECONDS, "clients must not spin"
            readers[0]._tiers._refusals.clear()
            assert [one.offset for one in waiting.result(30)] == [50]


def read_only_topic(tiered: Tiered) -> str:
    name = fresh_topic("read-only")
    empty = PartitionToAdopt(
        partition=PartitionIndex(0), log_start=Offset(7), segments=[], epochs=[], producers=[]
    )
    adopted = TopicToAdopt(topic_id=TopicId(uuid4()), name=name, configs={}, partitions=[empty])

    async def adopt(control: ControlPlane, store: ObjectStore) -> None:
        await control.topics.adopt(adopted)

    tiered.run(adopt)
    return name


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("client", CLIENTS[:3], ids=lambda client: client.name)
def test_writers_to_a_topic_that_is_not_migrated_are_told_so_and_give_up(
    tiered: Tiered, client: Client, idempotent: bool
) -> None:
    topic = read_only_topic(tiered)
    began = monotonic()
    with pytest.raises(Exception, match=r"(?i)policy") as caught:
        client.write(tiered.bootstrap, topic, [Message(b"x")], idempotent=idempotent)
    assert monotonic() - began < 10, "the client should not have tried again"
    assert caught.value is not None
    with connected(tiered.bootstrap) as wire:
        answer = wire.produce(topic, batch_of([b"x"]))
        assert answer.error_code is ErrorCode.policy_violation
        assert f"stratalog topic migrate {topic}" in (answer.error_message or "")


def test_a_migrated_topic_takes_writes_in_a_new_leader_epoch(tiered: Tiered) -> None:
    topic = read_only_topic(tiered)

    async def migrate(control: ControlPlane, store: ObjectStore) -> None:
        topic_id = (await named(control, topic)).id
        await control.topics.begin_migration(topic_id)
        await control.topics.switch_to_blocks(topic_id)

    with pytest.raises(KafkaException):
        ConfluentClient().write(tiered.bootstrap, topic, [Message(b"too early")])
    tiered.run(migrate)
    assert ConfluentClient().write(tiered.bootstrap, topic, [Message(b"a")]) == [7]
    for client in CLIENTS:
        read = client.read(tiered.bootstrap, topic, count=1, start=7)
        assert [(one.offset, one.value) for one in read] == [(7, b"a")]


# Several brokers, another store.


def test_segments_on_s3_are_read_through_every_broker(
    postgres_dsn: str, s3_server: S3Server
) -> None:
    settings = replace(BASE, storage=shared_storage(postgres_dsn, s3_server))
    with running_cluster([settings, settings]) as cluster:
        tiered = Tiered(cluster, settings)
        topic = create(cluster, fresh_topic("s3"))
        fill(tiered.bootstrap, topic)
        before = everything(ConfluentClient(), tiered, topic)
        tiered.convert(topic, up_to=120)
        assert everything(ConfluentClient(), tiered, topic) == before
        for address in cluster.addresses:
            with connected(address) as wire:
                values = wire.fetch_values(topic)
                assert values == [one.value for one in before]


def test_segments_may_have_a_store_of_their_own(tmp_path: Path) -> None:
    own = f"file:{tmp_path / 'segments'}"
    settings = replace(BASE, storage=folder_storage(tmp_path), remote=RemoteSettings(objects=own))
    with one_broker(tmp_path, base=settings) as cluster:
        tiered = Tiered(cluster, settings)
        topic = create(cluster, fresh_topic("apart"))
        fill(tiered.bootstrap, topic)
        tiered.convert(topic, up_to=120, segment_store=open_store(own, clock=SystemClock()))
        read = everything(ConfluentClient(), tiered, topic)
        assert [one.offset for one in read] == list(range(COUNT))
    assert (tmp_path / "segments" / "stratalog.json").exists(), "both stores are claimed"
    assert not (tmp_path / "objects" / "segments").exists()
