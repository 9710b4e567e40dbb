"""The janitor and the segments of a real control plane and store: crashes, orphans, two stores."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast
from uuid import uuid4

import pytest
from tests.integration.segment_cluster import DiesError, Dying, SegmentCluster, told
from tests.integration.small_cluster import ShiftedClock, SmallCluster
from tests.servers import S3Server
from tests.support.ledgers import ActingControl, ControlWrapper, DyingControl
from tests.tiering import CrashError, Step

from stratalog.checks.fsck import run_fsck
from stratalog.checks.remote_tier import RemoteTier, beside_blocks
from stratalog.clock import SystemClock
from stratalog.control.plane import ControlPlane
from stratalog.control.scans.model import ScannedPartition, ScanWish
from stratalog.control.segments.errors import SegmentStateError
from stratalog.control.segments.model import Segment, SegmentUploaded
from stratalog.ids import Offset, PartitionIndex, SegmentId, TopicId
from stratalog.janitor.retention import Retention
from stratalog.janitor.segment_sweeper import SegmentSweeper
from stratalog.janitor.segments import clear_unfinished, delete_doomed
from stratalog.janitor.service import Janitor
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectStore
from stratalog.opening.claim import claim_store
from stratalog.opening.errors import ControlPlaneBehindError, MarkerMissingError, WrongStoreError
from stratalog.opening.marker import MARKER_KEY
from stratalog.segment.keys import segment_key_base, segment_keys
from stratalog.segment.stores import SegmentStores
from stratalog.settings import HOUR_MS, JanitorSettings

ALL = [".log", ".indexes", ".rsm-manifest"]
EVERYTHING = Retention(ms=None, bytes=None)


@pytest.fixture(params=["memory:", "file"])
async def small(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[SmallCluster]:
    objects = f"file:{tmp_path / 'objects'}" if request.param == "file" else request.param
    small = await SmallCluster.open(tmp_path, objects=objects)
    await claim_store(small.control, small.store)
    yield small
    await small.close()


@pytest.fixture
async def cluster(small: SmallCluster) -> SegmentCluster:
    return await SegmentCluster.make(small, segments=2)


async def delete(
    cluster: SegmentCluster,
    *,
    control: ControlPlane | None = None,
    store: object = None,
    grace_ms: int = 0,
) -> int:
    stores = beside_blocks(cast(ObjectStore, store or cluster.store))
    plane = control or cluster.control
    return await delete_doomed(plane.segments, stores, grace_ms=grace_ms, chunk_rows=100)


async def assert_healthy(cluster: SegmentCluster) -> None:
    report = await cluster.fsck(deep=True)
    assert report.ok, told(report)


# Deletion.


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
    """Those of the objects named by a scan that are there."""
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
        settings=JanitorSettings(grace_ms=0, unfinished_age_ms=0, answers_ms=0),
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
    await cluster.control.topics.purge_deleted(max_rows=100)
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


# Unfinished ones.


async def clear(cluster: SegmentCluster, *, older_than_ms: int = 0) -> int:
    return await clear_unfinished(cluster.control, older_than_ms=older_than_ms, chunk_rows=100)


async def unfinished(cluster: SegmentCluster, step: Step) -> Segment:
    with pytest.raises(CrashError):
        await cluster.converter.convert(cluster.topic, crash_after=step)
    (segment,) = await cluster.control.segments.unchained(older_than_ms=0, limit=10)
    return segment


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


async def uploaded(cluster: SegmentCluster) -> SegmentUploaded:
    found = (await cluster.segments())[0].uploaded
    assert found is not None
    return found


# The sweeper.


def sweeper_of(
    cluster: SegmentCluster,
    *,
    control: ControlPlane | None = None,
    store: object = None,
    clock: ShiftedClock | None = None,
) -> SegmentSweeper:
    return SegmentSweeper(
        control or cluster.control,
        cast(ObjectStore, store or cluster.store),
        prefix="segments/",
        clock=clock or cluster.cluster.later,
        orphan_age_ms=HOUR_MS,
    )


async def orphan(
    cluster: SegmentCluster, prefix: str = "segments/", topic_id: TopicId | None = None
) -> list[str]:
    """Objects of a segment that nobody knows."""
    first = (await cluster.segments())[0]
    place = (topic_id or cluster.topic.id, PartitionIndex(0))
    base = segment_key_base(prefix, "orders", *place, first.base_offset, SegmentId(uuid4()))
    for key in segment_keys(base):
        await cluster.store.put(key, [b"x"])
    return segment_keys(base)


async def test_the_sweeper_takes_old_orphans_and_nothing_else(cluster: SegmentCluster) -> None:
    started = await unfinished(cluster, Step.LOG_UPLOADED)
    first = (await cluster.segments())[0]
    await cluster.unchain(60)
    kept = await cluster.segment_objects()
    orphans = await orphan(cluster)
    foreign = [f"segments/{name}" for name in ("readme.txt", orphans[0].rpartition("/")[2])]
    elsewhere = await orphan(cluster, "elsewhere/")
    for key in foreign:
        await cluster.store.put(key, [b"not ours"])
    swept = await sweeper_of(cluster).sweep()
    assert (swept.deleted, swept.foreign) == (3, 2)
    # What is only started, and what waits for its deletion, is known.
    assert await cluster.objects(started) == [".log"]
    assert await cluster.objects(first) == ALL
    assert await cluster.segment_objects() == sorted([*kept, *foreign])
    assert len([key for key in elsewhere if await cluster.store.head(key)]) == 3
    assert len(await cluster.cluster.keys()) > 0


@pytest.mark.parametrize(("ahead_ms", "deleted"), [(-1000, 0), (1000, 3)])
async def test_the_age_of_an_orphan_has_one_bound(
    cluster: SegmentCluster, ahead_ms: int, deleted: int
) -> None:
    await orphan(cluster)
    clock = ShiftedClock(HOUR_MS + ahead_ms)
    assert (await sweeper_of(cluster, clock=clock).sweep()).deleted == deleted


async def test_what_kafka_tiers_beside_an_exported_topic_is_neither_swept_nor_waste(
    cluster: SegmentCluster,
) -> None:
    unknown = TopicId(uuid4())
    other = await cluster.cluster.topic("other", partition_count=1)
    await cluster.control.segments.mark_exported(cluster.topic.id)
    for topic_id in (cluster.topic.id, unknown):
        await orphan(cluster, topic_id=topic_id)
    assert (await sweeper_of(cluster).sweep()).deleted == 0
    await assert_healthy(cluster)
    await orphan(cluster, topic_id=other.id)
    assert not (await cluster.fsck()).ok
    assert (await sweeper_of(cluster).sweep()).deleted == 3


async def test_as_long_as_nothing_is_exported_orphans_of_unknown_topics_are_taken(
    cluster: SegmentCluster,
) -> None:
    await orphan(cluster, topic_id=TopicId(uuid4()))
    assert (await sweeper_of(cluster).sweep()).deleted == 3


async def test_a_segment_that_is_added_during_a_sweep_is_kept(cluster: SegmentCluster) -> None:
    class AddsAfterTheListing(ControlWrapper):
        async def segments_known(self, ids: Sequence[SegmentId]) -> set[SegmentId]:
            assert len(set(ids)) == 2
            with pytest.raises(CrashError):
                await cluster.converter.convert(cluster.topic, crash_after=Step.INDEXES_UPLOADED)
            return await cluster.control.segments.known(ids)

    assert (
        await sweeper_of(cluster, control=AddsAfterTheListing(cluster.control)).sweep()
    ).deleted == 0
    (added,) = await cluster.control.segments.unchained(older_than_ms=0, limit=10)
    assert await cluster.objects(added) == ALL


async def test_a_segment_that_is_added_before_it_is_barred_is_kept(
    cluster: SegmentCluster,
) -> None:
    class AddsAtTheLastMoment(ControlWrapper):
        async def segments_known(self, ids: Sequence[SegmentId]) -> set[SegmentId]:
            return set()

    kept = await cluster.segment_objects()
    assert (
        await sweeper_of(cluster, control=AddsAtTheLastMoment(cluster.control)).sweep()
    ).deleted == 0
    assert await cluster.segment_objects() == kept
    await assert_healthy(cluster)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    "method", ["identity.next_generation", "segments.known", "segments.bar", "delete"]
)
async def test_a_crash_of_the_sweeper_is_made_good(
    cluster: SegmentCluster, method: str, after: bool
) -> None:
    kept = await cluster.segment_objects()
    await orphan(cluster)
    store = Dying(cluster.store, method, 1, after=after)
    control = DyingControl(cluster.control, method, DiesError, after=after)
    with pytest.raises(DiesError):
        await sweeper_of(cluster, store=store, control=control).sweep()
    await sweeper_of(cluster).sweep()
    # What was barred already is as good as any other segment whose deletion has begun.
    await delete(cluster)
    assert await cluster.segment_objects() == kept
    await assert_healthy(cluster)


async def test_one_call_in_sixty_sweeps_and_one_that_failed_is_repeated(
    cluster: SegmentCluster,
) -> None:
    sweeper = sweeper_of(cluster)
    cluster.cluster.damage("UPDATE cluster SET generation = 0")
    with pytest.raises(ControlPlaneBehindError):
        await sweeper.sweep()
    cluster.cluster.damage("UPDATE cluster SET generation = 100")
    examined = [(await sweeper.sweep()).examined for _ in range(61)]
    assert examined == [6, *[0] * 59, 6]


async def test_orphans_are_taken_page_by_page(
    cluster: SegmentCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stratalog.janitor.segment_sweeper._PAGE", 4)
    kept = await cluster.segment_objects()
    for _ in range(4):
        await orphan(cluster)
    swept = await sweeper_of(cluster).sweep()
    assert (swept.examined, swept.deleted) == (18, 12)
    assert await cluster.segment_objects() == kept


async def test_the_sweeper_stops_before_a_store_that_is_not_its_own(
    cluster: SegmentCluster,
) -> None:
    orphans = await orphan(cluster)
    cluster.cluster.damage("UPDATE cluster SET cluster_id = ?", str(uuid4()))
    with pytest.raises(WrongStoreError):
        await sweeper_of(cluster).sweep()
    assert set(orphans) <= set(await cluster.segment_objects())


async def test_the_sweeper_of_a_restored_control_plane_takes_nothing(
    cluster: SegmentCluster,
) -> None:
    before = await cluster.segment_objects()
    await sweeper_of(cluster).sweep()
    cluster.cluster.damage("UPDATE cluster SET generation = 1")
    cluster.cluster.damage("DELETE FROM segments")
    with pytest.raises(ControlPlaneBehindError):
        await sweeper_of(cluster).sweep()
    assert await cluster.segment_objects() == before


async def test_a_control_plane_restored_during_a_sweep_takes_nothing(
    cluster: SegmentCluster,
) -> None:
    orphans = await orphan(cluster)

    async def restore() -> None:
        cluster.cluster.damage("UPDATE cluster SET generation = 1")

    restored = ActingControl(cluster.control, "segments.known", restore)
    with pytest.raises(ControlPlaneBehindError):
        await sweeper_of(cluster, control=restored).sweep()
    assert set(orphans) <= set(await cluster.segment_objects())


async def test_a_store_without_its_marker_is_not_swept(cluster: SegmentCluster) -> None:
    orphans = await orphan(cluster)
    await cluster.store.delete([MARKER_KEY])
    with pytest.raises(MarkerMissingError):
        await sweeper_of(cluster).sweep()
    assert set(orphans) <= set(await cluster.segment_objects())


# All of it.


def janitor_of(
    small: SmallCluster, retention: Retention = EVERYTHING, segments: SegmentStores | None = None
) -> Janitor:
    return Janitor(
        control=small.control,
        store=small.store,
        retention_of=lambda topic: retention,
        settings=JanitorSettings(
            grace_ms=0, answers_ms=0, unfinished_age_ms=0, chunk_rows=3, orphan_age_ms=0
        ),
        offsets_retention_ms=1000,
        clock=small.later,
        segments=segments,
    )


async def test_the_janitor_keeps_what_is_wanted_and_removes_the_rest(
    cluster: SegmentCluster,
) -> None:
    await orphan(cluster)
    await unfinished(cluster, Step.INDEXES_UPLOADED)
    second = (await cluster.segments())[1]
    size_bytes = (await cluster.state()).size_bytes - 1
    retention = Retention(ms=None, bytes=size_bytes - second.size_bytes)
    outcomes = await janitor_of(cluster.cluster, retention).run_once()
    assert {outcome.error for outcome in outcomes} == {None}
    done = {outcome.name: outcome.done for outcome in outcomes}
    assert (done["retention"], done["unfinished segments"]) == (1, 1)
    assert (done["segment deletion"], done["segment sweep"]) == (2, 3)
    assert await cluster.segment_objects() == sorted(segment_keys(second.key_base))
    await assert_healthy(cluster)


async def test_segments_and_blocks_in_stores_of_their_own_on_s3(
    tmp_path: Path, s3_server: S3Server
) -> None:
    small = await SmallCluster.open(tmp_path)
    clock, options = SystemClock(), s3_server.options
    blocks = open_store(s3_server.fresh_url(), options, clock=clock)
    remote = open_store(s3_server.fresh_url(), options, clock=clock)
    await small.store.close()
    small.store = blocks
    for store in (blocks, remote):
        await claim_store(small.control, store)
    cluster = await SegmentCluster.make(small, segments=0)
    cluster.converter = replace(cluster.converter, segment_store=remote)
    for _ in range(2):
        await cluster.write(6)
        await cluster.converter.convert(cluster.topic)
    stores = beside_blocks(remote)
    tier = RemoteTier(stores=stores, keys=cluster.converter.keys)
    first, second = await cluster.segments()
    await cluster.unchain(first.end_offset)
    base = segment_key_base("segments/", "gone", *cluster.key, Offset(0), SegmentId(uuid4()))
    for key in segment_keys(base):
        await remote.put(key, [b"x"])
    outcomes = await janitor_of(small, segments=stores).run_once()
    assert {outcome.error for outcome in outcomes} == {None}
    done = {outcome.name: outcome.done for outcome in outcomes}
    assert (done["segment deletion"], done["segment sweep"]) == (1, 3)
    left = [info.key async for info in remote.list("segments/")]
    assert left == sorted(segment_keys(second.key_base))
    report = await run_fsck(small.control, blocks, deep=True, clock=small.later, tier=tier)
    assert report.ok, told(report)
    await remote.delete([second.key_base + ".log"])
    report = await run_fsck(small.control, blocks, deep=False, clock=small.later, tier=tier)
    assert f"{second.key_base}.log is not in the store" in told(report)
    await remote.delete([MARKER_KEY])
    outcomes = await janitor_of(small, segments=stores).run_once()
    errors = {one.name: type(one.error) for one in outcomes if one.error is not None}
    assert errors == {"segment sweep": MarkerMissingError}
    await remote.close()
    await small.close()
