"""Failures of other systems: each test here fails if Stratalog has the same fault.

Real brokers and, wherever a client would see the fault, real clients. The table in docs/safety.md
names the failures and all the tests that guard against them.
"""

import random
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from kio.schema.errors import ErrorCode
from tests.integration.asking import (
    EARLIEST,
    LATEST,
    Told,
    boundaries,
    commit_offset,
    committed_offset,
    delete_records,
    epoch_end,
    list_offset,
)
from tests.integration.breakable import (
    Pair,
    away,
    frail_broker,
    run_sql,
    threads,
)
from tests.integration.known_violations import NONE, TIDY
from tests.support.clients.aiokafka_client import AiokafkaClient
from tests.support.clients.client import Client
from tests.support.clients.confluent_admin import ConfluentAdmin
from tests.support.clients.confluent_client import (
    ConfluentClient,
    confluent_consumer,
    confluent_poll,
)
from tests.support.clients.group_members import wait_until
from tests.support.clients.group_sharing import coordinator_of
from tests.support.clients.kafka_python_client import KafkaPythonClient
from tests.support.clients.message import numbered, values
from tests.support.clusters import (
    BASE,
    Cluster,
    create,
    folder_storage,
    fresh_topic,
    running_cluster,
    shared_storage,
    wait_until_met,
)
from tests.support.servers import PostgresServer, S3Server
from tests.support.wire import Wire, batch_of, connected

from stratalog.settings import BlockSettings, JanitorSettings
from stratalog.testing import Broker


@pytest.fixture(scope="module")
def pair(postgres_server: PostgresServer, s3_server: S3Server) -> Iterator[Pair]:
    """Two brokers that share everything. Keys and offsets have their types in PostgreSQL alone."""
    dsn = postgres_server.create_database()
    settings = replace(TIDY, storage=shared_storage(dsn, s3_server))
    with running_cluster([settings, settings]) as cluster:
        yield Pair(cluster, dsn)
    postgres_server.drop_database(dsn)


def janitors_have_run(pair: Pair) -> None:
    """Until retention has gone through all topics once more since the call."""
    canary = create(pair.cluster, fresh_topic("zz-canary"), retention_bytes="0")
    with connected(pair.cluster.addresses[0]) as wire:
        # Of two janitors, one takes two of three, and has been through all topics in between.
        for written in (1, 2, 3):
            assert wire.produce(canary, batch_of([b"gone soon"])).error_code is NONE
            wait_until(lambda end=written: list_offset(wire, canary, EARLIEST) == (NONE, end))  # type: ignore[misc]


# Writes and reads.


def test_what_was_acknowledged_is_at_its_offset_at_every_broker_at_once(pair: Pair) -> None:
    """Elsewhere a healthy cluster lost writes that it had acknowledged."""
    topic = create(pair.cluster, fresh_topic("kept"))
    told: dict[int, bytes] = {}

    def write(name: str, through: str, other: str) -> None:
        with connected(through) as writer, connected(other) as reader:
            for number in range(25):
                value = f"{name}-{number}".encode()
                answer = writer.produce(topic, batch_of([value, value]))
                assert answer.error_code is NONE
                code, records = reader.fetch(topic, 0, answer.base_offset)
                found = [each.value for each in records if each.offset >= answer.base_offset]
                assert (code, found[:2]) == (NONE, [value, value])
                told.update({answer.base_offset: value, answer.base_offset + 1: value})

    here, there = pair.cluster.addresses
    with threads(lambda: write("a", here, there), lambda: write("b", there, here)):
        pass
    with pair.wires() as wires:
        for wire in wires:
            assert dict(enumerate(wire.fetch_values(topic))) == told


@pytest.mark.parametrize(
    "client",
    [ConfluentClient(), KafkaPythonClient(), AiokafkaClient()],
    ids=lambda client: client.name,
)
def test_a_reader_inside_the_last_batch_gets_the_rest_of_it(pair: Pair, client: Client) -> None:
    """Elsewhere the batch around the offset was skipped, and the reader waited for ever."""
    topic = create(pair.cluster, fresh_topic("inside"))
    sent = [[b"%d-%d" % (batch, number) for number in range(5)] for batch in range(3)]
    everything = [value for batch in sent for value in batch]
    with pair.wires() as wires:
        for batch in sent:
            assert wires[0].produce(topic, batch_of(batch)).error_code is NONE
        for wire in wires:  # The first has the blocks in memory, the other reads the store.
            for start in range(len(everything) + 1):
                assert wire.fetch_values(topic, start=start) == everything[start:]
    received = client.read(pair.cluster.bootstrap, topic, count=2, start=13)
    assert [(each.offset, each.value) for each in received] == [(13, b"2-3"), (14, b"2-4")]


def test_a_repeat_is_answered_with_its_own_offset_or_refused(tmp_path: Path) -> None:
    """Elsewhere repeats were looked up by the wrong kind of offset once the cache had turned
    over, and were stored again."""
    storage = folder_storage(tmp_path)
    told: dict[int, int] = {}

    def batch(sequence: int) -> bytes:
        return batch_of(
            [b"%d" % sequence] * 2, producer_id=2**43, producer_epoch=0, base_sequence=sequence
        )

    def repeats(wire: Wire) -> list[Told]:
        answers = [wire.produce(topic, batch(sequence)) for sequence in told]
        return [Told(answer.error_code, answer.base_offset) for answer in answers]

    # Records of others lie between, so that no offset is a sequence.
    with Broker(replace(BASE, storage=storage)) as broker, connected(broker.bootstrap) as wire:
        topic = create(Cluster([broker.bootstrap]), fresh_topic("repeated"))
        for sequence in range(0, 16, 2):
            wire.produce(topic, batch_of([b"between"] * 3))
            told[sequence] = wire.produce(topic, batch(sequence)).base_offset
        assert list(told.values()) == list(range(3, 43, 5))
        evicted = [Told(ErrorCode.out_of_order_sequence_number, -1)] * 3
        expected = evicted + [Told(NONE, offset) for offset in list(told.values())[3:]]
        assert repeats(wire) == expected
        end = list_offset(wire, topic, LATEST)
        assert end == (NONE, 40)
        assert delete_records(wire, topic, 40) == (NONE, 40)
        assert repeats(wire) == expected
    with Broker(replace(BASE, storage=storage)) as broker, connected(broker.bootstrap) as wire:
        assert repeats(wire) == expected
        assert list_offset(wire, topic, LATEST) == end
    forgetful = JanitorSettings(interval_ms=10, producer_expiry_ms=0)
    # A broker that alone has another time expires nothing.
    _share(tmp_path, "janitor.producer_expiry_ms", "0")
    expiring = replace(BASE, storage=storage, janitor=forgetful)
    with Broker(expiring) as broker, connected(broker.bootstrap) as wire:
        wait_until(lambda: not _producers(tmp_path))
    with Broker(replace(BASE, storage=storage)) as broker, connected(broker.bootstrap) as wire:
        # A forgotten producer goes on, and is known again from there.
        for _ in range(2):
            assert wire.produce(topic, batch(16)).base_offset == 40
        gap = wire.produce(topic, batch(20))
        assert gap.error_code is ErrorCode.out_of_order_sequence_number
        assert wire.fetch_values(topic, start=40) == [b"16", b"16"]


def _share(folder: Path, name: str, value: str) -> None:
    with closing(sqlite3.connect(folder / "control.db")) as database, database:
        database.execute("UPDATE cluster_settings SET value = ? WHERE name = ?", (value, name))


def _producers(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "control.db")) as database:
        (count,) = database.execute("SELECT count(*) FROM producers").fetchone()
    return int(count)


def test_a_consumer_that_asks_where_its_epoch_ended_is_never_sent_to_the_start(pair: Pair) -> None:
    """Elsewhere the answer for older data was the start of the log, and consumers read it all
    again."""
    topic = create(pair.cluster, fresh_topic("epochs"))
    with pair.wires() as wires:
        for _ in range(5):
            wires[0].produce(topic, batch_of([b"x"] * 10))
        assert delete_records(wires[0], topic, 15) == (NONE, 15)
        for start in (15, 27, 49):
            assert offsets_from(pair, topic, start) == list(range(start, 50))
        pair.begin_epochs(topic, {0: 0, 2: 10, 5: 20, 6: 30})
        for wire in wires:
            ends = [epoch_end(wire, topic, epoch) for epoch in (0, 2, 3, 5, 6, 7)]
            assert ends == [
                (NONE, epoch, end)
                for epoch, end in ((0, 10), (2, 20), (2, 20), (5, 30), (6, 50), (-1, -1))
            ]


def offsets_from(pair: Pair, topic: str, start: int) -> list[int]:
    """Return the offsets that librdkafka reads after it has asked for the end of the first epoch.
    If it thought that
    the log was truncated, this would fail: it may not start over by itself."""
    with closing(confluent_consumer(pair.cluster.bootstrap)) as consumer:
        consumer.assign([TopicPartition(topic, 0, start, leader_epoch=0)])
        return [each.offset for each in confluent_poll(consumer, 50 - start)]


# Deleting.


def test_offsets_beyond_32_bits_are_deleted_like_any_other(pair: Pair) -> None:
    """Elsewhere a difference of offsets overflowed 32 bits, made live data look expired, and its
    object was deleted."""
    first = 2**31 - 5
    topic = create(pair.cluster, fresh_topic("far"))
    pair.begin_at(topic, first)
    sent = [b"%d" % number for number in range(20)]
    group = fresh_topic("far")
    with connected(pair.cluster.addresses[0]) as wire:
        batches = [batch_of(sent[at : at + 4]) for at in range(0, 20, 4)]
        for place, batch in enumerate(batches):
            assert wire.produce(topic, batch).base_offset == first + 4 * place
        janitors_have_run(pair)
        assert wire.fetch_values(topic, start=first) == sent
        assert delete_records(wire, topic, first + 6) == (NONE, first + 6)
        janitors_have_run(pair)
        assert wire.fetch_values(topic, start=first + 6) == sent[6:]
        ConfluentAdmin().alter(
            pair.cluster.bootstrap, topic, {"retention.bytes": f"{len(b''.join(batches[3:]))}"}
        )
        wait_until(lambda: list_offset(wire, topic, EARLIEST) == (NONE, first + 12))
        janitors_have_run(pair)
        assert list_offset(wire, topic, EARLIEST) == (NONE, first + 12)
        assert wire.fetch_values(topic, start=first + 12) == sent[12:]
        assert list_offset(wire, topic, LATEST) == (NONE, first + 20)
    with connected(coordinator_of(pair.cluster.addresses[0], group)) as wire:
        assert commit_offset(wire, group, topic, first + 17) is NONE
        assert committed_offset(wire, group, topic) == (NONE, first + 17)


def test_trimming_takes_what_it_was_asked_to_and_no_more(pair: Pair) -> None:
    """Elsewhere a trim that raced with others took more than it should, or was undone."""
    kept = 10
    size = len(batch_of([b"%4d" % 0]))
    topic = create(pair.cluster, fresh_topic("raced"), retention_bytes=f"{kept * size}")
    asked, lock = [0], threading.Lock()
    done = threading.Event()

    def check(wire: Wire, at_least: int) -> tuple[int, int]:
        last = list_offset(wire, topic, LATEST).offset
        code, start, end = boundaries(wire, topic, last)
        # Between the two questions, others may have written, and deleted beyond the first answer.
        assert code is (ErrorCode.offset_out_of_range if last < start else NONE)
        assert last <= end
        assert at_least <= start <= max(asked[0], end - kept)
        return start, end

    def write(through: str) -> None:
        with connected(through) as wire:
            for number in range(40):
                assert wire.produce(topic, batch_of([b"%4d" % number])).error_code is NONE

    def delete(through: str, other: str) -> None:
        chance = random.Random(through)
        with connected(through) as wire, connected(other) as witness:
            while not done.is_set():
                start, end = check(wire, 0)
                wanted = min(end, start + chance.randint(1, 3))
                with lock:
                    asked[0] = max(asked[0], wanted)
                code, low = delete_records(wire, topic, wanted)
                assert code is NONE
                assert wanted <= low
                check(witness, low)

    here, there = pair.cluster.addresses
    with threads(lambda: delete(here, there), lambda: delete(there, here)):
        try:
            with threads(lambda: write(here), lambda: write(there)):
                pass
        finally:
            done.set()
    with pair.wires() as (wire, other):
        for _ in range(kept + 5):
            wire.produce(topic, batch_of([b"%4d" % 9999]))
        janitors_have_run(pair)
        start, end = check(other, asked[0])
        # The sizes still add up, so that retention keeps neither less nor more.
        assert (start, end) == (80 + 5, 80 + kept + 5)
        assert other.fetch_values(topic, start=start) == [b"9999"] * kept


def test_deleted_records_stay_deleted(tmp_path: Path) -> None:
    """Elsewhere records that had been deleted were read again, from another place."""
    settings = replace(BASE, storage=folder_storage(tmp_path))
    sent = [b"%d" % number for number in range(20)]

    def check(address: str) -> None:
        with connected(address) as wire:
            for start in (0, 6):
                assert wire.fetch(topic, 0, start) == (ErrorCode.offset_out_of_range, [])
            assert wire.fetch_values(topic, start=7)[:13] == sent[7:]
            for timestamp in (EARLIEST, 0):
                assert list_offset(wire, topic, timestamp) == (NONE, 7)
            written = wire.produce(topic, batch_of([b"more"]))
            assert (written.error_code, written.log_start_offset) == (NONE, 7)
            assert delete_records(wire, topic, 3) == (NONE, 7)
        starting_over = {"auto.offset.reset": "earliest"}
        with closing(confluent_consumer(address, **starting_over)) as consumer:
            consumer.assign([TopicPartition(topic, 0, 0)])
            assert values(confluent_poll(consumer, 13)) == sent[7:]

    with Broker(settings) as first, Broker(settings) as second:
        addresses = [first.bootstrap, second.bootstrap]
        wait_until_met(addresses)
        topic = create(Cluster(addresses), fresh_topic("deleted"))
        with connected(addresses[0]) as writer, connected(addresses[1]) as deleter:
            for at in (0, 10):
                writer.produce(topic, batch_of(sent[at : at + 10]))
            assert writer.fetch_values(topic) == sent  # From the blocks that it has in memory.
            assert delete_records(deleter, topic, 7) == (NONE, 7)
        for address in addresses:
            check(address)
    with Broker(replace(TIDY, storage=settings.storage)) as restarted:
        check(restarted.bootstrap)


def test_what_no_commit_refers_to_is_collected_and_nothing_else(
    postgres_server: PostgresServer, s3_server: S3Server
) -> None:
    """Elsewhere objects whose commit was lost stayed for ever, or live ones were collected."""
    sweeping = replace(
        TIDY,
        block=BlockSettings(window_ms=5, retry_ms=200, cache_bytes=0),
        janitor=JanitorSettings(interval_ms=60, grace_ms=0, backup_window_ms=0, orphan_age_ms=0),
    )
    with frail_broker(postgres_server, s3_server, sweeping) as broker:
        topic = create(Cluster([broker.address]), fresh_topic("swept"))
        sent = numbered(200, "x" * 100)
        ConfluentClient().write(broker.address, topic, sent[:100], idempotent=True)
        with connected(broker.address) as wire:
            before = broker.storage.stored_keys()
            with away(broker.database):
                for _ in range(2):
                    assert wire.produce(topic, batch_of([b"never committed"])).error_code
                orphans = broker.storage.stored_keys() - before
                assert len(orphans) >= 2
            ConfluentClient().write(broker.address, topic, sent[100:], idempotent=True)
            wait_until(lambda: not orphans & broker.storage.stored_keys())
            referenced = {
                row[0]
                for row in run_sql(
                    broker.storage.dsn,
                    "SELECT o.key FROM objects o WHERE EXISTS"
                    " (SELECT 1 FROM batches b WHERE b.object_id = o.object_id)",
                )
            }
            assert referenced <= broker.storage.stored_keys()
            wait_until(lambda: broker.storage.stored_keys() == referenced)
            assert wire.fetch_values(topic) == values(sent)
