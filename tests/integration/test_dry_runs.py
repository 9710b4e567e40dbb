"""Dry runs say how much would go, and the deletion takes exactly that."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.small_cluster import SmallCluster

from stratalog.admin.entries import PartitionName
from stratalog.admin.principal import ANONYMOUS
from stratalog.cli.admin import admin_of
from stratalog.control.log import dry_runs
from stratalog.control.log.dry_runs import WouldGo
from stratalog.control.topics.model import Topic
from stratalog.ids import Offset, PartitionIndex, TopicPartition
from stratalog.settings import Settings

KEEPS = {"retention.ms": "-1"}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    cluster = await SmallCluster.open(tmp_path)
    yield cluster
    await cluster.close()


async def filled(cluster: SmallCluster) -> Topic:
    topic = await cluster.topic()
    for _ in range(4):
        await cluster.write(topic, {0: [5], 1: [2]})
    return topic


async def sizes(cluster: SmallCluster, topic: Topic) -> list[int]:
    return [state.size_bytes for state in await cluster.control.log.topic_partitions(topic.id)]


async def test_a_deleted_topic_would_take_all_its_records(cluster: SmallCluster) -> None:
    topic = await filled(cluster)
    found = await admin_of(cluster.control, Settings()).dry_runs.topic_deletion(
        ANONYMOUS, topic.name
    )
    assert (found.offsets, found.size_bytes) == (28, sum(await sizes(cluster, topic)))
    assert found.complete
    assert found.oldest_ms is not None
    assert found.newest_ms is not None
    assert found.oldest_ms <= found.newest_ms


@pytest.mark.parametrize(("before", "rows"), [(0, 0), (4, 0), (5, 1), (12, 2), (20, 4), (99, 4)])
async def test_deleted_records_would_free_their_rows(
    cluster: SmallCluster, before: int, rows: int
) -> None:
    topic = await filled(cluster)
    size = (await sizes(cluster, topic))[0]
    admin = admin_of(cluster.control, Settings())
    name = PartitionName(topic.name, 0)
    found = await admin.dry_runs.record_deletion(ANONYMOUS, name, Offset(before))
    assert found.offsets == min(before, 20)
    assert found.size_bytes == size // 4 * rows


@pytest.mark.parametrize("kept", [0, 1, 2, 4])
async def test_a_retention_would_take_as_much_as_it_takes(cluster: SmallCluster, kept: int) -> None:
    topic = await filled(cluster)
    key = TopicPartition(topic.id, PartitionIndex(0))
    size = (await sizes(cluster, topic))[0]
    limit = size // 4 * kept
    found = await cluster.control.log.would_expire(key, retention_ms=None, retention_bytes=limit)
    await cluster.control.log.enforce_retention(
        key, retention_ms=None, retention_bytes=limit, max_rows=100
    )
    state = (await cluster.control.log.partitions([key]))[key]
    assert found.offsets == state.log_start == 5 * (4 - kept)
    assert state.size_bytes == limit
    assert found.size_bytes == size - limit
    nothing = await cluster.control.log.would_expire(key, retention_ms=None, retention_bytes=limit)
    assert nothing == WouldGo()


async def test_a_retention_counts_all_partitions_and_the_defaults(cluster: SmallCluster) -> None:
    topic = await filled(cluster)
    dry = admin_of(cluster.control, Settings()).dry_runs

    async def offsets(**changes: str | None) -> int:
        named = {name.replace("_", "."): value for name, value in changes.items()}
        found = await dry.retention(ANONYMOUS, topic.name, named, defaults=KEEPS)
        return found.offsets

    assert await offsets() == 0
    assert await offsets(retention_bytes="0") == 28
    await cluster.control.topics.set_configs(topic.id, {"retention.bytes": "0"})
    assert await offsets() == 28
    assert await offsets(retention_bytes=None) == 0


async def test_a_large_partition_is_counted_up_to_a_bound(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await filled(cluster)
    key = TopicPartition(topic.id, PartitionIndex(0))
    monkeypatch.setattr(dry_runs, "MOST_ROWS", 3)
    found = await cluster.control.log.would_expire(key, retention_ms=None, retention_bytes=0)
    assert (found.offsets, found.complete) == (15, False)
    found = await cluster.control.log.would_go(key)
    assert (found.offsets, found.complete) == (20, False)
    assert found.size_bytes == (await sizes(cluster, topic))[0]
