"""Clients with fetch sessions read a wide topic while it is written, on one broker and on two."""

import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bench.kafka.maven import classpath
from kafka import KafkaConsumer, TopicPartition
from tests.support.clients.client import ANSWER_SECONDS
from tests.support.clients.confluent_client import confluent_producer
from tests.support.clusters import Cluster, create, fresh_topic

PARTITIONS = 300
RECORDS = 60
EACH = 3
EXPECTED = {b"%d" % number for number in range(RECORDS)}
JAVA_CLIENT = Path(__file__).parent / "WideReader.java"
needs_kafkas_jars = pytest.mark.skipif(
    shutil.which("mvn") is None or shutil.which("java") is None,
    reason="Kafka's own client comes through Maven",
)


@contextmanager
def trickle(cluster: Cluster, topic: str) -> Iterator[None]:
    """Write few records at a time, so that most partitions rest in every fetch."""
    thread = threading.Thread(target=write, args=(cluster, topic, range(1, RECORDS)))
    thread.start()
    try:
        yield
    finally:
        thread.join(ANSWER_SECONDS)


def write(cluster: Cluster, topic: str, numbers: range) -> None:
    producer = confluent_producer(cluster.bootstrap)
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=number * 37 % PARTITIONS)
        if number % EACH == EACH - 1:
            producer.flush(ANSWER_SECONDS)
    assert producer.flush(ANSWER_SECONDS) == 0


def test_kafka_python_reads_in_sessions(cluster: Cluster) -> None:
    topic = create(cluster, fresh_topic("sessions"), partitions=PARTITIONS)
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap.split(","),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        consumer_timeout_ms=1000 * ANSWER_SECONDS,
    )
    consumer.assign([TopicPartition(topic, partition) for partition in range(PARTITIONS)])
    values: list[bytes] = []
    write(cluster, topic, range(1))
    try:
        # The first fetch opens the session, so it has to come before the other records are there.
        values.append(next(consumer).value)
        with trickle(cluster, topic):
            for record in consumer:
                values.append(record.value)
                if len(values) == len(EXPECTED):
                    break
        sessions = [
            handler.next_metadata for handler in consumer._fetcher._session_handlers.values()
        ]
    finally:
        consumer.close()
    assert (len(values), set(values)) == (len(EXPECTED), EXPECTED)
    assert len(sessions) == len(cluster.addresses)
    assert all(one.session_id > 0 and one.epoch > 1 for one in sessions)


@needs_kafkas_jars
def test_javas_consumer_reads_in_sessions(cluster: Cluster, tmp_path: Path) -> None:
    topic = create(cluster, fresh_topic("sessions"), partitions=PARTITIONS)
    write(cluster, topic, range(1))
    command = ["java", "-cp", classpath(), "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    command.append(
        "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.clients.FetchSessionHandler=debug"
    )
    command += [str(JAVA_CLIENT), cluster.bootstrap, topic, str(PARTITIONS), str(len(EXPECTED))]
    with (tmp_path / "log").open("w+") as log:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as reader:
            assert reader.stdout is not None
            first = reader.stdout.readline()
            with trickle(cluster, topic):
                rest, _ = reader.communicate(timeout=3 * ANSWER_SECONDS)
        log.seek(0)
        told = log.read()
    assert reader.returncode == 0, told
    values = [value.encode() for value in (first + rest).split()]
    assert (len(values), set(values)) == (len(EXPECTED), EXPECTED)
    begun = re.findall(r"created a new incremental fetch session (\d+)", told)
    assert len(set(begun)) == len(cluster.addresses), told
    assert told.count("sent an incremental fetch response") > 2 * len(cluster.addresses), told
