"""aiokafka: asyncio. Each call here runs a loop of its own."""

import asyncio
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from tests.support.clients.client import ANSWER_SECONDS
from tests.support.clients.message import CREATE_TIME, LOG_APPEND_TIME, Message, Received

BEYOND_ANY_LIMIT = 50_000_000


class AiokafkaClient:
    name = "aiokafka"
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
        settings = {
            "bootstrap_servers": bootstrap.split(","),
            "acks": "all" if acks == "all" else int(acks),
            "compression_type": None if codec == "none" else codec,
            "enable_idempotence": idempotent,
            "max_request_size": BEYOND_ANY_LIMIT,
            "retry_backoff_ms": 20,
        }
        return asyncio.run(_write(settings, topic, messages, partition))

    def read(
        self, bootstrap: str, topic: str, *, count: int, partition: int = 0, start: int = 0
    ) -> list[Received]:
        return asyncio.run(_read(bootstrap, TopicPartition(topic, partition), start, count))


async def _write(
    settings: dict[str, Any], topic: str, messages: Sequence[Message], partition: int
) -> list[int]:
    async with AIOKafkaProducer(**settings) as producer:
        futures = [
            await producer.send(
                topic,
                message.value,
                key=message.key,
                headers=list(message.headers),
                partition=partition,
                timestamp_ms=message.timestamp_ms,
            )
            for message in messages
        ]
        async with asyncio.timeout(ANSWER_SECONDS):
            sent = await asyncio.gather(*futures)
    # With acks=0 there is no offset to return.
    return [-1 if metadata is None else metadata.offset for metadata in sent]


async def _read(bootstrap: str, place: Any, start: int, count: int) -> list[Received]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        enable_auto_commit=False,
        auto_offset_reset="none",
        max_partition_fetch_bytes=8_000_000,
    )
    received: list[Received] = []
    async with consumer:
        consumer.assign([place])
        consumer.seek(place, start)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                while len(received) < count:
                    received.append(_received(await consumer.getone()))
        except TimeoutError:
            pass  # The test finds the missing messages.
    return received


def _received(record: Any) -> Received:
    return Received(
        offset=record.offset,
        value=record.value,
        key=record.key,
        headers=tuple(record.headers),
        timestamp_ms=record.timestamp,
        timestamp_type=LOG_APPEND_TIME if record.timestamp_type == 1 else CREATE_TIME,
    )
