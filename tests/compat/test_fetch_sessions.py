"""Clients with fetch sessions read a wide topic while it is written, on one broker and on two."""

import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from bench.kafka.maven import classpath
from kafka import KafkaConsumer, TopicPartition
from tests.support.clients.client import ANSWER_SECONDS
from tests.support.clients.confluent_client import confluent_producer
from tests.support.clusters import Cluster, create, fresh_topic
from tests.support.kafkas_jars import needs_kafkas_jars

PARTITIONS = 300
RECORDS = 60
EACH = 3
EXPECTED = {b"%d" % number for number in range(RECORDS)}
JAVA_CLIENT = Path(__file__).parent / "WideReader.java"


def write_rounds(cluster: Cluster, topic: str) -> Iterator[int]:
    """Write few records at a time, and yield how many, so that most partitions rest in every fetch.

    The reader takes each round before the next one is written. So every broker answers several
    fetches with news, however slow the machine is.
    """
    producer = confluent_producer(cluster.bootstrap)
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, partition=number * 37 % PARTITIONS)
        if number % EACH == EACH - 1:
            assert producer.flush(ANSWER_SECONDS) == 0
            yield EACH


def test_kafka_python_reads_in_sessions(cluster: Cluster) -> None:
    topic = create(cluster, fresh_topic("sessions"), partitions=PARTITIONS)
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap.split(","),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        consumer_timeout_ms=1000 * ANSWER_SECONDS,
    )
    consumer.assign([TopicPartition(topic, partition) for partition in range(PARTITIONS)])
    try:
        values = [
            next(consumer).value for written in write_rounds(cluster, topic) for _ in range(written)
        ]
        sessions = [
            handler.next_metadata for handler in consumer._fetcher._session_handlers.values()
        ]
    finally:
        consumer.close()
    assert (len(values), set(values)) == (len(EXPECTED), EXPECTED)
    assert len(sessions) == len(cluster.addresses)
    assert all(one.session_id > 0 and one.epoch > 1 for one in sessions)


def read_rounds(lines: IO[str], rounds: Iterator[int]) -> Iterator[bytes]:
    for written in rounds:
        for _ in range(written):
            yield lines.readline().strip().encode()


@needs_kafkas_jars
def test_javas_consumer_reads_in_sessions(cluster: Cluster, tmp_path: Path) -> None:
    topic = create(cluster, fresh_topic("sessions"), partitions=PARTITIONS)
    command = ["java", "-cp", classpath(), "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    command.append(
        "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.clients.FetchSessionHandler=debug"
    )
    command += [str(JAVA_CLIENT), cluster.bootstrap, topic, str(PARTITIONS), str(len(EXPECTED))]
    with (tmp_path / "log").open("w+") as log:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as reader:
            assert reader.stdout is not None
            watchdog = threading.Timer(3 * ANSWER_SECONDS, reader.kill)
            watchdog.start()
            values = list(read_rounds(reader.stdout, write_rounds(cluster, topic)))
            watchdog.cancel()
        log.seek(0)
        told = log.read()
    assert reader.returncode == 0, told
    assert (len(values), set(values)) == (len(EXPECTED), EXPECTED)
    begun = re.findall(r"created a new incremental fetch session (\d+)", told)
    assert len(set(begun)) == len(cluster.addresses), told
    assert told.count("sent an incremental fetch response") > 2 * len(cluster.addresses), told
