"""Two brokers over one PostgreSQL and one S3 server: any of them takes any write and any read."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kio.schema.errors import ErrorCode
from tests.integration.broker_process import process
from tests.support.clients.client import ANSWER_SECONDS
from tests.support.clients.confluent_admin import ConfluentAdmin
from tests.support.clients.confluent_client import ConfluentClient, confluent_producer
from tests.support.clients.message import numbered, values
from tests.support.clusters import (
    BASE,
    Cluster,
    create,
    fresh_topic,
    shared_storage,
    two_brokers,
    wait_until_met,
)
from tests.support.servers import PostgresServer, S3Server
from tests.support.wire import batch_of, connected

from stratalog.testing import Broker

PARTITIONS = 4


@pytest.fixture(scope="module")
def pair(postgres_server: PostgresServer, s3_server: S3Server) -> Iterator[Cluster]:
    with two_brokers(postgres_server, s3_server) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def storage_flags(postgres_server: PostgresServer, s3_server: S3Server) -> Iterator[list[str]]:
    dsn = postgres_server.create_database()
    options = [f"storage.object_options.{name}={v}" for name, v in s3_server.options.items()]
    flags = ["--objects", s3_server.fresh_url(), "--control", dsn]
    for each in (*options, "block.window_ms=5ms", "broker.lease_ms=1500ms"):
        flags += ["--set", each]
    yield flags
    postgres_server.drop_database(dsn)


class Acknowledged:
    """A producer in a thread of its own, which notes every acknowledgement."""

    def __init__(self, producer: Producer, topic: str, name: str) -> None:
        self.values: list[bytes] = []
        self.failures: list[object] = []
        self._producer = producer
        self._topic = topic
        self._name = name
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait_for(self, count: int) -> None:
        """Until so many more messages are acknowledged."""
        wanted = len(self.values) + count
        deadline = time.monotonic() + ANSWER_SECONDS
        while len(self.values) < wanted:
            assert time.monotonic() < deadline, f"stuck at {len(self.values)} of {wanted}"
            time.sleep(0.01)

    def finish(self) -> list[bytes]:
        self._stop.set()
        self._thread.join()
        return self.values

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            value = f"{self._name}-{number}".encode()
            self._producer.produce(
                self._topic, value, partition=number % PARTITIONS, on_delivery=self._delivered
            )
            self._producer.poll(0.001)
            number += 1
        if self._producer.flush(ANSWER_SECONDS):
            self.failures.append("not all were delivered")

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.failures.append(error)
        else:
            self.values.append(message.value())  # type: ignore[attr-defined]


def stored(address: str, topic: str) -> list[list[bytes | None]]:
    """Return the records that a broker serves, partition by partition. Offsets are checked to be
    dense."""
    with connected(address) as wire:
        return [wire.fetch_values(topic, partition=each) for each in range(PARTITIONS)]


def assert_once_and_in_order(partitions: list[list[bytes | None]], producer: str) -> None:
    for partition, found in enumerate(partitions):
        own = [value for value in found if value and value.startswith(f"{producer}-".encode())]
        expected = range(partition, partition + len(own) * PARTITIONS, PARTITIONS)
        assert own == [f"{producer}-{number}".encode() for number in expected]


def test_writes_through_both_at_once_are_dense_and_read_alike(pair: Cluster) -> None:
    """Raw writers send to a broker of their own, the producers to whomever Metadata names."""
    topic = create(pair, fresh_topic("both"), partitions=PARTITIONS)
    producers = [
        Acknowledged(confluent_producer(pair.bootstrap, idempotent=True), topic, f"producer{each}")
        for each in range(2)
    ]
    writers = [
        threading.Thread(target=write_raw, args=(address, topic, place))
        for place, address in enumerate(pair.addresses)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    for producer in producers:
        producer.wait_for(200)
        producer.finish()
        assert producer.failures == []
    first, second = (stored(address, topic) for address in pair.addresses)
    assert first == second
    everything = [value for partition in first for value in partition]
    assert len(everything) == len(set(everything))
    raw = {b"raw%d-%d" % (place, number) for place in range(2) for number in range(RAW_WRITES)}
    assert set(everything) == raw.union(*(producer.values for producer in producers))
    for each in range(2):
        assert_once_and_in_order(first, f"producer{each}")
        assert_once_and_in_order(first, f"raw{each}")


RAW_WRITES = 80


def write_raw(address: str, topic: str, place: int) -> None:
    with connected(address) as wire:
        for number in range(RAW_WRITES):
            partition = number % PARTITIONS
            batch = batch_of(
                [b"raw%d-%d" % (place, number)],
                producer_id=2**50 + place,
                producer_epoch=0,
                base_sequence=number // PARTITIONS,
            )
            assert wire.produce(topic, batch, partition=partition).error_code is ErrorCode.none


def test_a_producer_may_change_brokers_between_batches(pair: Cluster) -> None:
    """Sequences are known to both: a repeat is recognised wherever it comes."""
    topic = create(pair, fresh_topic("roaming"))
    for sequence in range(6):
        batch = batch_of(
            [b"%d" % sequence], producer_id=2**42, producer_epoch=0, base_sequence=sequence
        )
        for address in pair.addresses:
            with connected(address) as wire:
                assert wire.produce(topic, batch).base_offset == sequence
    with connected(pair.addresses[0]) as wire:
        assert wire.fetch_values(topic) == [b"%d" % sequence for sequence in range(6)]


def test_a_topic_made_anew_through_one_is_soon_written_and_read_through_the_other(
    pair: Cluster,
) -> None:
    topic = create(pair, fresh_topic("anew"))
    here, there = pair.addresses
    with connected(there) as wire:
        assert wire.produce(topic, batch_of([b"old"])).error_code is ErrorCode.none
        assert wire.fetch_values(topic) == [b"old"]
        ConfluentAdmin().delete(here, topic)
        ConfluentAdmin().create(here, topic, 1, {})
        with connected(here) as first:
            assert first.produce(topic, batch_of([b"new"])).base_offset == 0
        # It may learn of the change by failing once, as a client that refreshes will see it.
        error, _ = wire.fetch(topic, 0, 0)
        assert error in (ErrorCode.none, ErrorCode.unknown_topic_or_partition)
        assert wire.fetch_values(topic) == [b"new"]
        assert wire.produce(topic, batch_of([b"newer"])).base_offset == 1


def test_partitions_added_through_one_can_be_written_through_the_other(pair: Cluster) -> None:
    topic = create(pair, fresh_topic("grown"))
    here, there = pair.addresses
    with connected(there) as wire:
        assert wire.produce(topic, batch_of([b"old"])).error_code is ErrorCode.none
        ConfluentAdmin().grow(here, topic, 3)
        assert wire.produce(topic, batch_of([b"new"]), partition=2).error_code is ErrorCode.none
        assert wire.fetch_values(topic, partition=2) == [b"new"]


def test_a_broker_that_stops_loses_nothing_that_was_accepted(
    postgres_server: PostgresServer, s3_server: S3Server
) -> None:
    dsn = postgres_server.create_database()
    settings = replace(BASE, storage=shared_storage(dsn, s3_server))
    with Broker(settings) as staying:
        with Broker(settings) as leaving:
            addresses = [staying.bootstrap, leaving.bootstrap]
            wait_until_met(addresses)
            cluster = Cluster(addresses)
            topic = create(cluster, fresh_topic("leaving"), partitions=PARTITIONS)
            producer = confluent_producer(cluster.bootstrap, idempotent=True)
            acknowledged = Acknowledged(producer, topic, "p")
            acknowledged.wait_for(300)
        acknowledged.wait_for(300)
        told = acknowledged.finish()
        assert acknowledged.failures == []
        found = stored(staying.bootstrap, topic)
    assert_once_and_in_order(found, "p")
    assert {value for partition in found for value in partition} == set(told)
    postgres_server.drop_database(dsn)


def test_a_killed_broker_loses_nothing_that_was_acknowledged(
    storage_flags: list[str], tmp_path: Path
) -> None:
    with process(storage_flags, tmp_path) as staying, process(storage_flags, tmp_path) as killed:
        addresses = [staying.address, killed.address]
        wait_until_met(addresses)
        cluster = Cluster(addresses)
        topic = create(cluster, fresh_topic("killed"), partitions=PARTITIONS)
        producer = confluent_producer(cluster.bootstrap, idempotent=True)
        acknowledged = Acknowledged(producer, topic, "p")
        acknowledged.wait_for(300)
        killed.kill()
        acknowledged.wait_for(300)
        told = acknowledged.finish()
        assert acknowledged.failures == []
        found = stored(staying.address, topic)
        assert_once_and_in_order(found, "p")
        assert {value for partition in found for value in partition} == set(told)

        with process(storage_flags, tmp_path) as returned:
            assert stored(returned.address, topic) == found
            ConfluentClient().write(returned.address, topic, numbered(5, "after"))
            with connected(staying.address) as wire:
                after = wire.fetch_values(topic, start=len(found[0]))
            assert after == values(numbered(5, "after"))
