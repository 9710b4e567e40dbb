"""A topic's life after its creation: configs altered, records deleted, sizes and producers
described."""

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # Public, but not marked so.
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11.response import FetchResponse
from tests.compat.conftest import CLIENTS
from tests.support.clients.admin import ANSWER_SECONDS, Admin, RefusedError
from tests.support.clients.aiokafka_admin import AiokafkaAdmin
from tests.support.clients.client import CODECS
from tests.support.clients.confluent_admin import ConfluentAdmin
from tests.support.clients.confluent_client import (
    ConfluentClient,
    confluent_consumer,
    confluent_poll,
    confluent_producer,
)
from tests.support.clients.kafka_python_admin import KafkaPythonAdmin
from tests.support.clients.message import LOG_APPEND_TIME, Message, numbered, values
from tests.support.clusters import BASE, Cluster, create, fresh_topic, one_broker
from tests.support.wire import Wire, batch_of, connected, fetch_of

from stratalog.batch.frames import check_crc, iter_batches
from stratalog.batch.header import Codec
from stratalog.settings import JanitorSettings

with warnings.catch_warnings():
    # It reads its schemas by a function that Python 3.11 and 3.12 call deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.codec
    from kafka import TopicPartition as KafkaPythonPartition
    from kafka.admin import KafkaAdminClient

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC = 3
MESSAGE_TOO_LARGE = 10
INVALID_TIMESTAMP = 32
INVALID_CONFIG = 40
INVALID_REQUEST = 42
HOUR_MS = 60 * 60 * 1000
ADMINS: list[Admin] = [ConfluentAdmin(), KafkaPythonAdmin(), AiokafkaAdmin()]


@pytest.fixture(params=ADMINS, ids=lambda admin: admin.name)
def admin(request: pytest.FixtureRequest) -> Admin:
    found: Admin = request.param
    return found


@pytest.fixture(scope="module")
def tidy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Path]]:
    """A broker whose janitor is always at work, and where it keeps its objects."""
    janitor = JanitorSettings(
        interval_ms=20,
        grace_ms=0,
        backup_window_ms=0,
        deleted_topic_window_ms=0,
        retention_window_ms=0,
        producer_expiry_ms=200,
    )
    folder = tmp_path_factory.mktemp("tidy")
    with one_broker(folder, base=replace(BASE, janitor=janitor)) as cluster:
        yield cluster, folder / "objects"


@contextmanager
def kafka_python(cluster: Cluster) -> Iterator[Any]:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    try:
        yield admin
    finally:
        admin.close()


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + ANSWER_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)


def ends(cluster: Cluster, topic: str) -> tuple[int, int]:
    consumer = confluent_consumer(cluster.bootstrap)
    try:
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), ANSWER_SECONDS)
        return first, end
    finally:
        consumer.close()


# Configs.


def test_configs_are_altered_through_every_client(cluster: Cluster, admin: Admin) -> None:
    topic = create(cluster, fresh_topic("altered"))
    admin.alter(cluster.bootstrap, topic, {"retention.ms": "77", "cleanup.policy": "delete"})
    for reader in ADMINS:
        assert reader.configs(cluster.bootstrap, topic)["retention.ms"] == "77"
    for wrong in ({"retention.ms": "soon"}, {"cleanup.policy": "compact"}, {"no.such": "1"}):
        with pytest.raises(RefusedError) as refused:
            admin.alter(cluster.bootstrap, topic, wrong)
        assert refused.value.code == INVALID_CONFIG
    assert admin.configs(cluster.bootstrap, topic)["retention.ms"] == "77"


def test_configs_of_a_topic_that_is_not_there_cannot_be_altered(cluster: Cluster) -> None:
    for admin in (ConfluentAdmin(), AiokafkaAdmin()):
        with pytest.raises(RefusedError) as refused:
            admin.alter(cluster.bootstrap, fresh_topic("never-was"), {"retention.ms": "1"})
        assert refused.value.code == UNKNOWN_TOPIC


def test_confluent_unsets_appends_and_replaces_configs(cluster: Cluster) -> None:
    topic = create(cluster, fresh_topic("unset"), retention_ms="5", segment_ms="6")
    replicas = "leader.replication.throttled.replicas"

    def alter(*changes: tuple[str, str | None, AlterConfigOpType]) -> None:
        entries = [ConfigEntry(n, v, incremental_operation=kind) for n, v, kind in changes]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        _result(client.incremental_alter_configs([resource]))

    client = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    alter(
        ("retention.ms", None, AlterConfigOpType.DELETE),
        (replicas, "1:2", AlterConfigOpType.APPEND),
    )
    alter((replicas, "1:3", AlterConfigOpType.APPEND))
    found = ConfluentAdmin().configs(cluster.bootstrap, topic)
    assert (found["retention.ms"], found["segment.ms"]) == ("604800000", "6")
    assert found[replicas] == "1:2,1:3"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        _result(
            client.alter_configs(
                [ConfigResource(ResourceType.TOPIC, topic, set_config={"flush.ms": "8"})]
            )
        )
    found = ConfluentAdmin().configs(cluster.bootstrap, topic)
    assert (found["flush.ms"], found["segment.ms"], found[replicas]) == ("8", "604800000", "")


def test_brokers_are_described_through_every_client(cluster: Cluster, admin: Admin) -> None:
    configs = admin.broker_configs(cluster.bootstrap, 0)
    assert configs["broker.id"] == "0"
    assert configs["num.partitions"] == "2"
    assert configs["log.retention.ms"] == "604800000"
    assert configs["producer.id.expiration.ms"] == "86400000"


def test_configs_come_with_their_synonyms_and_sources(cluster: Cluster) -> None:
    topic = create(cluster, fresh_topic("synonyms"), retention_ms="5")
    client = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    found = _result(client.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
    own = found["retention.ms"]
    assert (own.value, own.source, own.is_default) == ("5", 1, False)
    assert {(one.name, one.value, one.source) for one in own.synonyms.values()} == {
        ("retention.ms", "5", 1),
        ("log.retention.ms", "604800000", 5),
    }
    assert (found["segment.ms"].source, found["segment.ms"].is_default) == (5, True)


def test_an_altered_limit_holds_at_every_broker_within_seconds(cluster: Cluster) -> None:
    topic = create(cluster, fresh_topic("limit"))
    batch = batch_of([b"x" * 5000])
    for address in cluster.addresses:
        with connected(address) as wire:
            assert wire.produce(topic, batch).error_code is ErrorCode.none
    ConfluentAdmin().alter(cluster.bootstrap, topic, {"max.message.bytes": "1000"})
    started = time.monotonic()
    for address in cluster.addresses:
        with connected(address) as wire:
            eventually(lambda: _code(wire, topic, batch) == MESSAGE_TOO_LARGE, "the limit")
    assert time.monotonic() - started < 10


def test_timestamps_follow_the_topics_type_and_bounds(cluster: Cluster) -> None:
    topic, admin = create(cluster, fresh_topic("times")), ConfluentAdmin()
    here = cluster.leader_of(topic)
    now_ms = int(time.time() * 1000)
    old = Message(b"old", timestamp_ms=now_ms - HOUR_MS)
    ConfluentClient().write(cluster.bootstrap, topic, [old])
    admin.alter(cluster.bootstrap, topic, {"message.timestamp.before.max.ms": "60000"})
    batches = {"old": now_ms - HOUR_MS, "new": now_ms + 2 * HOUR_MS}
    with connected(here) as wire:
        for name, at in batches.items():
            batch = batch_of([b"refused"], timestamp_ms=at)
            eventually(lambda: _code(wire, topic, batch) == INVALID_TIMESTAMP, name)  # noqa: B023
    admin.alter(cluster.bootstrap, topic, {"message.timestamp.type": "LogAppendTime"})
    with connected(here) as wire:
        batch = batch_of([b"stamped"], timestamp_ms=now_ms - HOUR_MS)
        eventually(lambda: _code(wire, topic, batch) == 0, "log append time")
    end = ends(cluster, topic)[1]
    (received,) = ConfluentClient().read(cluster.bootstrap, topic, count=1, start=end - 1)
    assert (received.value, received.timestamp_type) == (b"stamped", LOG_APPEND_TIME)
    assert received.timestamp_ms >= now_ms


@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_batches_of_every_codec_are_stored_with_the_topics(
    tidy: tuple[Cluster, Path], target: str
) -> None:
    cluster, _ = tidy
    topic = create(cluster, fresh_topic(f"to-{target}"))
    ConfluentAdmin().alter(cluster.bootstrap, topic, {"compression.type": target})
    sent: list[Message] = []
    for codec in CODECS:
        messages = numbered(20, f"{codec}-{'x' * 200}")
        told = ConfluentClient().write(cluster.bootstrap, topic, messages, codec=codec)
        assert told == list(range(len(sent), len(sent) + 20))
        sent += messages
    stored = Codec.NONE if target == "uncompressed" else Codec[target.upper()]
    with connected(cluster.addresses[0]) as wire:
        assert _stored_codecs(wire, topic) == {stored}
        assert wire.fetch_values(topic) == values(sent)
    for client in [client for client in CLIENTS if _has_codec(client.name, target)]:
        assert values(client.read(cluster.bootstrap, topic, count=len(sent))) == values(sent)


def _has_codec(client: str, codec: str) -> bool:
    """kafka-python leaves the libraries of some codecs to its users."""
    if client != "kafka-python" or codec == "uncompressed":
        return True
    return bool(getattr(kafka.codec, f"has_{codec}")())


def _stored_codecs(wire: Wire, topic: str) -> set[int]:
    """Of the first batches. Their checksums and offsets are checked here."""
    answer: FetchResponse = wire.ask(fetch_of(topic, 0, 0), FetchResponse)
    data = answer.responses[0].partitions[0].records
    assert data
    found, offset = set(), 0
    for position, header in iter_batches(data):
        check_crc(data, position, header)
        assert header.base_offset == offset
        offset = header.last_offset + 1
        found.add(header.codec_bits)
    return found


def test_a_batch_that_grows_beyond_the_limit_is_refused(tidy: tuple[Cluster, Path]) -> None:
    cluster, _ = tidy
    topic = create(
        cluster, fresh_topic("grows"), compression_type="uncompressed", max_message_bytes="10000"
    )
    with connected(cluster.addresses[0]) as wire:
        small = batch_of([b"x" * 9000], codec=Codec.GZIP)
        assert wire.produce(topic, small).error_code is ErrorCode.none
        large = batch_of([b"x" * 11_000], codec=Codec.GZIP)
        assert wire.produce(topic, large).error_code is ErrorCode.message_too_large


def _code(wire: Wire, topic: str, batch: bytes) -> int:
    return int(wire.produce(topic, batch).error_code)


# Retention.


@pytest.mark.parametrize("limit", ["retention.ms", "retention.bytes"])
def test_altered_retention_deletes_records_and_their_objects(
    tidy: tuple[Cluster, Path], limit: str
) -> None:
    cluster, objects = tidy
    topic = create(cluster, fresh_topic("short"), retention_ms="-1", retention_bytes="-1")
    before = _blocks(objects)
    old = [Message(b"%d" % at, timestamp_ms=1_700_000_000_000) for at in range(10)]
    ConfluentClient().write(cluster.bootstrap, topic, old)
    written = _blocks(objects) - before
    assert written
    assert ends(cluster, topic) == (0, 10)
    ConfluentAdmin().alter(cluster.bootstrap, topic, {limit: "0"})
    eventually(lambda: ends(cluster, topic) == (10, 10), "retention")
    eventually(lambda: not written & _blocks(objects), "the objects to be deleted")
    assert ConfluentClient().write(cluster.bootstrap, topic, [Message(b"new")]) == [10]


def _blocks(objects: Path) -> set[Path]:
    return {path for path in (objects / "blocks").rglob("*") if path.is_file()}


# Records.


def test_records_are_deleted_through_every_client(cluster: Cluster, admin: Admin) -> None:
    topic = create(cluster, fresh_topic("trimmed"))
    with connected(cluster.addresses[0]) as wire:
        for _ in range(2):
            wire.produce(topic, batch_of([b"%d" % number for number in range(5)]))
    assert admin.delete_records(cluster.bootstrap, topic, 3) == 3
    assert ends(cluster, topic) == (3, 10)
    assert admin.delete_records(cluster.bootstrap, topic, 2) == 3
    received = ConfluentClient().read(cluster.bootstrap, topic, count=7, start=3)
    assert [each.offset for each in received] == list(range(3, 10))
    with pytest.raises(RefusedError) as refused:
        admin.delete_records(cluster.bootstrap, topic, 11)
    if not isinstance(admin, AiokafkaAdmin):  # It raises an error of its own without a number.
        assert refused.value.code == OFFSET_OUT_OF_RANGE
    assert admin.delete_records(cluster.bootstrap, topic, -1) == 10
    assert ends(cluster, topic) == (10, 10)


def test_offsets_are_listed_by_every_kind(cluster: Cluster) -> None:
    topic = create(cluster, fresh_topic("kinds"), message_timestamp_before_max_ms=str(2**62))
    start_ms = 1_700_000_000_000
    messages = [Message(b"x", timestamp_ms=start_ms + at) for at in (0, 50, 90, 20, 90, 10)]
    ConfluentClient().write(cluster.bootstrap, topic, messages)
    ConfluentAdmin().delete_records(cluster.bootstrap, topic, 1)
    client = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

    def listed(spec: OffsetSpec) -> int:
        place = TopicPartition(topic, 0)
        asked = client.list_offsets({place: spec}, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        return int(asked[place].result(ANSWER_SECONDS).offset)

    assert listed(OffsetSpec.earliest()) == 1  # type: ignore[no-untyped-call]
    assert listed(OffsetSpec.latest()) == 6  # type: ignore[no-untyped-call]
    assert listed(OffsetSpec.max_timestamp()) == 2  # type: ignore[no-untyped-call]
    assert listed(OffsetSpec.for_timestamp(start_ms + 60)) == 2
    assert listed(OffsetSpec.for_timestamp(start_ms + 91)) == -1
    with kafka_python(cluster) as admin:
        place = KafkaPythonPartition(topic, 0)
        kinds = {-1: 6, -2: 1, -3: 2, -4: 1, -5: -1, start_ms + 60: 2, start_ms + 91: -1}
        found = {kind: admin.list_partition_offsets({place: kind}) for kind in kinds}
    assert {kind: answer[place].offset for kind, answer in found.items()} == kinds


def test_a_consumer_that_knows_its_epoch_has_it_checked_and_reads_on(cluster: Cluster) -> None:
    """With an epoch, librdkafka asks where that epoch ended before it fetches."""
    topic = create(cluster, fresh_topic("epoch"))
    ConfluentClient().write(cluster.bootstrap, topic, numbered(10))
    consumer = confluent_consumer(cluster.bootstrap)
    try:
        consumer.assign([TopicPartition(topic, 0, 4, leader_epoch=0)])
        received = confluent_poll(consumer, 6)
    finally:
        consumer.close()
    assert [each.offset for each in received] == list(range(4, 10))


# Descriptions of partitions.


def test_sizes_are_told_once_whichever_brokers_are_asked(cluster: Cluster) -> None:
    topic = create(cluster, fresh_topic("sizes"), partitions=4)
    batch = batch_of([b"x" * 1000])
    with connected(cluster.addresses[0]) as wire:
        for partition in range(4):
            for _ in range(partition):
                wire.produce(topic, batch, partition=partition)
    with kafka_python(cluster) as admin:
        answers = admin.describe_log_dirs()
    told = [
        (partition["partition_index"], partition["partition_size"])
        for broker in answers
        for directory in broker["log_dirs"]
        for each in directory["topics"]
        if each["name"] == topic
        for partition in each["partitions"]
    ]
    assert sorted(told) == [(index, index * len(batch)) for index in range(4)]


def test_topics_are_described_in_pages(cluster: Cluster) -> None:
    topic = create(cluster, fresh_topic("pages"), partitions=5)
    indexes, cursor = [], None
    with kafka_python(cluster) as admin:
        for _ in range(3):
            page = admin.describe_topic_partitions([topic], 2, cursor)
            indexes.append([one["partition_index"] for one in page["topics"][0]["partitions"]])
            cursor = page["next_cursor"]
    assert (indexes, cursor) == ([[0, 1], [2, 3], [4]], None)


def test_elections_and_reassignments_are_answered(cluster: Cluster) -> None:
    topic = create(cluster, fresh_topic("elected"))
    with kafka_python(cluster) as admin:
        answer = admin.elect_leaders(0, {topic: [0]}, raise_errors=False)
        (result,) = answer.replica_election_results
        assert result.partition_result[0].error_code == ErrorCode.election_not_needed
        place = KafkaPythonPartition(topic, 0)
        assert admin.list_partition_reassignments() == {}
        refused = admin.alter_partition_reassignments({place: [0, 1, 2]})[place]
        assert refused.errno == ErrorCode.invalid_replica_assignment
        nothing = admin.alter_partition_reassignments({place: None})[place]
        assert nothing.errno == ErrorCode.no_reassignment_in_progress


# Producers.


def test_an_idle_producer_is_forgotten_and_goes_on(tidy: tuple[Cluster, Path]) -> None:
    cluster, _ = tidy
    topic = create(cluster, fresh_topic("idle"))
    place = KafkaPythonPartition(topic, 0)
    producer = confluent_producer(cluster.bootstrap, idempotent=True)
    failures: list[object] = []

    def write(value: bytes) -> None:
        producer.produce(
            topic, value, partition=0, on_delivery=lambda e, _: failures.append(e) if e else None
        )
        assert producer.flush(ANSWER_SECONDS) == 0

    with kafka_python(cluster) as admin:

        def active() -> list[Any]:
            return list(admin.describe_producers([place])[place].active_producers)

        write(b"first")
        assert [one.last_sequence for one in active()] in ([0], [])
        eventually(lambda: not active(), "the producer to expire")
        write(b"second")
        write(b"third")
    assert failures == []
    received = ConfluentClient().read(cluster.bootstrap, topic, count=3)
    assert values(received) == [b"first", b"second", b"third"]


def test_active_producers_are_described(cluster: Cluster) -> None:
    topic = create(cluster, fresh_topic("active"))
    batch = batch_of([b"a", b"b"], producer_id=2**43, producer_epoch=3, base_sequence=7)
    with connected(cluster.addresses[0]) as wire:
        assert wire.produce(topic, batch).error_code is ErrorCode.none
    place = KafkaPythonPartition(topic, 0)
    with kafka_python(cluster) as admin:
        (producer,) = admin.describe_producers([place])[place].active_producers
    assert (producer.producer_id, producer.producer_epoch) == (2**43, 3)
    assert producer.last_sequence == 8


def _result(futures: Any) -> Any:
    (future,) = futures.values()
    try:
        return future.result(ANSWER_SECONDS)
    except KafkaException as error:
        raise RefusedError(error.args[0].code()) from error
