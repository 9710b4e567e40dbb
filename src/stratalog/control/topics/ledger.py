"""Topics: made, found, changed and hidden. Their rows leave in `purge.py`, if at all."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from stratalog.control.earlier_values import EarlierValue, with_earlier
from stratalog.control.keys import PARTITION, partition_rows
from stratalog.control.log.model import EPOCHS, HEADS, PARTITIONS, WriteTier
from stratalog.control.sql.database import Connection, Row, Rows, as_uuid
from stratalog.control.topics.adoption import AdoptionOperations
from stratalog.control.topics.errors import PartitionCountError, TopicExistsError, UnknownTopicError
from stratalog.control.topics.migration import MigrationOperations
from stratalog.control.topics.model import RETENTION_CONFIGS, TOPIC, TOPICS, Topic
from stratalog.control.topics.purge import PurgeOperations
from stratalog.control.topics.undelete import UndeleteOperations
from stratalog.ids import (
    LeaderEpoch,
    PartitionIndex,
    TopicId,
    TopicPartition,
    kafka_base64,
    new_topic_id,
)

_SELECT = f"SELECT {TOPIC.columns} FROM topics WHERE topics.deleted_ms IS NULL"
# Each is served by an index of its own, which is mostly empty.
_EPOCHS = "SELECT topic_id, partition, leader_epoch FROM heads WHERE leader_epoch > 0"
_WRITE_TIERS = "SELECT topic_id, partition, write_tier FROM partitions WHERE write_tier <> 'block'"
_NAMES = TOPICS.shape("name")
_IDS = TOPICS.shape("topic_id")
_CREATE = """
    INSERT INTO topics (topic_id, name, configs, partition_count, created_ms)
    VALUES ($1, $2, $3, $4, {now_ms})
    ON CONFLICT (name) WHERE deleted_ms IS NULL DO NOTHING RETURNING created_ms
"""
_INSERT_PARTITIONS = PARTITIONS.insert(
    PARTITION, log_start="0", remote_end="0", block_start="0", write_tier="$1"
)
_INSERT_HEADS = HEADS.insert(
    PARTITION, high_watermark="0", size_bytes="0", last_commit_ms="0", leader_epoch="0"
)
_INSERT_EPOCHS = EPOCHS.insert(PARTITION, leader_epoch="0", start_offset="0")


class TopicsLedger(AdoptionOperations, MigrationOperations, PurgeOperations, UndeleteOperations):
    async def partition_total(self) -> int:
        """Return the number of partitions of all topics that are not deleted."""
        rows = await self._database.read(
            lambda connection: connection.fetch(
                "SELECT COALESCE(SUM(partition_count), 0) FROM topics WHERE deleted_ms IS NULL"
            )
        )
        return int(rows[0][0])

    async def create(self, name: str, *, partition_count: int, configs: Mapping[str, str]) -> Topic:
        if partition_count < 1:
            raise PartitionCountError(f"topic {name}: needs at least one partition")
        topic_id = new_topic_id(self._entropy)

        async def work(connection: Connection) -> Topic:
            await connection.lock("topic names", shared=True)
            rows = await connection.fetch(
                _CREATE,
                topic_id,
                name,
                json.dumps(dict(configs)),
                partition_count,
            )
            if not rows:
                raise TopicExistsError(f"topic {name} exists")
            await _insert_partitions(connection, topic_id, range(partition_count))
            return Topic(
                id=topic_id,
                name=name,
                partition_count=partition_count,
                configs=dict(configs),
                created_ms=rows[0][0],
            )

        return await self._database.write(work)

    async def all(self) -> list[Topic]:
        """All topics, by name."""

        async def work(connection: Connection) -> list[Topic]:
            rows = await connection.fetch(_SELECT)
            epochs = await connection.fetch(_EPOCHS)
            return _topics(rows, epochs, await connection.fetch(_WRITE_TIERS))

        # Sorted here, because a database sorts text by its own collation.
        return sorted(await self._database.read(work), key=lambda topic: topic.name)

    async def named(self, names: Sequence[str]) -> list[Topic]:
        """Return the topics with these names that exist, in no particular order."""
        return await self._some_topics(
            "topics.name IN (SELECT name FROM {rows})", Rows(_NAMES, [(name,) for name in names])
        )

    async def with_ids(self, ids: Sequence[TopicId]) -> list[Topic]:
        return await self._some_topics(
            "topics.topic_id IN (SELECT topic_id FROM {rows})",
            Rows(_IDS, [(topic_id,) for topic_id in ids]),
        )

    async def _some_topics(self, condition: str, source: Rows) -> list[Topic]:
        async def work(connection: Connection) -> list[Topic]:
            rows = await connection.fetch(f"{_SELECT} AND {condition}", rows=source)
            return await _with_partitions(connection, rows)

        return await self._database.read(work)

    async def add_partitions(self, topic_id: TopicId, *, partition_count: int) -> Topic:
        """Grow the topic to `partition_count`."""

        async def work(connection: Connection) -> Topic:
            topic = await _locked(connection, topic_id)
            if partition_count <= topic.partition_count:
                raise PartitionCountError(
                    f"topic {topic.name} has {topic.partition_count} partitions:"
                    f" it cannot be changed to {partition_count}, only grow"
                )
            added = range(topic.partition_count, partition_count)
            await _insert_partitions(connection, topic_id, added)
            await connection.execute(
                "UPDATE topics SET partition_count = $1 WHERE topic_id = $2",
                partition_count,
                topic_id,
            )
            return await _locked(connection, topic_id)

        return await self._database.write(work)

    async def set_configs(self, topic_id: TopicId, changes: Mapping[str, str | None]) -> Topic:
        """Set or, with None, unset configs."""

        async def work(connection: Connection) -> Topic:
            topic = await _locked(connection, topic_id)
            merged = {**topic.configs, **changes}
            kept = {name: value for name, value in merged.items() if value is not None}
            [(now_ms,)] = await connection.fetch("SELECT {now_ms}")
            await connection.execute(
                "UPDATE topics SET configs = $1, earlier_retention = $2 WHERE topic_id = $3",
                json.dumps(kept),
                json.dumps(_histories(topic, kept, now_ms)),
                topic_id,
            )
            return await _locked(connection, topic_id)

        return await self._database.write(work)

    async def delete(self, topic_id: TopicId) -> None:
        """Hide the topic at once; `purge_deleted` takes its rows away later, in chunks."""
        hidden = await self._database.write(
            lambda connection: connection.execute(
                "UPDATE topics SET deleted_ms = {now_ms}"
                " WHERE topic_id = $1 AND deleted_ms IS NULL",
                topic_id,
            )
        )
        if not hidden:
            raise _unknown(topic_id)


async def _locked(connection: Connection, topic_id: TopicId) -> Topic:
    rows = await connection.fetch(f"{_SELECT} AND topic_id = $1 {{for_update}}", topic_id)
    if not rows:
        raise _unknown(topic_id)
    [topic] = await _with_partitions(connection, rows)
    return topic


async def _with_partitions(connection: Connection, rows: Sequence[Row]) -> list[Topic]:
    if not rows:
        return []
    ids = Rows(_IDS, [(as_uuid(row[0]),) for row in rows])
    epochs = await connection.fetch(
        f"{_EPOCHS} AND topic_id IN (SELECT topic_id FROM {{rows}})", rows=ids
    )
    write_tiers = await connection.fetch(
        f"{_WRITE_TIERS} AND topic_id IN (SELECT topic_id FROM {{rows}})", rows=ids
    )
    return _topics(rows, epochs, write_tiers)


async def _insert_partitions(connection: Connection, topic_id: TopicId, added: range) -> None:
    keys = partition_rows(TopicPartition(topic_id, PartitionIndex(index)) for index in added)
    await connection.execute(_INSERT_PARTITIONS, WriteTier.BLOCK.value, rows=keys)
    await connection.execute(_INSERT_HEADS, rows=keys)
    await connection.execute(_INSERT_EPOCHS, rows=keys)


def _histories(
    topic: Topic, configs: Mapping[str, str], now_ms: int
) -> Mapping[str, Sequence[EarlierValue]]:
    """Return the earlier values of the configs of retention, once `configs` are in force."""
    histories = dict(topic.earlier_retention)
    for name in RETENTION_CONFIGS:
        before = topic.configs.get(name)
        if configs.get(name) != before:
            history = histories.get(name, ())
            where = f"{name} of topic {topic.name}"
            histories[name] = with_earlier(history, before, now_ms=now_ms, name=where)
    return histories


def _unknown(topic_id: TopicId) -> UnknownTopicError:
    return UnknownTopicError(f"no topic has the id {kafka_base64(topic_id)}")


def _topics(rows: Sequence[Row], epochs: Sequence[Row], write_tiers: Sequence[Row]) -> list[Topic]:
    epochs_of = _by_topic(epochs)
    tiers_of = _by_topic(write_tiers)
    return [
        replace(
            topic,
            leader_epochs={
                index: LeaderEpoch(epoch) for index, epoch in epochs_of.get(topic.id, ())
            },
            write_tiers={index: WriteTier(tier) for index, tier in tiers_of.get(topic.id, ())},
        )
        for topic in TOPIC.read_all(rows)
    ]


def _by_topic(rows: Sequence[Row]) -> Mapping[UUID, Sequence[tuple[PartitionIndex, Any]]]:
    """Values of partitions, by the id of their topic."""
    found: dict[UUID, list[tuple[PartitionIndex, Any]]] = defaultdict(list)
    for topic_id, partition, value in rows:
        found[as_uuid(topic_id)].append((PartitionIndex(partition), value))
    return found
