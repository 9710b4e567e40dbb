"""Clients that write numbered messages all the time, and checks of the messages afterwards."""

import threading
import time
from collections import defaultdict
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

PATIENCE_S = 60.0
PAUSE_S = 0.002

CLIENT = {
    "log_level": 0,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "socket.connection.setup.timeout.ms": 2000,
    "topic.metadata.refresh.interval.ms": 300,
    "topic.metadata.refresh.fast.interval.ms": 50,
}


class Ack(NamedTuple):
    partition: int
    offset: int
    value: bytes


Log = dict[int, list[bytes]]
"""The values of each partition, by offset."""


class Writer(threading.Thread):
    """One producer on a thread of its own, from `start` to `finish`."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, *, idempotent: bool, name: str = "w"
    ) -> None:
        super().__init__(name=f"writer-{name}", daemon=True)
        self.topic = topic
        self.idempotent = idempotent
        self.sent: dict[int, list[bytes]] = defaultdict(list)
        self.acks: list[Ack] = []
        self.failures: list[str] = []
        self._name = name
        self._partitions = partitions
        self._stop_writing = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": idempotent,
                "linger.ms": 2,
                "retry.backoff.ms": 20,
                "message.timeout.ms": int(PATIENCE_S * 1000),
                "error_cb": self._on_error,
                **CLIENT,
            }
        )

    def run(self) -> None:
        number = 0
        while not self._stop_writing.is_set():
            partition = number % self._partitions
            value = f"{self._name}-{number}".encode()
            self._producer.produce(
                self.topic, value, partition=partition, on_delivery=self._on_delivery
            )
            self.sent[partition].append(value)
            self._producer.poll(0)
            number += 1
            time.sleep(PAUSE_S)
        self._producer.flush(PATIENCE_S)

    def finish(self) -> None:
        """Write no more, and wait until everything is acknowledged or has failed."""
        self._stop_writing.set()
        self.join(2 * PATIENCE_S)
        assert not self.is_alive(), f"{self.name} does not end"

    def wait_for_acks(self, count: int, *, partitions: int = 0) -> None:
        """Wait until `count` more messages are acknowledged, some of them in each partition."""
        before = len(self.acks)
        deadline = time.monotonic() + PATIENCE_S
        while (
            len(self.acks) < before + count
            or len({ack.partition for ack in self.acks[before:]}) < partitions
        ):
            assert time.monotonic() < deadline, f"{self.name}: no acks, {self.failures}"
            time.sleep(0.005)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None
        assert partition is not None
        if error is not None:
            self.failures.append(f"{value.decode()}: {error}")
        else:
            assert offset is not None
            self.acks.append(Ack(partition, offset, value))

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.failures.append(f"fatal: {error}")


class Follower(threading.Thread):
    """A consumer that reads a topic from its beginning and goes on until it has seen the end."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(name=f"follower-{topic}", daemon=True)
        self.topic = topic
        self.log: Log = {partition: [] for partition in range(partitions)}
        self.problems: list[str] = []
        self._ends: dict[int, int] | None = None
        self._gave_up = threading.Event()
        self._consumer = open_consumer(bootstrap)
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])

    def run(self) -> None:
        while not self._gave_up.is_set() and not self._is_done():
            for message in self._consumer.consume(1000, 0.1):
                try:
                    append_next(self.log, message)
                except AssertionError as problem:
                    self.problems.append(str(problem))
                    return
        self._consumer.close()

    def finish(self, ends: dict[int, int]) -> None:
        """Read to these high watermarks, and end."""
        self._ends = ends
        self.join(PATIENCE_S)
        self._gave_up.set()
        self.join(PATIENCE_S)

    def _is_done(self) -> bool:
        return self._ends is not None and all(
            len(self.log[partition]) >= end for partition, end in self._ends.items()
        )


def open_consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            **CLIENT,
        }
    )


def read_all(bootstrap: str, topic: str, partitions: int) -> Log:
    """Everything in the topic, from offset 0 to the high watermarks, without a gap."""
    consumer = open_consumer(bootstrap)
    ends = {}
    for partition in range(partitions):
        start, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        assert start == 0
        ends[partition] = end
    log: Log = {partition: [] for partition in range(partitions)}
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    deadline = time.monotonic() + PATIENCE_S
    while any(len(log[partition]) < end for partition, end in ends.items()):
        assert time.monotonic() < deadline, f"{topic} ends too soon: {ends}"
        for message in consumer.consume(1000, 0.2):
            append_next(log, message)
    consumer.close()
    return log


def append_next(log: Log, message: Message) -> None:
    """Add a message, which must be the very next one of its partition."""
    assert message.error() is None, str(message.error())
    partition, value = message.partition(), message.value()
    assert partition is not None
    assert value is not None
    expected = len(log[partition])
    assert message.offset() == expected, f"offset {message.offset()} instead of {expected}"
    log[partition].append(value)


def check_acknowledged(writer: Writer, log: Log) -> None:
    """Promises 1 and 2: every acknowledged message is there, at its offset, with its value."""
    for ack in writer.acks:
        assert log[ack.partition][ack.offset : ack.offset + 1] == [ack.value], ack


def check_exactly_once(writer: Writer, log: Log) -> None:
    """The messages of a topic with one idempotent producer are there once, in order."""
    assert writer.idempotent
    for partition, values in writer.sent.items():
        assert [value for value in log[partition] if _is_from(writer, value)] == values


def check_at_least_once(writer: Writer, log: Log) -> None:
    for partition, values in writer.sent.items():
        assert set(values) <= set(log[partition])


def _is_from(writer: Writer, value: bytes) -> bool:
    return value.startswith(f"{writer.name.removeprefix('writer-')}-".encode())
