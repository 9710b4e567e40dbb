"""Short ways to name the batches that a test commits."""

import asyncio
import os
import threading
from collections.abc import Sequence
from itertools import count

from stratalog.batch.header import TimestampType
from stratalog.control.log.model import (
    BatchToCommit,
    BlockToCommit,
    CommitAnswer,
    CommitOutcome,
    PartitionState,
    Span,
)
from stratalog.control.plane import ControlPlane
from stratalog.control.sql.database import Database
from stratalog.control.topics.model import Topic
from stratalog.ids import (
    NO_PRODUCER,
    BrokerId,
    ObjectId,
    Offset,
    PartitionIndex,
    ProducerId,
    TopicPartition,
    uuid7,
)

_numbers = count(1)


def part(topic: Topic, partition: int = 0) -> TopicPartition:
    return TopicPartition(topic.id, PartitionIndex(partition))


def batch(
    partition: TopicPartition,
    records: int = 1,
    *,
    size: int = 100,
    gap: int = 0,
    timestamp: int = 1_000,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer: int = NO_PRODUCER,
    epoch: int = 0,
    sequence: int = -1,
) -> BatchToCommit:
    """A batch; `gap` is how many bytes lie between it and the one before. See `block`."""
    return BatchToCommit(
        topic_id=partition.topic_id,
        partition=partition.partition,
        byte_offset=gap,
        byte_size=size,
        last_offset_delta=records - 1,
        max_timestamp=timestamp,
        timestamp_type=timestamp_type,
        producer_id=ProducerId(producer),
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def block(*batches: BatchToCommit, broker: int = 0) -> BlockToCommit:
    """A block of the batches, laid one after the other."""
    placed: list[BatchToCommit] = []
    end = 0
    for each in batches:
        start = end + each.byte_offset
        end = start + each.byte_size
        placed.append(_at(each, start))
    object_id = ObjectId(uuid7(next(_numbers), os.urandom))
    return BlockToCommit(
        object_id=object_id,
        key=f"blocks/{object_id}",
        size_bytes=end,
        broker_id=BrokerId(broker),
        batches=placed,
    )


async def commit(plane: ControlPlane, *batches: BatchToCommit) -> list[CommitAnswer]:
    """Commit one block of the batches."""
    [answers] = await plane.log.commit_blocks([block(*batches)])
    return answers


def outcomes(answers: Sequence[CommitAnswer]) -> list[CommitOutcome]:
    return [answer.outcome for answer in answers]


def offsets(answers: Sequence[CommitAnswer]) -> list[int]:
    return [answer.base_offset for answer in answers]


def _at(batch: BatchToCommit, byte_offset: int) -> BatchToCommit:
    return batch._replace(byte_offset=byte_offset)


def span(partition: TopicPartition, offset: int, max_bytes: int = 1_000_000) -> Span:
    return Span(
        topic_id=partition.topic_id,
        partition=partition.partition,
        offset=Offset(offset),
        max_bytes=max_bytes,
    )


async def rows_of(plane: ControlPlane, partition: TopicPartition) -> list[tuple[int, int]]:
    """First and last offset of every row that is stored for the partition."""
    rows = await plane.log.all_coordinates(partition, limit=10_000)
    return [(row.base_offset, row.last_offset) for row in rows]


async def state_of(plane: ControlPlane, partition: TopicPartition) -> PartitionState:
    return (await plane.log.partitions([partition]))[partition]


async def change(database: Database, sql: str, *args: object) -> None:
    """Change the database directly, where no operation offers the change."""
    await database.write(lambda connection: connection.execute(sql, *args))


async def held_up(event: threading.Event) -> None:
    """Wait for it within a transaction, which is on the loop or on a thread of the database."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        event.wait()
    else:
        await asyncio.to_thread(event.wait)
