"""The clients of a measurement: librdkafka, in a process of its own.

    python -m bench.kafka.client

Reads a load as a line of JSON, connects, warms up, prints `ready`, waits for a line, works, and
prints the seconds that the work took.
"""

import os
import sys
import time
from collections.abc import Callable
from uuid import uuid4

from bench.kafka.load import Load
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

Work = Callable[[], None]
PAYLOADS = 64
IDLE_SECONDS = 30.0


def produce(load: Load) -> Work:
    """Records over all places in turn, until the last is acknowledged."""
    producers = [_producer(load) for _ in range(load.clients)]
    _send(producers, load, len(load.places))
    return lambda: _send(producers, load, load.amount)


def _producer(load: Load) -> Producer:
    return Producer(
        {
            "bootstrap.servers": load.address,
            "acks": "all",
            "queue.buffering.max.messages": 1_000_000,
            "delivery.report.only.error": True,
            "on_delivery": _on_failure,
            "log_level": 0,
            **load.config,
        }
    )


def _on_failure(error: KafkaError | None, _message: Message) -> None:
    if error is not None:
        raise SystemExit(f"a record was not stored: {error}")


def _send(producers: list[Producer], load: Load, records: int) -> None:
    payloads = [os.urandom(load.record_bytes) for _ in range(PAYLOADS)]
    for number in range(records):
        topic, partition = load.places[number % len(load.places)]
        for producer in producers:
            _send_one(producer, topic, partition, payloads[number % PAYLOADS])
    for producer in producers:
        if producer.flush(IDLE_SECONDS * 4):
            raise SystemExit("records are not acknowledged")


def _send_one(producer: Producer, topic: str, partition: int, payload: bytes) -> None:
    while True:
        try:
            return producer.produce(topic, payload, partition=partition)
        except BufferError:
            producer.poll(0.05)


def consume(load: Load) -> Work:
    """All records of the places, as often as asked for, one consumer after the other.

    A consumer at the end of its partitions has a fetch that waits at the broker. A second pass of
    the same consumer would begin when that is answered.
    """
    consumers = [_consumer(load, uuid4().hex) for _ in range(load.passes)]
    for consumer in consumers:
        ends = [consumer.get_watermark_offsets(TopicPartition(*place))[1] for place in load.places]

    def work() -> None:
        for consumer in consumers:
            consumer.assign([TopicPartition(*place, 0) for place in load.places])
            _read(consumer, sum(ends))
            consumer.unassign()

    return work


def _read(consumer: Consumer, records: int) -> None:
    count = 0
    while count < records:
        # It returns when it has as many as asked for, or when the time is over.
        messages = consumer.consume(min(10_000, records - count), timeout=IDLE_SECONDS)
        if not messages:
            raise SystemExit(f"only {count} of {records} records came back")
        count += len(messages)


def rest(load: Load) -> Work:
    """Consumers that wait, each with a group of its own, for records which do not come."""
    run = uuid4().hex
    consumers = [_consumer(load, f"{run}-{number}") for number in range(load.clients)]
    for number, consumer in enumerate(consumers):
        consumer.subscribe([load.places[number % len(load.places)][0]])
    waiting = list(consumers)
    while waiting:
        for consumer in waiting:
            consumer.poll(0)
        waiting = [consumer for consumer in waiting if not consumer.assignment()]
        time.sleep(0.1)
    time.sleep(2)  # Until the last has asked for its offsets and begun to fetch.

    def work() -> None:
        time.sleep(load.amount)
        if not all(consumer.assignment() for consumer in consumers):
            raise SystemExit("a consumer lost its partitions")

    return work


def _consumer(load: Load, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": load.address,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
            **load.config,
        }
    )


KINDS = {"produce": produce, "consume": consume, "rest": rest}


def main() -> None:
    load = Load.from_json(sys.stdin.readline())
    work = KINDS[load.kind](load)
    print("ready", flush=True)
    sys.stdin.readline()
    started = time.perf_counter()
    work()
    print(time.perf_counter() - started, flush=True)
    # Members that leave one by one would take longer than the measurement.
    os._exit(0)


if __name__ == "__main__":
    main()
