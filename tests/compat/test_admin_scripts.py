"""Rare calls of administration scripts: placing replicas by hand, and listing the resources that
have configs."""

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # Public, but not marked so.
    AdminClient,
    NewPartitions,
    NewTopic,
)
from tests.support.clients.admin import ANSWER_SECONDS
from tests.support.clusters import Cluster, create, fresh_topic

with warnings.catch_warnings():
    # It reads its schemas by a function that Python 3.11 and 3.12 call deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient
    from kafka.admin import NewPartitions as KafkaPythonPartitions
    from kafka.errors import InvalidReplicationAssignmentError


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


def test_librdkafka_places_replicas_on_brokers_that_exist(
    cluster: Cluster, librdkafka: AdminClient
) -> None:
    new, old = fresh_topic("placed"), create(cluster, fresh_topic("grown"))
    somewhere = [brokers(librdkafka)[:1]]
    for answer in [
        librdkafka.create_topics([NewTopic(new, 1, replica_assignment=somewhere)])[new],
        librdkafka.create_partitions([NewPartitions(old, 2, replica_assignment=somewhere)])[old],
    ]:
        answer.result(ANSWER_SECONDS)
    topics = librdkafka.list_topics(timeout=ANSWER_SECONDS).topics
    assert (len(topics[new].partitions), len(topics[old].partitions)) == (1, 2)


def test_kafka_python_places_replicas_on_brokers_that_exist(
    cluster: Cluster, librdkafka: AdminClient, kafka_python: Any
) -> None:
    topic = create(cluster, fresh_topic("grown"))
    kafka_python.create_partitions({topic: KafkaPythonPartitions(2, [brokers(librdkafka)[:1]])})
    assert len(librdkafka.list_topics(timeout=ANSWER_SECONDS).topics[topic].partitions) == 2
    with pytest.raises(InvalidReplicationAssignmentError):
        kafka_python.create_partitions({topic: KafkaPythonPartitions(3, [[999]])})


def test_kafka_python_lists_what_has_configs(
    cluster: Cluster, librdkafka: AdminClient, kafka_python: Any
) -> None:
    topic = create(cluster, fresh_topic("listed"))
    listed = kafka_python.list_config_resources()
    assert sorted(listed["broker"]) == [str(broker) for broker in brokers(librdkafka)]
    assert topic in listed["topic"]
