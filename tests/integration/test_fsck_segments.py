"""`fsck` of segments on a real control plane and store."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.segment_cluster import (
    KEYS,
    MODES,
    Acting,
    SegmentCluster,
    found,
    told,
)
from tests.integration.small_cluster import SmallCluster
from tests.support.ledgers import ActingControl

from stratalog.checks.fsck import run_fsck
from stratalog.checks.remote_tier import RemoteTier, beside_blocks
from stratalog.checks.report import Promise
from stratalog.janitor.deletion import delete_marked
from stratalog.janitor.segment_deletion import delete_doomed
from stratalog.opening.claim import claim_store
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.keys import segment_keys


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    small = await SmallCluster.open(tmp_path, objects=f"file:{tmp_path / 'objects'}")
    await claim_store(small.control, small.store)
    yield small
    await small.close()


@pytest.fixture
async def cluster(small: SmallCluster) -> SegmentCluster:
    return await SegmentCluster.make(small)


@pytest.mark.parametrize("mode", MODES)
async def test_healthy_segments_are_read_whole(small: SmallCluster, mode: str) -> None:
    cluster = await SegmentCluster.make(small, encoding=MODES[mode])
    report = await cluster.fsck(deep=True)
    assert report.ok, told(report)
    assert report.counts["segments"] == 3
    assert report.counts["segment_objects"] == 9
    assert report.counts["batches"] == 20
    assert (await cluster.fsck()).ok
    assert await cluster.rebuild() == []


async def test_deletes_and_retention_leave_healthy_segments(cluster: SegmentCluster) -> None:
    for offset in (5, 60, 100, 180, 190, 200):
        await cluster.unchain(offset)
        report = await cluster.fsck(deep=True)
        assert report.ok, told(report)
    assert await cluster.segments() == []


# Planted damage: objects.


@pytest.mark.parametrize("suffix", [".log", ".indexes", ".rsm-manifest"])
@pytest.mark.parametrize("deep", [False, True])
async def test_a_missing_object_is_named(cluster: SegmentCluster, suffix: str, deep: bool) -> None:
    key = (await cluster.segments())[1].key_base + suffix
    await cluster.store.delete([key])
    report = await cluster.fsck(deep=deep)
    assert ("orders-0", Promise.OBJECTS) in found(report)
    assert f"segment 60 to 119: its object {key} is not in the store" in told(report)
    assert report.damaged


@pytest.mark.parametrize("suffix", [".log", ".indexes", ".rsm-manifest"])
@pytest.mark.parametrize("mode", MODES)
async def test_a_truncated_object_is_named(small: SmallCluster, suffix: str, mode: str) -> None:
    cluster = await SegmentCluster.make(small, encoding=MODES[mode])
    key = (await cluster.segments())[1].key_base + suffix
    size = (await cluster.store.head(key)).size_bytes
    await cluster.cut(key, size - 1)
    report = await cluster.fsck()
    assert found(report) == {("orders-0", Promise.OBJECTS)}
    assert f"its object {key} has {size - 1} bytes, not {size}" in told(report)
    assert len(report.findings) == 1


@pytest.mark.parametrize("mode", MODES)
async def test_a_flipped_bit_in_a_log_is_found_by_a_deep_check_only(
    small: SmallCluster, mode: str
) -> None:
    cluster = await SegmentCluster.make(small, encoding=MODES[mode])
    key = (await cluster.segments())[1].key_base + ".log"
    await cluster.flip(key, (await cluster.store.head(key)).size_bytes // 5)
    assert (await cluster.fsck()).ok
    report = await cluster.fsck(deep=True)
    assert found(report) == {("orders-0", Promise.CHECKSUMS)}
    assert key in told(report)
    assert mode != "plain" or "segment 60 to 119: the batch of offset 70, at byte" in told(report)


@pytest.mark.parametrize("position", [7, 20, 1000])
@pytest.mark.parametrize("mode", ["plain", "both"])
async def test_a_flipped_bit_in_a_manifest_is_found_by_a_deep_check_and_made_good(
    small: SmallCluster, mode: str, position: int
) -> None:
    cluster = await SegmentCluster.make(small, encoding=MODES[mode])
    key = (await cluster.segments())[1].key_base + ".rsm-manifest"
    size = (await cluster.store.head(key)).size_bytes
    await cluster.flip(key, min(position, size - 5))
    report = await cluster.fsck(deep=True)
    assert found(report) == {("orders-0", Promise.OBJECTS)}
    assert key in told(report)
    assert [repair.failure for repair in await cluster.rebuild()] == [None]
    report = await cluster.fsck(deep=True)
    assert report.ok, told(report)


async def test_objects_that_nobody_knows_are_waste(cluster: SegmentCluster) -> None:
    first = (await cluster.segments())[0]
    await cluster.unchain(60)
    await cluster.control.segments.forget([first.segment_id])
    report = await cluster.fsck()
    assert found(report) == {(key, Promise.OBJECTS) for key in segment_keys(first.key_base)}
    assert not report.damaged
    assert "belong to no segment" in told(report)


async def test_other_names_below_the_prefix_are_left_alone(cluster: SegmentCluster) -> None:
    await cluster.store.put("segments/readme.txt", [b"hello"])
    assert (await cluster.fsck()).ok


# Planted damage: rows.


async def test_a_gap_in_the_chain_is_found(cluster: SegmentCluster) -> None:
    cluster.cluster.damage("UPDATE segments SET chained = false WHERE base_offset = 60")
    report = await cluster.fsck()
    assert ("orders-0", Promise.DENSE) in found(report)
    assert "offsets 60 to 119 are in no segment" in told(report)


@pytest.mark.parametrize(("base", "missing"), [(0, "0 to 59"), (120, "120 to 179")])
async def test_a_chain_that_lacks_its_beginning_or_end_is_found(
    cluster: SegmentCluster, base: int, missing: str
) -> None:
    cluster.cluster.damage("UPDATE segments SET chained = false WHERE base_offset = ?", base)
    assert f"offsets {missing} are in no segment" in told(await cluster.fsck())


async def test_two_segments_for_one_offset_are_found(cluster: SegmentCluster) -> None:
    cluster.cluster.damage("UPDATE segments SET base_offset = 59 WHERE base_offset = 60")
    report = await cluster.fsck()
    assert ("orders-0", Promise.ONE_VALUE) in found(report)
    keys = [segment.key_base for segment in await cluster.segments()]
    assert f"offsets 59 to 59 are in two segments, {keys[0]} and {keys[1]}" in told(report)


async def test_a_row_for_an_offset_of_a_segment_is_found(cluster: SegmentCluster) -> None:
    cluster.cluster.damage("UPDATE batches SET base_offset = 179 WHERE base_offset = 180")
    report = await cluster.fsck()
    assert ("orders-0", Promise.ONE_VALUE) in found(report)
    assert "offsets 179 to 179 are in a row, of blocks/" in told(report)


async def test_segments_beyond_the_remote_end_are_found(cluster: SegmentCluster) -> None:
    cluster.cluster.damage("UPDATE partitions SET remote_end = 179")
    report = await cluster.fsck()
    assert ("orders-0", Promise.BOUNDARIES) in found(report)
    assert "segments reach 180, after remote_end 179" in told(report)


async def test_a_segment_below_the_start_is_waste(cluster: SegmentCluster) -> None:
    cluster.cluster.damage("UPDATE partitions SET log_start = 60")
    report = await cluster.fsck(deep=True)
    assert found(report) == {("orders-0", Promise.BOUNDARIES)}
    assert "segment 0 to 59 ends before log_start 60" in told(report)
    assert not report.damaged


@pytest.mark.parametrize("change", [-1, 1])
async def test_a_wrong_size_is_found(cluster: SegmentCluster, change: int) -> None:
    cluster.cluster.damage("UPDATE heads SET size_bytes = size_bytes + ?", change)
    report = await cluster.fsck()
    assert found(report) == {("orders-0", Promise.BOUNDARIES)}
    assert f"its size is {(await cluster.state()).size_bytes} bytes, but" in told(report)


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        ("state = 0", "it is a part of its partition, although it is COPY_STARTED"),
        ("manifest = NULL", "although its row has no manifest"),
        ("manifest = '{}'", "manifest.version is missing"),
        ("size_bytes = size_bytes + 1", "its manifest speaks of"),
        ("has_aborted = true", "do not agree about aborted transactions"),
        ("leader_epochs = '[[1, 60]]'", "has epochs 1 from 60, the partition 0 from 60"),
    ],
)
async def test_a_row_that_cannot_be_is_found(
    cluster: SegmentCluster, damage: str, what: str
) -> None:
    cluster.cluster.damage(f"UPDATE segments SET {damage} WHERE base_offset = 60")
    report = await cluster.fsck()
    assert report.damaged
    assert f"segment 60 to 119: {what}" in told(report) or what in told(report)


async def test_epochs_that_do_not_rise_are_found(cluster: SegmentCluster) -> None:
    cluster.cluster.damage("UPDATE heads SET leader_epoch = 1")
    assert "its last epoch is 0, its leader's is 1" in told(await cluster.fsck())
    cluster.cluster.damage(
        "INSERT INTO epochs (topic_id, partition, leader_epoch, start_offset) "
        "SELECT topic_id, partition, 1, -5 FROM heads"
    )
    assert "epoch 1 from offset -5 cannot follow epoch 0 from offset 0" in told(
        await cluster.fsck()
    )


async def test_a_migration_that_cannot_be_under_way_is_found(cluster: SegmentCluster) -> None:
    cluster.cluster.damage("UPDATE partitions SET migrating_since_ms = 1")
    assert "a switch to blocks is under way, although" in told(await cluster.fsck())


async def test_a_wrong_least_time_is_found_by_a_deep_check(cluster: SegmentCluster) -> None:
    cluster.cluster.damage("UPDATE segments SET min_timestamp = max_timestamp + 1")
    report = await cluster.fsck(deep=True)
    assert found(report) == {("orders-0", Promise.ONE_VALUE)}
    assert "the row says that none is before" in told(report)


async def test_a_wrong_newest_time_is_found_by_a_deep_check(cluster: SegmentCluster) -> None:
    cluster.cluster.damage("UPDATE segments SET max_timestamp = max_timestamp + 1")
    report = await cluster.fsck(deep=True)
    assert found(report) == {("orders-0", Promise.ONE_VALUE)}
    assert "its newest record is of" in told(report)


# Keys.


async def test_a_key_that_is_missing_is_a_finding(small: SmallCluster) -> None:
    cluster = await SegmentCluster.make(small, encoding=MODES["aes"])
    assert (await cluster.fsck(keys=KeyRing())).ok
    report = await cluster.fsck(deep=True, keys=KeyRing())
    assert found(report) == {("orders-0", Promise.READABLE)}
    assert "its key pair 'key1' has no private key here" in told(report)
    assert (await cluster.fsck(deep=True, keys=KEYS)).ok


# Segments that live while they are checked.


async def fsck_while(
    cluster: SegmentCluster, where: str, before: str, nth: int, action: Any
) -> bool:
    """Check deeply while something happens; return whether it happened."""
    happened = False

    async def act() -> None:
        nonlocal happened
        happened = True
        await action()

    control = cluster.control
    store: Any = cluster.store
    if where == "control":
        control = ActingControl(control, before, act, nth=nth)
    else:
        store = Acting(store, before, act, nth=nth)
    tier = RemoteTier(stores=beside_blocks(store), keys=KEYS)
    report = await run_fsck(control, store, deep=True, clock=cluster.cluster.later, tier=tier)
    assert report.ok, told(report)
    return happened


_PARTITION_CALLS = ("segments.chained", "log.epochs", "log.partitions", "log.all_coordinates")
CALLS = [
    *(("control", before) for before in _PARTITION_CALLS),
    *(("control", before) for before in ("objects.all", "segments.known")),
    *(("store", before) for before in ("get", "get_ranges", "list")),
]


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize(("where", "before"), CALLS)
async def test_segments_deleted_during_a_check_are_no_finding(
    cluster: SegmentCluster, where: str, before: str, nth: int
) -> None:
    async def remove() -> None:
        await cluster.unchain(130)
        stores = beside_blocks(cluster.store)
        await delete_doomed(cluster.control.segments, stores, grace_ms=0, chunk_rows=10)
        await delete_marked(cluster.control, cluster.store, grace_ms=0, chunk_rows=10)

    happened = await fsck_while(cluster, where, before, nth, remove)
    called_once = {"log.epochs", "segments.known"}
    assert happened or (nth > 1 and before in called_once)


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize(("where", "before"), CALLS)
async def test_segments_chained_during_a_check_are_no_finding(
    cluster: SegmentCluster, where: str, before: str, nth: int
) -> None:
    async def convert() -> None:
        await cluster.converter.convert(cluster.topic)
        await delete_marked(cluster.control, cluster.store, grace_ms=0, chunk_rows=10)

    await fsck_while(cluster, where, before, nth, convert)


@pytest.mark.parametrize(
    ("where", "before"),
    [("control", "segments.chained"), ("store", "list"), ("store", "get_ranges")],
)
async def test_a_topic_deleted_during_a_check_is_no_finding(
    cluster: SegmentCluster, where: str, before: str
) -> None:
    async def remove() -> None:
        await cluster.control.topics.delete(cluster.topic.id)
        await cluster.control.topics.purge_deleted(window_ms=0, max_rows=100)
        stores = beside_blocks(cluster.store)
        await delete_doomed(cluster.control.segments, stores, grace_ms=0, chunk_rows=10)
        await delete_marked(cluster.control, cluster.store, grace_ms=0, chunk_rows=10)

    assert await fsck_while(cluster, where, before, 1, remove)
