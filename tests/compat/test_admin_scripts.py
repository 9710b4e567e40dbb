"""What administration scripts do now and then: place replicas by hand, list what has configs."""

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # Public, but not marked so.
    AdminClient,
    NewPartitions,
    NewTopic,
)
from kio.schema.errors import ErrorCode
from tests.compat.admin import ANSWER_SECONDS
from tests.compat.clusters import Cluster, create, fresh_topic

with warnings.catch_warnings():
    # It reads its schemas by a function that Python 3.11 and 3.12 call deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient
    from kafka.admin import NewPartitions as KafkaPythonPartitions

_NOBODY = 99


@pytest.fixture
def librdkafka(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})


@pytest.fixture
def kafka_python(cluster: Cluster) -> Iterator[Any]:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    yield admin
    admin.close()


def brokers(admin: AdminClient) -> list[int]:
    return sorted(admin.list_topics(timeout=ANSWER_SECONDS).brokers)


def partition_count(admin: AdminClient, topic: str) -> int:
    return len(admin.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic].partitions)


def test_librdkafka_creates_and_grows_a_topic_with_replicas_placed_by_hand(
    librdkafka: AdminClient,
) -> None:
    topic, everywhere = fresh_topic("placed"), brokers(librdkafka)
    placed = NewTopic(topic, 2, replica_assignment=[everywhere, everywhere[::-1]])
    librdkafka.create_topics([placed])[topic].result(ANSWER_SECONDS)
    assert partition_count(librdkafka, topic) == 2
    more = NewPartitions(topic, 4, replica_assignment=[everywhere, everywhere])
    librdkafka.create_partitions([more])[topic].result(ANSWER_SECONDS)
    assert partition_count(librdkafka, topic) == 4


def test_replicas_cannot_be_placed_on_a_broker_that_is_not_there(librdkafka: AdminClient) -> None:
    topic = fresh_topic("misplaced")
    placed = NewTopic(topic, 1, replica_assignment=[[_NOBODY]])
    with pytest.raises(KafkaException) as refused:
        librdkafka.create_topics([placed])[topic].result(ANSWER_SECONDS)
    assert refused.value.args[0].code() == ErrorCode.invalid_replica_assignment


def test_kafka_python_grows_a_topic_with_replicas_placed_by_hand(
    cluster: Cluster, librdkafka: AdminClient, kafka_python: Any
) -> None:
    topic = create(cluster, fresh_topic("grown"))
    first = brokers(librdkafka)[0]
    kafka_python.create_partitions({topic: KafkaPythonPartitions(3, [[first], [first]])})
    assert partition_count(librdkafka, topic) == 3


def test_kafka_python_lists_what_has_configs(
    cluster: Cluster, librdkafka: AdminClient, kafka_python: Any
) -> None:
    topic = create(cluster, fresh_topic("listed"))
    listed = kafka_python.list_config_resources()
    assert sorted(listed["broker"]) == [str(broker) for broker in brokers(librdkafka)]
    assert topic in listed["topic"]
