"""confluent-kafka: librdkafka behind Python."""

import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
)
from tests.support.clients.client import ANSWER_SECONDS
from tests.support.clients.message import CREATE_TIME, LOG_APPEND_TIME, Message, Received

BEYOND_ANY_LIMIT = 50_000_000
"""Lets messages through to the broker, so that it is the one to refuse them."""


class ConfluentClient:
    name = "confluent"
    tells_offsets = True
    sets_timestamps = True

    def write(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = 0,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> list[int]:
        producer = confluent_producer(
            bootstrap, acks=acks, idempotent=idempotent, **{"compression.type": codec}
        )
        offsets: list[int] = []
        errors: list[Any] = []

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                errors.append(error)
            else:
                offsets.append(message.offset())

        for message in messages:
            optional: dict[str, Any] = {}
            if message.timestamp_ms is not None:
                optional["timestamp"] = message.timestamp_ms
            producer.produce(
                topic,
                message.value,
                message.key,
                partition=partition,
                headers=list(message.headers),
                on_delivery=delivered,
                **optional,
            )
            producer.poll(0)
        left = producer.flush(ANSWER_SECONDS)
        if errors:
            raise KafkaException(errors[0])
        assert left == 0, f"{left} messages were not delivered in time"
        return offsets

    def read(
        self, bootstrap: str, topic: str, *, count: int, partition: int = 0, start: int = 0
    ) -> list[Received]:
        consumer = confluent_consumer(bootstrap)
        consumer.assign([TopicPartition(topic, partition, start)])
        try:
            return confluent_poll(consumer, count)
        finally:
            consumer.close()


def confluent_producer(
    bootstrap: str, *, acks: str = "all", idempotent: bool = False, **more: Any
) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "enable.idempotence": idempotent,
            "message.max.bytes": BEYOND_ANY_LIMIT,
            # Small batches, so that several are under way at once.
            "linger.ms": 2,
            "batch.num.messages": 50,
            "reconnect.backoff.max.ms": 500,
            "retry.backoff.ms": 20,
            "log_level": 0,
            **more,
        }
    )


def confluent_consumer(bootstrap: str, **more: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"unused-{uuid4().hex}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.message.max.bytes": 8_000_000,
            "log_level": 0,
            **more,
        }
    )


def confluent_poll(
    consumer: Consumer, count: int, seconds: float = ANSWER_SECONDS
) -> list[Received]:
    received: list[Received] = []
    deadline = time.monotonic() + seconds
    while len(received) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is None:
            continue
        if message.error() is not None:
            raise KafkaException(message.error())
        received.append(_received(message))
    return received


def _received(message: Any) -> Received:
    kind, timestamp_ms = message.timestamp()
    return Received(
        offset=message.offset(),
        value=message.value(),
        key=message.key(),
        headers=tuple(message.headers() or ()),
        timestamp_ms=timestamp_ms,
        timestamp_type=LOG_APPEND_TIME if kind == TIMESTAMP_LOG_APPEND_TIME else CREATE_TIME,
    )
