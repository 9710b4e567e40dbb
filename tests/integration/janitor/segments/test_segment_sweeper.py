"""The janitor and the segments of a real control plane and store: crashes, orphans, two stores."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from tests.integration.janitor.segments.janitor_work import (
    ALL,
    assert_healthy,
    delete,
    janitor_of,
    sweeper_of,
    unfinished,
)
from tests.integration.segment_cluster import DiesError, Dying, SegmentCluster, told
from tests.integration.small_cluster import ShiftedClock, SmallCluster
from tests.support.ledgers import ActingControl, ControlWrapper, DyingControl
from tests.support.servers import S3Server
from tests.support.tiering import CrashError, Step
from tests.support.writers import announced_id

from stratalog.checks.fsck import run_fsck
from stratalog.checks.remote_tier import RemoteTier, beside_blocks
from stratalog.clock import SystemClock
from stratalog.control.identity.model import StoreRole
from stratalog.ids import Offset, PartitionIndex, SegmentId, TopicId
from stratalog.janitor.retention import Retention
from stratalog.objects.open import open_store
from stratalog.opening.claim import claim_anew
from stratalog.opening.errors import ControlPlaneBehindError, MarkerMissingError, WrongStoreError
from stratalog.opening.marker import MARKER_KEY
from stratalog.segment.keys import segment_key_base, segment_keys
from stratalog.settings import HOUR_MS


async def new_id(cluster: SegmentCluster) -> SegmentId:
    return SegmentId(await announced_id(cluster.control, SystemClock().now_ms()))


async def orphan(
    cluster: SegmentCluster, prefix: str = "segments/", topic_id: TopicId | None = None
) -> list[str]:
    """Objects of a segment without a row."""
    first = (await cluster.segments())[0]
    place = (topic_id or cluster.topic.id, PartitionIndex(0))
    base = segment_key_base(
        prefix,
        "orders",
        *place,
        first.base_offset,
        await new_id(cluster),
    )
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
    # Segments that are only started, or wait for their deletion, are known.
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
    "method", ["identity.next_claim", "segments.known", "segments.bar", "delete"]
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
    # A segment that is barred already counts as one whose deletion has begun.
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
    await claim_anew(small.control, blocks)
    await claim_anew(small.control, remote, StoreRole.SEGMENTS)
    cluster = await SegmentCluster.make(small, segments=0)
    cluster.converter = replace(cluster.converter, segment_store=remote)
    for _ in range(2):
        await cluster.write(6)
        await cluster.converter.convert(cluster.topic)
    stores = beside_blocks(remote)
    tier = RemoteTier(stores=stores, keys=cluster.converter.keys)
    first, second = await cluster.segments()
    await cluster.unchain(first.end_offset)
    base = segment_key_base(
        "segments/",
        "gone",
        *cluster.key,
        Offset(0),
        await new_id(cluster),
    )
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
    assert errors == dict.fromkeys(("segment deletion", "segment sweep"), MarkerMissingError)
    await remote.close()
    await small.close()
