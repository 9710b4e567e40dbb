"""The client side of a measurement. It runs in a process of its own, so that a broker and
librdkafka's mock cluster face clients with the same, fresh state.

    python -m stratalog.cli.bench_client produce '{"bootstrap": null, "records": 1000, ...}'

prints the seconds that it took. Only steady work is timed: connections are open, topics exist and
the first records have been stored before the clock starts.
"""

import json
import math
import random  # noqa: TID251 - seeded, for payloads that are the same in every run
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from stratalog.cli.client import CONNECT_SECONDS, as_our_error, client_config
from stratalog.cli.errors import NothingMovesError
from stratalog.cli.output import print_error
from stratalog.clock import SYSTEM_CLOCK
from stratalog.errors import StratalogError

PARTITIONS = 4
"""The number that the mock cluster gives to every topic. It cannot be changed."""
_MOCK_PARTITION_BYTES = 4_000_000
"""The mock cluster forgets the oldest batches of a partition beyond 5 MiB."""
_RECORD_OVERHEAD_BYTES = 24
_IDLE_SECONDS = 30.0
_PAYLOADS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    bootstrap: str | None
    """None is librdkafka's mock cluster, inside the client's own process."""
    topic: str
    records: int
    record_bytes: int
    codec: str = "none"
    idempotent: bool = False
    """Exactly once, which bounds a client to five requests in flight."""
    warm_up_records: int = 0
    """Sent before the clock starts, so that client and broker have touched the memory they use."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def produce_seconds(load: Load) -> float:
    """How long it takes until the last record is acknowledged."""
    with _cluster(load, [load.topic]) as (producer, _):
        _send(producer, replace(load, records=load.warm_up_records), [load.topic])
        return _timed(lambda: _send(producer, load, [load.topic]))


def consume_seconds(load: Load) -> float:
    """How long it takes to read records that were just written.

    They lie in as many topics as the mock cluster needs to hold them all.
    """
    topics = [f"{load.topic}-{number}" for number in range(_topics_needed(load))]
    with _cluster(load, topics) as (producer, bootstrap):
        _send(producer, load, topics)
        group: dict[str, object] = {"group.id": load.topic, "enable.auto.commit": False}
        consumer = Consumer(client_config(bootstrap, **group))
        try:
            return _timed(lambda: _read(consumer, load.records, topics))
        finally:
            consumer.close()


def _topics_needed(load: Load) -> int:
    total_bytes = load.records * (load.record_bytes + _RECORD_OVERHEAD_BYTES)
    return math.ceil(total_bytes / (PARTITIONS * _MOCK_PARTITION_BYTES))


def _timed(work: Callable[[], None]) -> float:
    clock = SYSTEM_CLOCK
    started = clock.monotonic()
    work()
    return clock.monotonic() - started


@contextmanager
def _cluster(load: Load, topics: list[str]) -> Iterator[tuple[Producer, str]]:
    """A warm producer on ready topics, and the address at which a consumer finds them."""
    producer = Producer(_producer_config(load))
    if load.bootstrap is None:
        brokers = producer.list_topics(timeout=CONNECT_SECONDS).brokers.values()
        _warm_up(producer, topics)
        yield producer, ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
        return
    admin = AdminClient(client_config(load.bootstrap))
    for future in admin.create_topics([NewTopic(topic, PARTITIONS) for topic in topics]).values():
        future.result()
    try:
        _warm_up(producer, topics)
        yield producer, load.bootstrap
    finally:
        for future in admin.delete_topics(topics).values():
            future.result()


def _producer_config(load: Load) -> dict[str, Any]:
    return client_config(
        load.bootstrap or "mock",
        **{
            "acks": "all",
            "enable.idempotence": load.idempotent,
            "compression.type": load.codec,
            "linger.ms": 20,
            "queue.buffering.max.messages": 1_000_000,
            "delivery.report.only.error": True,
            "on_delivery": _on_failure,
            **({"test.mock.num.brokers": 1} if load.bootstrap is None else {}),
        },
    )


def _on_failure(error: KafkaError | None, _message: Message) -> None:
    if error is not None:
        raise as_our_error(error, "the measured broker")


def _warm_up(producer: Producer, topics: list[str]) -> None:
    """One empty record per partition, which is not counted when it is read."""
    for topic in topics:
        for partition in range(PARTITIONS):
            producer.produce(topic, value=b"", partition=partition)
    producer.flush()


def _send(producer: Producer, load: Load, topics: list[str]) -> None:
    """Spread the records evenly over all partitions, in turn."""
    seeded = random.Random(load.record_bytes)
    payloads = [seeded.randbytes(load.record_bytes) for _ in range(_PAYLOADS)]
    places = [(topic, partition) for topic in topics for partition in range(PARTITIONS)]
    for number in range(load.records):
        topic, partition = places[number % len(places)]
        _send_one(producer, topic, partition, payloads[number % _PAYLOADS])
    producer.flush()


def _send_one(producer: Producer, topic: str, partition: int, payload: bytes) -> None:
    while True:
        try:
            return producer.produce(topic, value=payload, partition=partition)
        except BufferError:
            producer.poll(0.05)


def _read(consumer: Consumer, records: int, topics: list[str]) -> None:
    """Read from behind the warm-up records until `records` have come."""
    consumer.assign(
        [TopicPartition(topic, index, 1) for topic in topics for index in range(PARTITIONS)]
    )
    count = 0
    while count < records:
        messages = consumer.consume(min(10_000, records - count), timeout=_IDLE_SECONDS)
        if not messages:
            raise NothingMovesError(f"only {count} of {records} records came back")
        for message in messages:
            error = message.error()
            if error is not None:
                raise as_our_error(error, "the measured broker")
        count += len(messages)


_MEASUREMENTS = {"produce": produce_seconds, "consume": consume_seconds}


if __name__ == "__main__":
    try:
        print(_MEASUREMENTS[sys.argv[1]](Load(**json.loads(sys.argv[2]))))
    except StratalogError as failure:
        print_error(failure)
        sys.exit(1)
