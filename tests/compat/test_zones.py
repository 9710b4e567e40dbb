"""Three brokers in two zones: clients that tell their zone stay in it."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from tests.support.clients.client import ANSWER_SECONDS
from tests.support.clients.confluent_client import (
    ConfluentClient,
    confluent_consumer,
    confluent_poll,
    confluent_producer,
)
from tests.support.clients.message import numbered
from tests.support.clusters import BASE, Cluster, create, folder_storage, fresh_topic
from tests.support.clusters import running_cluster as running

PARTITIONS = 6
ZONES = {0: "east", 1: "east", 2: "west"}


@pytest.fixture(scope="module")
def zones(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    storage = folder_storage(tmp_path_factory.mktemp("zones"))
    settings = [
        replace(BASE, storage=storage, broker=replace(BASE.broker, id=number, rack=zone))
        for number, zone in ZONES.items()
    ]
    with running(settings) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def topic(zones: Cluster) -> str:
    topic = create(zones, fresh_topic("zoned"), partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        ConfluentClient().write(zones.bootstrap, topic, numbered(5), partition=partition)
    return topic


def leaders(cluster: Cluster, topic: str, client_id: str) -> set[int]:
    client = AdminClient(
        {"bootstrap.servers": cluster.bootstrap, "client.id": client_id, "log_level": 0}
    )
    found = client.list_topics(topic, timeout=ANSWER_SECONDS)
    assert {broker.id for broker in found.brokers.values()} == set(ZONES)
    return {partition.leader for partition in found.topics[topic].partitions.values()}


def test_a_zone_in_the_client_id_leads_to_brokers_of_the_zone(zones: Cluster, topic: str) -> None:
    assert leaders(zones, topic, "app,zone=west") == {2}
    assert leaders(zones, topic, "app,diskless_az=west") == {2}
    assert leaders(zones, topic, "app,zone=east") <= {0, 1}
    everywhere = leaders(zones, topic, "app")
    assert everywhere & {0, 1}
    assert leaders(zones, topic, "app,zone=north") == everywhere


def test_producers_of_all_zones_write_one_sequence(zones: Cluster) -> None:
    topic = create(zones, fresh_topic("meeting"))
    told: list[int | None] = []
    for zone in ("west", "east", "north"):
        producer = confluent_producer(
            zones.bootstrap, idempotent=True, **{"client.id": f"app,zone={zone}"}
        )
        for _ in range(10):
            producer.produce(
                topic,
                zone,
                partition=0,
                on_delivery=lambda _, message: told.append(message.offset()),
            )
        assert producer.flush(ANSWER_SECONDS) == 0
    assert told == list(range(30))
    received = ConfluentClient().read(zones.bootstrap, topic, count=30)
    assert [each.offset for each in received] == told


@pytest.mark.parametrize(("rack", "expected"), [("west", {2}), ("east", {0, 1})])
def test_consumers_with_a_rack_read_everything_from_brokers_of_their_zone(
    zones: Cluster, topic: str, rack: str, expected: set[int]
) -> None:
    reading_from: dict[int, int] = {}

    def note(text: str) -> None:
        told: dict[str, Any] = json.loads(text)["topics"].get(topic, {}).get("partitions", {})
        reading_from.update(
            (int(index), one["broker"]) for index, one in told.items() if int(index) >= 0
        )

    consumer = confluent_consumer(
        zones.bootstrap, **{"client.rack": rack, "statistics.interval.ms": 50, "stats_cb": note}
    )
    try:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
        assert len(confluent_poll(consumer, 5 * PARTITIONS)) == 5 * PARTITIONS
        deadline = time.monotonic() + ANSWER_SECONDS
        while len(reading_from) < PARTITIONS or not set(reading_from.values()) <= expected:
            assert time.monotonic() < deadline, reading_from
            consumer.poll(0.05)
    finally:
        consumer.close()
