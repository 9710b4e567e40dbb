"""Producers with a transactional id learn at once that there are no transactions."""

import warnings

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AiokafkaError
from aiokafka.errors import TransactionalIdAuthorizationFailed
from confluent_kafka import KafkaException, Producer
from tests.support.clients.admin import ANSWER_SECONDS
from tests.support.clusters import Cluster

with warnings.catch_warnings():
    # It reads its schemas by a function that Python 3.11 and 3.12 call deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaProducer
    from kafka.errors import KafkaError as KafkaPythonError


def test_librdkafka_shows_the_reason(cluster: Cluster) -> None:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": "t", "log_level": 0}
    )
    with pytest.raises(KafkaException, match="does not support transactions"):
        producer.init_transactions(ANSWER_SECONDS)


def test_kafka_python_does_not_speak_of_authorization(cluster: Cluster) -> None:
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap.split(","), transactional_id="t")
    with pytest.raises(KafkaPythonError, match="UnsupportedVersion"):
        producer.init_transactions()
    producer.close()


async def test_aiokafka_does_not_speak_of_authorization(cluster: Cluster) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id="t")
    with pytest.raises(AiokafkaError, match="UnsupportedVersion") as refused:
        await producer.start()
    assert not isinstance(refused.value, TransactionalIdAuthorizationFailed)
    await producer.stop()
