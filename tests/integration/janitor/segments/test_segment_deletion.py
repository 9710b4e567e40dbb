"""Deleting segments: marks, leases, crashes, and uploads that were not finished."""

from collections.abc import Sequence

import pytest
from tests.integration.janitor.segments.janitor_work import (
    ALL,
    EVERYTHING,
    assert_healthy,
    clear,
    delete,
    janitor_of,
    sweeper_of,
    unfinished,
    uploaded,
)
from tests.integration.segment_cluster import DiesError, Dying, SegmentCluster
from tests.support.ledgers import DyingControl
from tests.support.tiering import Step

from stratalog.checks.remote_tier import beside_blocks
from stratalog.control.scans.model import ScannedPartition, ScanWish
from stratalog.control.segments.errors import SegmentStateError
from stratalog.janitor.retention import Retention
from stratalog.janitor.segment_deletion import delete_doomed
from stratalog.janitor.service import Janitor
from stratalog.segment.keys import segment_keys
from stratalog.settings import HOUR_MS, JanitorSettings


async def test_only_what_left_the_chain_is_deleted(cluster: SegmentCluster) -> None:
    first, second = await cluster.segments()
    assert await delete(cluster) == 0
    await cluster.unchain(60)
    assert await delete(cluster, grace_ms=HOUR_MS) == 0
    assert await cluster.objects(first) == ALL
    assert await delete(cluster) == 1
    assert await cluster.objects(first) == []
    assert await cluster.objects(second) == ALL
    assert await cluster.control.segments.known([first.segment_id]) == set()
    await assert_healthy(cluster)


async def test_a_lease_keeps_the_segments_that_it_saw(cluster: SegmentCluster) -> None:
    first, _ = await cluster.segments()
    lease = await cluster.control.scans.take_lease("a scan", duration_ms=60_000)
    await cluster.unchain(60)
    assert await delete(cluster) == 0
    await cluster.control.scans.release_lease(lease.lease_id)
    assert await delete(cluster) == 1
    assert await cluster.objects(first) == []


async def stored(cluster: SegmentCluster, found: ScannedPartition) -> set[str]:
    """The objects named by a scan that still exist."""
    keys = {row.object_key for row in found.rows}
    for segment in found.segments:
        keys |= {segment.key_base + suffix for suffix in ALL}
    listed = {info.key async for info in cluster.store.list("")}
    return keys & listed


@pytest.mark.parametrize("remove", ["delete", "retention", "merge", "delete topic"])
async def test_a_snapshot_stays_readable_until_its_lease_ends(
    cluster: SegmentCluster, remove: str
) -> None:
    await cluster.write(2)
    taken = await cluster.control.scans.take_snapshot(
        [ScanWish(cluster.key)], holder="a scan", duration_ms=HOUR_MS
    )
    [found] = taken.partitions
    assert found is not None
    before = await stored(cluster, found)
    assert len(before) == 2 * len(ALL) + 2
    retention = EVERYTHING
    if remove == "retention":
        retention = Retention(ms=None, bytes=0)
    elif remove == "merge":
        await cluster.converter.convert(cluster.topic)
    elif remove == "delete":
        await cluster.unchain(-1)
    else:
        await cluster.control.topics.delete(cluster.topic.id)
    janitor = Janitor(
        control=cluster.control,
        store=cluster.store,
        retention_of=lambda topic: retention,
        settings=JanitorSettings(
            grace_ms=0,
            backup_window_ms=0,
            deleted_topic_window_ms=0,
            unfinished_age_ms=0,
            answers_ms=0,
        ),
        offsets_retention_ms=1000,
        clock=cluster.cluster.later,
    )
    for _ in range(2):
        await janitor.run_once()
        assert await stored(cluster, found) == before
    await cluster.control.scans.release_lease(taken.lease.lease_id)
    await janitor.run_once()
    # A merge replaces the rows alone.
    gone = {row.object_key for row in found.rows} if remove == "merge" else before
    assert await stored(cluster, found) == before - gone


@pytest.mark.parametrize(
    ("method", "nth", "after", "left"),
    [
        ("delete", 1, False, ALL),
        ("delete", 1, True, [".log", ".indexes"]),
        ("delete", 2, False, [".log", ".indexes"]),
        ("delete", 2, True, []),
        ("segments.forget", 1, False, []),
        ("segments.forget", 1, True, []),
    ],
)
async def test_a_crash_at_any_step_of_a_deletion_is_made_good(
    cluster: SegmentCluster, method: str, nth: int, after: bool, left: Sequence[str]
) -> None:
    first, second = await cluster.segments()
    await cluster.unchain(60)
    store = Dying(cluster.store, method, nth, after=after)
    control = DyingControl(cluster.control, method, DiesError, nth=nth, after=after)
    with pytest.raises(DiesError):
        await delete(cluster, store=store, control=control)
    # At no point is there a manifest whose log is gone.
    assert await cluster.objects(first) == left
    await assert_healthy(cluster)
    finished = method == "segments.forget" and after
    assert await delete(cluster) == (0 if finished else 1)
    assert await cluster.objects(first) == []
    assert await cluster.objects(second) == ALL
    assert await delete(cluster) == 0
    await assert_healthy(cluster)


async def test_objects_of_an_adopted_segment_are_never_deleted(cluster: SegmentCluster) -> None:
    first, second = await cluster.segments()
    cluster.cluster.damage("UPDATE segments SET owned = false")
    await cluster.unchain(60)
    await cluster.control.topics.delete(cluster.topic.id)
    stores = beside_blocks(cluster.store)
    assert await delete_doomed(cluster.control.segments, stores, grace_ms=0, chunk_rows=100) == 0
    await cluster.control.topics.purge_deleted(window_ms=0, max_rows=100)
    assert await delete_doomed(cluster.control.segments, stores, grace_ms=0, chunk_rows=100) == 0
    assert await cluster.control.segments.all(limit=10) == []
    for segment in (first, second):
        assert await cluster.objects(segment) == ALL


async def test_a_deleted_topic_takes_its_segments_along(cluster: SegmentCluster) -> None:
    await cluster.control.topics.delete(cluster.topic.id)
    outcomes = {one.name: one for one in await janitor_of(cluster.cluster).run_once()}
    assert {one.error for one in outcomes.values()} == {None}
    assert outcomes["segment deletion"].done == 2
    assert await cluster.segment_objects() == []
    assert await cluster.control.segments.all(limit=10) == []


@pytest.mark.parametrize("step", [Step.ADDED, Step.LOG_UPLOADED, Step.INDEXES_UPLOADED])
async def test_what_was_not_finished_is_removed_with_its_objects(
    cluster: SegmentCluster, step: Step
) -> None:
    segment = await unfinished(cluster, step)
    assert await clear(cluster, older_than_ms=HOUR_MS) == 0
    assert await clear(cluster) == 1
    assert await delete(cluster) == 1
    assert await cluster.objects(segment) == []
    assert len(await cluster.segments()) == 2
    await assert_healthy(cluster)


async def test_what_was_finished_becomes_a_part_of_its_partition(cluster: SegmentCluster) -> None:
    segment = await unfinished(cluster, Step.FINISHED)
    assert await clear(cluster) == 0
    assert [one.base_offset for one in await cluster.segments()] == [0, 60, 120]
    assert await delete(cluster) == 0
    assert await cluster.objects(segment) == ALL
    await assert_healthy(cluster)


async def test_what_was_finished_too_late_is_removed(cluster: SegmentCluster) -> None:
    late = await unfinished(cluster, Step.FINISHED)
    # Another one has taken its place.
    cluster.cluster.damage(
        "UPDATE segments SET base_offset = 110, state = 1 WHERE segment_id = ?",
        str(late.segment_id),
    )
    assert await clear(cluster) == 1
    assert await delete(cluster) == 1
    assert await cluster.objects(late) == []
    await assert_healthy(cluster)


async def test_an_uploader_that_comes_back_finds_its_segment_gone(
    cluster: SegmentCluster,
) -> None:
    segment = await unfinished(cluster, Step.LOG_UPLOADED)
    await clear(cluster)
    await delete(cluster)
    for key in segment_keys(segment.key_base):
        await cluster.store.put(key, [b"late"])
    with pytest.raises(SegmentStateError):
        await cluster.control.segments.finish(segment.segment_id, await uploaded(cluster))
    assert not (await cluster.fsck()).ok
    assert (await sweeper_of(cluster).sweep()).deleted == 3
    await assert_healthy(cluster)
