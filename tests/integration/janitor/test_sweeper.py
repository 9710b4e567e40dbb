"""The sweeper on a real control plane and store: the objects that it deletes and keeps, and where
it stops."""

from typing import cast
from uuid import UUID

import pytest
from tests.integration.janitor.crashing import CrashError, Crashing
from tests.integration.small_cluster import ShiftedClock, SmallCluster
from tests.support.ledgers import ActingControl, ControlWrapper, DyingControl

from stratalog.block.keys import block_key
from stratalog.checks.fsck import run_fsck
from stratalog.control.objects.errors import BarredObjectError
from stratalog.control.plane import ControlPlane
from stratalog.control.scans.model import SinkOutcome
from stratalog.control.topics.model import Topic
from stratalog.ids import ObjectId, Offset, PartitionIndex, TopicPartition, uuid7
from stratalog.janitor.sweeper import LEASE_MARGIN_MS, Sweeper
from stratalog.objects.store import ObjectStore
from stratalog.opening.errors import (
    ControlPlaneBehindError,
    MarkerMissingError,
    WrongStoreError,
)
from stratalog.opening.marker import MARKER_KEY
from stratalog.settings import HOUR_MS


def sweeper_of(
    cluster: SmallCluster,
    *,
    control: ControlPlane | None = None,
    store: object = None,
    clock: ShiftedClock | None = None,
) -> Sweeper:
    return Sweeper(
        control or cluster.control,
        cast(ObjectStore, store or cluster.store),
        clock=clock or cluster.later,
        orphan_age_ms=HOUR_MS,
    )


async def test_the_sweeper_takes_old_orphans_and_nothing_else(
    cluster: SmallCluster, topic: Topic
) -> None:
    kept = [await cluster.write(topic, {0: [1], 1: [2]}) for _ in range(3)]
    orphan = await cluster.upload(topic, {0: [1]})
    kept.append(await cluster.write(topic, {0: [1]}))
    await cluster.store.put("blocks/readme.txt", [b"not ours"])
    await cluster.store.put(f"elsewhere/{orphan.commit.key}", [b"not below our prefix"])
    swept = await sweeper_of(cluster).sweep()
    assert (swept.deleted, swept.foreign) == (1, 1)
    assert await cluster.keys() == [*(block.commit.key for block in kept), "blocks/readme.txt"]
    assert await cluster.store.head(f"elsewhere/{orphan.commit.key}")
    report = await run_fsck(cluster.control, cluster.store, deep=True, clock=cluster.later)
    assert report.ok


async def test_a_marked_object_is_left_to_deletion(cluster: SmallCluster, topic: Topic) -> None:
    block = await cluster.write(topic, {0: [1]})
    partition = TopicPartition(topic.id, PartitionIndex(0))
    await cluster.control.log.delete_records({partition: Offset(-1)})
    assert (await sweeper_of(cluster).sweep()).deleted == 0
    assert await cluster.keys() == [block.commit.key]


async def test_an_orphan_is_old_by_its_name_and_by_the_stores_time(
    cluster: SmallCluster, topic: Topic
) -> None:
    now_ms = ShiftedClock().now_ms()
    old_name = await cluster.upload(topic, {0: [1]}, created_ms=now_ms - 5 * HOUR_MS)
    new_name = await cluster.upload(topic, {0: [1]}, created_ms=now_ms + 5 * HOUR_MS)
    # The store took both just now, so that the first is young by its time alone.
    assert (await sweeper_of(cluster, clock=ShiftedClock()).sweep()).deleted == 0
    assert (await sweeper_of(cluster, clock=cluster.later).sweep()).deleted == 1
    assert await cluster.keys() == [new_name.commit.key]
    assert old_name.commit.key not in await cluster.keys()


@pytest.mark.parametrize(("ahead_ms", "deleted"), [(-1000, 0), (1000, 1)])
async def test_the_age_of_an_orphan_has_one_bound(
    cluster: SmallCluster, topic: Topic, ahead_ms: int, deleted: int
) -> None:
    await cluster.upload(topic, {0: [1]})
    clock = ShiftedClock(HOUR_MS + ahead_ms)
    assert (await sweeper_of(cluster, clock=clock).sweep()).deleted == deleted


async def lease_from(cluster: SmallCluster, started_ms: int) -> UUID:
    """A live lease that began at this time."""
    lease = await cluster.control.scans.take_lease("a writer", duration_ms=HOUR_MS)
    cluster.damage(
        "UPDATE leases SET started_ms = ? WHERE lease_id = ?", started_ms, str(lease.lease_id)
    )
    return lease.lease_id


@pytest.mark.parametrize(("late_ms", "deleted"), [(-1, 1), (0, 0)])
async def test_what_was_created_since_a_lease_began_is_left_alone_until_it_ends(
    cluster: SmallCluster, topic: Topic, late_ms: int, deleted: int
) -> None:
    orphan = await cluster.upload(topic, {0: [1]})
    created_ms = (await cluster.store.head(orphan.commit.key)).modified_ms
    # The store's time is the later one, and may stay behind the database's by the margin.
    lease_id = await lease_from(cluster, created_ms - late_ms + LEASE_MARGIN_MS)
    sweeper = sweeper_of(cluster)
    assert (await sweeper.sweep()).deleted == deleted
    await cluster.control.scans.release_lease(lease_id)
    assert (await sweeper.sweep()).deleted == 1 - deleted
    assert await cluster.keys() == []


async def test_a_name_from_before_the_lease_does_not_give_its_upload_away(
    cluster: SmallCluster, topic: Topic
) -> None:
    """An executor whose clock is hours behind, and another one whose clock is ahead."""
    now_ms = ShiftedClock().now_ms()
    for hours in (-5, 0.5):
        await cluster.upload(topic, {0: [1]}, created_ms=int(now_ms + hours * HOUR_MS))
    lease_id = await lease_from(cluster, now_ms)
    assert (await sweeper_of(cluster).sweep()).deleted == 0
    await cluster.control.scans.release_lease(lease_id)
    assert (await sweeper_of(cluster).sweep()).deleted == 2


async def test_a_lease_does_not_make_the_sweeper_bolder(
    cluster: SmallCluster, topic: Topic
) -> None:
    await cluster.upload(topic, {0: [1]})
    await lease_from(cluster, ShiftedClock().now_ms() + 9 * HOUR_MS)
    assert (await sweeper_of(cluster, clock=ShiftedClock()).sweep()).deleted == 0


async def test_what_a_lease_kept_is_found_by_the_sweeps_after_it(
    cluster: SmallCluster, topic: Topic
) -> None:
    """Incomplete sweeps find them, too, however much time has passed."""
    clock = ShiftedClock(2 * HOUR_MS)
    sweeper = sweeper_of(cluster, clock=clock)
    lease_id = await lease_from(cluster, ShiftedClock().now_ms())
    await cluster.upload(topic, {0: [1]})
    for _ in range(3):
        assert (await sweeper.sweep()).deleted == 0
        clock.ahead_ms += 3 * HOUR_MS
    await cluster.control.scans.release_lease(lease_id)
    assert (await sweeper.sweep()).deleted == 1


async def test_a_writer_under_a_lease_commits_late_and_without_one_in_vain(
    cluster: SmallCluster, topic: Topic
) -> None:
    lease = await cluster.control.scans.take_lease("a writer", duration_ms=HOUR_MS)
    written = await cluster.upload(topic, {0: [3]})
    await sweeper_of(cluster).sweep()
    assert (
        await cluster.control.scans.commit_sink("s", 0, [written.commit]) is SinkOutcome.COMMITTED
    )
    late = await cluster.upload(topic, {0: [3]})
    await cluster.control.scans.release_lease(lease.lease_id)
    await sweeper_of(cluster).sweep()
    with pytest.raises(BarredObjectError):
        await cluster.control.scans.commit_sink("s", 1, [late.commit])
    assert await cluster.keys() == [written.commit.key]
    assert (await run_fsck(cluster.control, cluster.store, deep=True, clock=cluster.later)).ok


async def test_a_commit_that_comes_after_the_sweep_fails_for_ever(
    cluster: SmallCluster, topic: Topic
) -> None:
    late = await cluster.upload(topic, {0: [1]})
    await sweeper_of(cluster).sweep()
    for _ in range(2):
        with pytest.raises(BarredObjectError):
            await cluster.commit(late)
    assert (await run_fsck(cluster.control, cluster.store, deep=True, clock=cluster.later)).ok


async def test_a_commit_that_comes_before_the_bar_keeps_its_object(
    cluster: SmallCluster, topic: Topic
) -> None:
    late = await cluster.upload(topic, {0: [1]})

    control = ActingControl(cluster.control, "objects.bar", lambda: cluster.commit(late))
    assert (await sweeper_of(cluster, control=control).sweep()).deleted == 0
    assert await cluster.keys() == [late.commit.key]
    assert (await run_fsck(cluster.control, cluster.store, deep=True, clock=cluster.later)).ok


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    "method", ["identity.next_claim", "scans.oldest_lease_ms", "objects.all", "objects.bar"]
)
async def test_a_crash_of_the_sweeper_at_the_control_plane_is_made_good(
    cluster: SmallCluster, topic: Topic, method: str, after: bool
) -> None:
    kept = await cluster.write(topic, {0: [1]})
    late = await cluster.upload(topic, {0: [1]})
    control = DyingControl(cluster.control, method, CrashError, after=after)
    with pytest.raises(CrashError):
        await sweeper_of(cluster, control=control).sweep()
    assert await cluster.keys() == [kept.commit.key, late.commit.key]
    if method == "objects.bar" and after:
        with pytest.raises(BarredObjectError):
            await cluster.commit(late)
    await sweeper_of(cluster).sweep()
    assert await cluster.keys() == [kept.commit.key]


@pytest.mark.parametrize("after", [False, True])
async def test_a_crash_of_the_sweeper_at_the_store_is_made_good(
    cluster: SmallCluster, topic: Topic, after: bool
) -> None:
    late = await cluster.upload(topic, {0: [1]})
    store = Crashing(cluster.store, "delete", after=after)
    sweeper = sweeper_of(cluster, store=store)
    for _ in range(2):
        if await cluster.keys():
            with pytest.raises(CrashError):
                await sweeper.sweep()
        with pytest.raises(BarredObjectError):
            await cluster.commit(late)
    await sweeper_of(cluster).sweep()
    assert await cluster.keys() == []


async def test_a_put_that_arrives_after_its_bar_is_taken_by_the_next_complete_sweep(
    cluster: SmallCluster, topic: Topic
) -> None:
    late = await cluster.upload(topic, {0: [1]})
    await sweeper_of(cluster).sweep()
    await cluster.store.put(late.commit.key, late.parts)
    assert (await sweeper_of(cluster).sweep()).deleted == 1


async def test_a_sweep_begins_where_the_last_one_could_have_missed_something(
    cluster: SmallCluster, topic: Topic
) -> None:
    clock = ShiftedClock(2 * HOUR_MS)
    sweeper = sweeper_of(cluster, clock=clock)
    now_ms = ShiftedClock().now_ms()
    for age_hours in (9, 3):
        block = await cluster.upload(topic, {0: [1]}, created_ms=now_ms - age_hours * HOUR_MS)
        await cluster.commit(block)
    assert (await sweeper.sweep()).examined == 2
    clock.ahead_ms += 2 * HOUR_MS
    orphan = await cluster.upload(topic, {0: [1]})
    # It now begins one orphan age before the last horizon, at this very time.
    swept = await sweeper.sweep()
    assert swept.examined == 1
    assert swept.deleted == 1
    assert orphan.commit.key not in await cluster.keys()


async def test_every_so_often_a_sweep_is_complete(cluster: SmallCluster, topic: Topic) -> None:
    old_ms = ShiftedClock().now_ms() - 100 * HOUR_MS
    await cluster.commit(await cluster.upload(topic, {0: [1]}, created_ms=old_ms))
    sweeper = sweeper_of(cluster)
    examined = [(await sweeper.sweep()).examined for _ in range(61)]
    assert examined == [1, *[0] * 59, 1]


async def test_many_orphans_among_many_blocks_are_taken_page_by_page(
    cluster: SmallCluster, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = [await cluster.upload(topic, {0: [1]}) for _ in range(40)]
    kept = [block for place, block in enumerate(blocks) if place % 3]
    await cluster.control.log.commit_blocks([block.commit for block in kept])
    monkeypatch.setattr("stratalog.janitor.sweeper._PAGE", 4)
    barred: list[int] = []

    class Counting(ControlWrapper):
        async def objects_bar(self, objects: dict[ObjectId, str]) -> set[ObjectId]:
            barred.append(len(objects))
            return await cluster.control.objects.bar(objects)

    control = Counting(cluster.control)
    swept = await sweeper_of(cluster, control=control).sweep()
    assert (swept.examined, swept.deleted) == (40, 14)
    assert barred == [4, 4, 4, 2]
    assert await cluster.keys() == sorted(block.commit.key for block in kept)


async def test_the_sweeper_stops_before_a_store_that_is_not_its_own(
    cluster: SmallCluster, topic: Topic
) -> None:
    orphan = await cluster.upload(topic, {0: [1]})
    cluster.damage("UPDATE cluster SET cluster_id = ?", str(UUID(int=5)))
    with pytest.raises(WrongStoreError):
        await sweeper_of(cluster).sweep()
    assert await cluster.keys() == [orphan.commit.key]


async def test_the_sweeper_of_a_restored_control_plane_takes_nothing(
    cluster: SmallCluster, topic: Topic
) -> None:
    newer = await cluster.write(topic, {0: [1]})
    await sweeper_of(cluster).sweep()
    # A backup from before the write and the sweep knows neither.
    cluster.damage("UPDATE cluster SET generation = 1")
    cluster.damage("DELETE FROM objects")
    with pytest.raises(ControlPlaneBehindError):
        await sweeper_of(cluster).sweep()
    assert await cluster.keys() == [newer.commit.key]


async def test_a_control_plane_restored_during_a_sweep_takes_nothing(
    cluster: SmallCluster, topic: Topic
) -> None:
    newer = await cluster.upload(topic, {0: [1]})

    async def restore() -> None:
        cluster.damage("UPDATE cluster SET generation = 1")

    restored = ActingControl(cluster.control, "objects.bar", restore)
    with pytest.raises(ControlPlaneBehindError):
        await sweeper_of(cluster, control=restored).sweep()
    assert await cluster.keys() == [newer.commit.key]


async def test_a_store_without_its_marker_is_not_swept(cluster: SmallCluster, topic: Topic) -> None:
    orphan = await cluster.upload(topic, {0: [1]})
    await cluster.store.delete([MARKER_KEY])
    with pytest.raises(MarkerMissingError):
        await sweeper_of(cluster).sweep()
    assert await cluster.keys() == [orphan.commit.key]


def test_an_id_made_for_a_place_in_time_sorts_before_all_of_that_time() -> None:
    start = ObjectId(uuid7(1_700_000_000_000, lambda size: bytes(size)))
    real = ObjectId(uuid7(1_700_000_000_000))
    assert start < real
    assert block_key(start) < block_key(real)
