"""Thousands of partitions in one topic."""

from confluent_kafka import Producer, TopicPartition
from tests.support.clients.client import ANSWER_SECONDS
from tests.support.clients.confluent_client import (
    confluent_consumer,
    confluent_poll,
    confluent_producer,
)
from tests.support.clients.kcat_client import run_kcat
from tests.support.clusters import Cluster, create, fresh_topic
from tests.support.wire import connected

PARTITIONS = 3000
WRITTEN = range(0, PARTITIONS, 10)


def test_a_topic_of_3000_partitions_is_created_written_and_read(cluster: Cluster) -> None:
    topic = create(cluster, fresh_topic("wide"), partitions=PARTITIONS)
    with connected(cluster.addresses[0]) as wire:
        leaders = wire.leaders(topic)
    assert sorted(leaders) == list(range(PARTITIONS))
    assert set(leaders.values()) == set(cluster.addresses), "every broker gets its share"

    write(confluent_producer(cluster.bootstrap, idempotent=True), topic)

    consumer = confluent_consumer(cluster.bootstrap)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    try:
        received = confluent_poll(consumer, 2 * len(WRITTEN))
    finally:
        consumer.close()
    expected = [b"%d-%d" % (partition, turn) for partition in WRITTEN for turn in range(2)]
    assert sorted(str(each.value) for each in received) == sorted(map(str, expected))


def write(producer: Producer, topic: str) -> None:
    failures: list[object] = []
    for turn in range(2):
        for partition in WRITTEN:
            producer.produce(
                topic,
                b"%d-%d" % (partition, turn),
                partition=partition,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
    assert producer.flush(ANSWER_SECONDS) == 0
    assert failures == []


def test_kcat_lists_all_of_3000_partitions(cluster: Cluster) -> None:
    topic = create(cluster, fresh_topic("listed"), partitions=PARTITIONS)
    listing = run_kcat(["-L", "-b", cluster.bootstrap, "-t", topic]).decode()
    assert f'topic "{topic}" with {PARTITIONS} partitions:' in listing
