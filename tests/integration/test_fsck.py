"""`fsck` on a real control plane and store: silent about the healthy, outspoken about damage."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from tests.integration.small_cluster import SmallCluster
from tests.support.ledgers import ActingControl

from stratalog.block.block import SealedBlock
from stratalog.checks.fsck import run_fsck
from stratalog.checks.report import Promise, Report
from stratalog.control.topics.model import Topic
from stratalog.ids import BrokerId, Offset, PartitionIndex, TopicPartition
from stratalog.janitor.deletion import delete_marked
from stratalog.objects.store import ObjectInfo, ObjectStore
from stratalog.opening.claim import claim_store


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    cluster = await SmallCluster.open(tmp_path, objects=f"file:{tmp_path / 'objects'}")
    await claim_store(cluster.control, cluster.store)
    yield cluster
    await cluster.close()


@pytest.fixture
async def topic(cluster: SmallCluster) -> Topic:
    return await cluster.topic()


@pytest.fixture
async def blocks(cluster: SmallCluster, topic: Topic) -> list[SealedBlock]:
    return [
        await cluster.write(topic, {0: [2, 3], 1: [1]}),
        await cluster.write(topic, {0: [4]}),
        await cluster.write(topic, {0: [1], 1: [7, 1]}),
    ]


async def fsck(cluster: SmallCluster, *, deep: bool = False) -> Report:
    return await run_fsck(cluster.control, cluster.store, deep=deep, clock=cluster.later)


def found(report: Report) -> set[tuple[str, Promise]]:
    return {(finding.where, finding.problem.promise) for finding in report.findings}


def told(report: Report) -> str:
    return "\n".join(map(str, report.findings))


async def test_an_empty_store_is_healthy(cluster: SmallCluster) -> None:
    assert (await fsck(cluster, deep=True)).ok


async def test_a_healthy_store_is_read_whole(
    cluster: SmallCluster, blocks: list[SealedBlock]
) -> None:
    steps: list[tuple[str, int, int | None]] = []
    report = await run_fsck(
        cluster.control,
        cluster.store,
        deep=True,
        clock=cluster.later,
        progress=lambda stage, done, total: steps.append((stage, done, total)),
    )
    assert report.ok, told(report)
    assert report.counts["batches"] == 7
    assert report.counts["bytes"] == sum(
        batch.byte_size for block in blocks for batch in block.commit.batches
    )
    assert report.counts["objects"] == report.counts["stored_objects"] == 3
    assert steps == [("partitions", 1, 2), ("partitions", 2, 2), ("objects", 3, None)]


async def test_retention_and_deletes_leave_a_healthy_store(
    cluster: SmallCluster, topic: Topic, blocks: list[SealedBlock]
) -> None:
    control = cluster.control
    await control.log.delete_records({TopicPartition(topic.id, PartitionIndex(0)): Offset(3)})
    assert (await fsck(cluster, deep=True)).ok
    await control.log.enforce_retention(
        TopicPartition(topic.id, PartitionIndex(1)),
        retention_ms=None,
        retention_bytes=0,
        max_rows=100,
    )
    assert (await fsck(cluster, deep=True)).ok
    await control.topics.delete(topic.id)
    assert (await fsck(cluster, deep=True)).ok
    await control.topics.purge_deleted(window_ms=0, max_rows=100)
    assert (await fsck(cluster, deep=True)).ok
    assert await delete_marked(control, cluster.store, grace_ms=0, chunk_rows=10) == 3
    report = await fsck(cluster, deep=True)
    assert report.ok
    assert report.counts["stored_objects"] == 0


# Planted damage, one promise after the other.


async def test_a_missing_row_is_a_gap(cluster: SmallCluster, blocks: list[SealedBlock]) -> None:
    cluster.damage("DELETE FROM batches WHERE partition = 0 AND base_offset = 5")
    report = await fsck(cluster)
    assert ("orders-0", Promise.DENSE) in found(report)
    assert "offsets 5 to 8 are in no row" in told(report)
    assert report.damaged


async def test_a_missing_last_row_is_a_gap(
    cluster: SmallCluster, blocks: list[SealedBlock]
) -> None:
    cluster.damage("DELETE FROM batches WHERE partition = 0 AND base_offset = 9")
    assert "offsets 9 to 9 are in no row" in told(await fsck(cluster))


async def test_two_rows_for_one_offset_are_an_overlap(
    cluster: SmallCluster, blocks: list[SealedBlock]
) -> None:
    cluster.damage("UPDATE batches SET base_offset = 4 WHERE partition = 0 AND base_offset = 5")
    report = await fsck(cluster)
    assert found(report) == {("orders-0", Promise.ONE_VALUE)}
    assert "offsets 4 to 4 are in two rows" in told(report)


async def test_a_boundary_beyond_the_high_watermark_is_broken(
    cluster: SmallCluster, blocks: list[SealedBlock]
) -> None:
    cluster.damage("UPDATE partitions SET log_start = 11 WHERE partition = 0")
    report = await fsck(cluster)
    assert found(report) == {("orders-0", Promise.BOUNDARIES)}
    assert "log_start 11 is not between 0 and high watermark 10" in told(report)


async def test_a_high_watermark_that_went_back_is_broken(
    cluster: SmallCluster, blocks: list[SealedBlock]
) -> None:
    cluster.damage("UPDATE heads SET high_watermark = 9 WHERE partition = 0")
    assert "rows reach 10, after block_end 9" in told(await fsck(cluster))


@pytest.mark.parametrize("deep", [False, True])
async def test_a_missing_object_is_found(
    cluster: SmallCluster, blocks: list[SealedBlock], deep: bool
) -> None:
    key = blocks[1].commit.key
    await cluster.store.delete([key])
    report = await fsck(cluster, deep=deep)
    deep_finding = {("orders-0", Promise.READABLE)} if deep else set()
    assert found(report) == {(key, Promise.OBJECTS), *deep_finding}
    assert report.damaged


async def test_an_object_that_was_cut_short_is_found(
    cluster: SmallCluster, blocks: list[SealedBlock]
) -> None:
    commit = blocks[1].commit
    whole = bytes((await cluster.store.get(commit.key)).data)
    await cluster.store.put(commit.key, [whole[:-1]])
    assert f"committed with {len(whole)} bytes and has {len(whole) - 1}" in told(
        await fsck(cluster)
    )
    await cluster.store.put(commit.key, [whole[: commit.batches[0].byte_size - 1]])
    assert "a row needs" in told(await fsck(cluster))
    assert found(await fsck(cluster, deep=True)) == {
        (commit.key, Promise.OBJECTS),
        ("orders-0", Promise.CHECKSUMS),
    }


async def test_a_marked_object_that_a_row_still_needs_is_found(
    cluster: SmallCluster, blocks: list[SealedBlock]
) -> None:
    commit = blocks[1].commit
    cluster.damage("UPDATE objects SET state = 'marked', marked_ms = 1 WHERE key = ?", commit.key)
    report = await fsck(cluster)
    assert found(report) == {(commit.key, Promise.OBJECTS)}
    assert "marked for deletion" in told(report)


async def test_an_old_object_without_a_row_is_waste(
    cluster: SmallCluster, topic: Topic, blocks: list[SealedBlock]
) -> None:
    orphan = await cluster.upload(topic, {0: [1]})
    young = await run_fsck(cluster.control, cluster.store, deep=False)
    assert young.ok
    report = await fsck(cluster)
    assert found(report) == {(orphan.commit.key, Promise.OBJECTS)}
    assert not report.damaged


async def test_other_files_below_the_prefix_are_counted_and_left_alone(
    cluster: SmallCluster,
) -> None:
    await cluster.store.put("blocks/readme.txt", [b"hello"])
    report = await fsck(cluster)
    assert report.ok
    assert report.counts["foreign_objects"] == 1


async def test_two_live_brokers_at_one_address_are_found(cluster: SmallCluster) -> None:
    for number in (1, 2):
        await cluster.control.brokers.register(
            BrokerId(number),
            host="here",
            port=9092 + number,
            rack=None,
            incarnation=uuid4(),
            lease_ms=60_000,
        )
    assert found(await fsck(cluster)) == set()
    cluster.damage("UPDATE brokers SET port = 9092")
    assert found(await fsck(cluster)) == {("brokers", Promise.HOLDERS)}


async def test_a_store_of_another_cluster_ends_the_check_with_one_finding(
    cluster: SmallCluster, blocks: list[SealedBlock]
) -> None:
    cluster.damage("UPDATE cluster SET cluster_id = ?", str(uuid4()))
    await cluster.store.delete([blocks[0].commit.key])
    report = await fsck(cluster)
    assert found(report) == {(cluster.store.url, Promise.HOLDERS)}
    assert len(report.findings) == 1


async def test_a_restored_control_plane_is_told_and_checked_all_the_same(
    cluster: SmallCluster, blocks: list[SealedBlock]
) -> None:
    cluster.damage("UPDATE cluster SET generation = 0")
    cluster.damage("DELETE FROM batches WHERE partition = 0 AND base_offset = 5")
    report = await fsck(cluster)
    assert "restored from a backup" in told(report)
    assert ("orders-0", Promise.DENSE) in found(report)


async def test_a_flipped_bit_is_found_by_a_deep_check_only(
    cluster: SmallCluster, blocks: list[SealedBlock]
) -> None:
    key = blocks[1].commit.key
    data = bytearray((await cluster.store.get(key)).data)
    data[70] ^= 1
    await cluster.store.put(key, [data])
    assert (await fsck(cluster)).ok
    report = await fsck(cluster, deep=True)
    assert found(report) == {("orders-0", Promise.CHECKSUMS)}
    assert "batch at offset 5" in told(report)


async def test_a_row_that_points_at_the_wrong_bytes_is_found_by_a_deep_check(
    cluster: SmallCluster, blocks: list[SealedBlock]
) -> None:
    first = blocks[0].commit
    cluster.damage(
        "UPDATE batches SET object_id = ?, byte_offset = 0, byte_size = ? "
        "WHERE partition = 0 AND base_offset = 5",
        str(first.object_id),
        first.batches[0].byte_size,
    )
    report = await fsck(cluster, deep=True)
    # The row has become longer, so that the partition's size is wrong as well.
    assert found(report) == {("orders-0", Promise.ONE_VALUE), ("orders-0", Promise.BOUNDARIES)}
    assert "row 5 ends at 8, its batches at 6" in told(report)


# A store that lives while it is checked.


class Interposed:
    """A store that does something of its own before the nth of some calls."""

    def __init__(self, target: object, before: str, action: Any, *, nth: int = 1) -> None:
        self._target = target
        self._before = before
        self._action = action
        self._remaining = nth
        self.acted = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name)
        if name != self._before or self.acted.is_set():
            return method

        async def acting(*args: Any, **kwargs: Any) -> Any:
            self._remaining -= 1
            if self._remaining == 0:
                self.acted.set()
                await self._action()
            return await method(*args, **kwargs)

        return acting


async def trim(cluster: SmallCluster, topic: Topic, offset: int) -> None:
    """Remove the start of partition 0, and the objects with it."""
    partition = TopicPartition(topic.id, PartitionIndex(0))
    await cluster.control.log.delete_records({partition: Offset(offset)})
    await delete_marked(cluster.control, cluster.store, grace_ms=0, chunk_rows=10)


@pytest.mark.parametrize("before", ["log.all_coordinates", "objects.all"])
@pytest.mark.parametrize("offset", [9, 10])
async def test_rows_removed_during_a_check_are_no_finding(
    cluster: SmallCluster, topic: Topic, blocks: list[SealedBlock], before: str, offset: int
) -> None:
    control = ActingControl(cluster.control, before, lambda: trim(cluster, topic, offset))
    report = await run_fsck(control, cluster.store, deep=True, clock=cluster.later)
    assert control.acted.is_set()
    assert report.ok, told(report)


async def test_rows_whose_objects_vanish_before_their_bytes_are_read_are_no_finding(
    cluster: SmallCluster, topic: Topic
) -> None:
    first = await cluster.write(topic, {0: [2]})
    await cluster.write(topic, {0: [1]})
    store = Interposed(cluster.store, "get_ranges", lambda: trim(cluster, topic, 2))
    report = await run_fsck(
        cluster.control, cast(ObjectStore, store), deep=True, clock=cluster.later
    )
    assert store.acted.is_set()
    assert first.commit.key not in await cluster.keys()
    assert report.ok, told(report)


async def test_rows_swapped_for_one_between_two_pages_are_looked_at_again(
    cluster: SmallCluster, blocks: list[SealedBlock], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def swap_after_the_first_page() -> None:
        cluster.damage("DELETE FROM batches WHERE partition = 0 AND base_offset = 0")
        cluster.damage("UPDATE batches SET base_offset = 0 WHERE base_offset = 5")
        cluster.damage(
            "UPDATE heads SET size_bytes = (SELECT SUM(b.byte_size) FROM batches b "
            "WHERE b.topic_id = heads.topic_id AND b.partition = heads.partition)"
        )

    monkeypatch.setattr("stratalog.checks.partition_check._PAGE_ROWS", 1)
    control = ActingControl(
        cluster.control, "log.all_coordinates", swap_after_the_first_page, nth=2
    )
    report = await run_fsck(control, cluster.store, deep=False)
    assert control.acted.is_set()
    assert report.ok, told(report)


@pytest.mark.parametrize("before", ["log.all_coordinates", "objects.all", "log.partitions"])
async def test_blocks_committed_during_a_check_are_no_finding(
    cluster: SmallCluster, topic: Topic, blocks: list[SealedBlock], before: str
) -> None:
    control = ActingControl(cluster.control, before, lambda: cluster.write(topic, {0: [3], 1: [3]}))
    report = await run_fsck(control, cluster.store, deep=True, clock=cluster.later)
    assert control.acted.is_set()
    assert report.ok, told(report)


async def test_a_topic_deleted_and_purged_during_a_check_is_no_finding(
    cluster: SmallCluster, topic: Topic, blocks: list[SealedBlock]
) -> None:
    async def purge() -> None:
        await cluster.control.topics.delete(topic.id)
        await cluster.control.topics.purge_deleted(window_ms=0, max_rows=100)
        await delete_marked(cluster.control, cluster.store, grace_ms=0, chunk_rows=10)

    control = ActingControl(cluster.control, "log.all_coordinates", purge)
    report = await run_fsck(control, cluster.store, deep=True, clock=cluster.later)
    assert control.acted.is_set()
    assert report.ok, told(report)


class StaleListing:
    """A store whose listing was made before the latest objects arrived."""

    def __init__(self, target: ObjectStore, listing: list[ObjectInfo]) -> None:
        self._target = target
        self._listing = listing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        for info in self._listing:
            yield info


async def test_a_listing_older_than_the_rows_is_looked_at_again(
    cluster: SmallCluster, topic: Topic, blocks: list[SealedBlock]
) -> None:
    listing = [info async for info in cluster.store.list("blocks/")]
    await cluster.write(topic, {0: [3]})
    await trim(cluster, topic, 9)
    store = cast(ObjectStore, StaleListing(cluster.store, listing))
    report = await run_fsck(cluster.control, store, deep=False, clock=cluster.later)
    assert report.ok, told(report)
