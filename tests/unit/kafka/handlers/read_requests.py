"""Fetch and ListOffsets requests, for the tests of their handlers."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from tests.unit.kafka.handlers.desk import Desk

from stratalog.kafka.wire.api import ApiKey

ORDERS = UUID(int=1)


def fetch(
    *topics: dict[str, Any],
    session_id: int = 0,
    session_epoch: int = -1,
    forgotten: Sequence[dict[str, Any]] = (),
    isolation: int = 0,
    max_wait_ms: int = 500,
) -> dict[str, Any]:
    return {
        "max_wait": timedelta(milliseconds=max_wait_ms),
        "min_bytes": 5,
        "max_bytes": 1000,
        "isolation_level": isolation,
        "session_id": session_id,
        "session_epoch": session_epoch,
        "topics": topics,
        "forgotten_topics_data": forgotten,
    }


def wanted(topic: str, topic_id: UUID, *offsets: int, epoch: int = -1) -> dict[str, Any]:
    return {
        "topic": topic,
        "topic_id": topic_id,
        "partitions": [
            {
                "partition": index,
                "fetch_offset": offset,
                "partition_max_bytes": 100,
                "current_leader_epoch": epoch,
            }
            for index, offset in enumerate(offsets)
        ],
    }


async def offsets(
    desk: Desk,
    *timestamps: int,
    version: int = 11,
    topic: str = "orders",
    partition: int = 0,
    isolation: int = 0,
    epoch: int = -1,
) -> list[Any]:
    partitions = [
        {
            "partition_index": partition + place,
            "timestamp": timestamp,
            "current_leader_epoch": epoch,
        }
        for place, timestamp in enumerate(timestamps)
    ]
    response = await desk.ask(
        ApiKey.LIST_OFFSETS,
        version,
        replica_id=-1,
        isolation_level=isolation,
        topics=[{"name": topic, "partitions": partitions}],
        timeout=timedelta(seconds=1),
    )
    return list(response.topics[0].partitions)
