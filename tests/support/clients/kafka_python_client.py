"""kafka-python: pure Python, blocking; its producers are idempotent by default."""

import time
import warnings
from collections.abc import Sequence
from typing import Any

from tests.support.clients.client import ANSWER_SECONDS
from tests.support.clients.message import CREATE_TIME, LOG_APPEND_TIME, Message, Received

with warnings.catch_warnings():
    # It reads its schemas by a function that Python 3.11 and 3.12 call deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

BEYOND_ANY_LIMIT = 50_000_000


class KafkaPythonClient:
    name = "kafka-python"
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
        producer = kafka_python_producer(
            bootstrap, acks=acks, idempotent=idempotent, compression_type=_codec(codec)
        )
        try:
            futures = [
                producer.send(
                    topic,
                    message.value,
                    key=message.key,
                    headers=list(message.headers),
                    partition=partition,
                    timestamp_ms=message.timestamp_ms,
                )
                for message in messages
            ]
            return [future.get(timeout=ANSWER_SECONDS).offset for future in futures]
        finally:
            producer.close(timeout=ANSWER_SECONDS)

    def read(
        self, bootstrap: str, topic: str, *, count: int, partition: int = 0, start: int = 0
    ) -> list[Received]:
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap.split(","),
            enable_auto_commit=False,
            auto_offset_reset="none",
            max_partition_fetch_bytes=8_000_000,
        )
        place = TopicPartition(topic, partition)
        consumer.assign([place])
        consumer.seek(place, start)
        received: list[Received] = []
        deadline = time.monotonic() + ANSWER_SECONDS
        try:
            while len(received) < count and time.monotonic() < deadline:
                for batch in consumer.poll(timeout_ms=200).values():
                    received += [_received(record) for record in batch]
        finally:
            consumer.close()
        return received[:count]


def kafka_python_producer(bootstrap: str, *, acks: str, idempotent: bool, **more: Any) -> Any:
    return KafkaProducer(
        bootstrap_servers=bootstrap.split(","),
        acks="all" if acks == "all" else int(acks),
        enable_idempotence=idempotent,
        max_request_size=BEYOND_ANY_LIMIT,
        reconnect_backoff_max_ms=500,
        retry_backoff_ms=20,
        **more,
    )


def _codec(name: str) -> str | None:
    return None if name == "none" else name


def _received(record: Any) -> Received:
    return Received(
        offset=record.offset,
        value=record.value,
        key=record.key,
        headers=tuple(record.headers),
        timestamp_ms=record.timestamp,
        timestamp_type=LOG_APPEND_TIME if record.timestamp_type == 1 else CREATE_TIME,
    )
