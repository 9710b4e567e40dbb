"""Objects at the end of their lives, and the leases that prolong them."""

import asyncio
import threading
from uuid import uuid4

import pytest
from tests.contract.control.building import batch, block, change, held_up, part

from stratalog.control.log.model import BlockToCommit
from stratalog.control.objects.errors import BarredObjectError
from stratalog.control.objects.model import ObjectKind
from stratalog.control.plane import ControlPlane
from stratalog.control.scans.errors import LeaseExpiredError
from stratalog.control.sql.database import Database
from stratalog.control.topics.model import Topic
from stratalog.ids import NO_OFFSET, ObjectId


async def dead_block(plane: ControlPlane, topic: Topic) -> BlockToCommit:
    """A block that was committed, and then lost its rows."""
    made = block(batch(part(topic)))
    await plane.log.commit_blocks([made])
    await plane.log.delete_records({part(topic): NO_OFFSET})
    return made


async def marked(plane: ControlPlane, grace_ms: int = 0, limit: int = 10) -> list[ObjectId]:
    found = await plane.objects.marked(grace_ms=grace_ms, limit=limit)
    return [each.object_id for each in found]


async def test_a_marked_object_waits_for_its_grace_to_end(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    made = await dead_block(plane, topic)
    assert await marked(plane, grace_ms=60_000) == []
    await change(database, "UPDATE objects SET marked_ms = marked_ms - 70000")
    assert await marked(plane, grace_ms=60_000) == [made.object_id]


async def test_marked_objects_come_oldest_first_and_no_more_than_asked(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    made = [await dead_block(plane, topic) for _ in range(3)]
    await change(
        database,
        "UPDATE objects SET marked_ms = marked_ms - 1000 WHERE object_id = $1",
        made[2].object_id,
    )
    assert await marked(plane, limit=2) == [made[2].object_id, made[0].object_id]
    page = await plane.objects.marked(grace_ms=0, limit=2)
    rest = await plane.objects.marked(grace_ms=0, limit=2, after=page[-1])
    assert [each.object_id for each in rest] == [made[1].object_id]
    assert await plane.objects.marked(grace_ms=0, limit=2, after=rest[-1]) == []


async def test_forgotten_objects_are_gone_and_live_ones_stay(
    plane: ControlPlane, topic: Topic
) -> None:
    dead = await dead_block(plane, topic)
    live = block(batch(part(topic)))
    await plane.log.commit_blocks([live])
    await plane.objects.forget([dead.object_id, live.object_id, ObjectId(uuid4())])
    assert [each.object_id for each in await plane.objects.all(limit=10)] == [live.object_id]
    assert await marked(plane) == []


async def test_objects_are_listed_in_pages_without_tombstones(
    plane: ControlPlane, topic: Topic
) -> None:
    made = [block(batch(part(topic), size=42)) for _ in range(3)]
    for each in made:
        await plane.log.commit_blocks([each])
    barred = block()
    await plane.objects.bar({barred.object_id: barred.key})
    made.sort(key=lambda each: each.object_id)
    first = await plane.objects.all(limit=2)
    rest = await plane.objects.all(after=first[-1].object_id, limit=10)
    assert [each.object_id for each in first + rest] == [each.object_id for each in made]
    assert (first[0].key, first[0].size_bytes) == (made[0].key, 42)
    assert (first[0].kind, first[0].marked_ms) == (ObjectKind.BLOCK, None)


async def test_sizes_are_told_of_objects_that_are_in_the_store(
    plane: ControlPlane, topic: Topic
) -> None:
    dead, live = await dead_block(plane, topic), block(batch(part(topic), size=42))
    forgotten, barred = await dead_block(plane, topic), block()
    await plane.log.commit_blocks([live])
    await plane.objects.forget([forgotten.object_id])
    await plane.objects.bar({barred.object_id: barred.key})
    wanted = [each.object_id for each in (dead, live, forgotten, barred)]
    assert await plane.objects.sizes([*wanted, ObjectId(uuid4())]) == {
        dead.object_id: dead.size_bytes,
        live.object_id: 42,
    }
    assert await plane.objects.sizes([]) == {}


async def test_only_objects_without_a_commit_are_barred(plane: ControlPlane, topic: Topic) -> None:
    dead = await dead_block(plane, topic)
    live, lost = block(batch(part(topic))), block(batch(part(topic)))
    await plane.log.commit_blocks([live])
    wanted = {each.object_id: each.key for each in (dead, live, lost)}
    assert await plane.objects.bar(wanted) == {lost.object_id}
    assert await plane.objects.bar(wanted) == {lost.object_id}
    assert await plane.objects.bar({}) == set()
    with pytest.raises(BarredObjectError):
        await plane.log.commit_blocks([lost])


async def test_an_object_that_came_back_after_its_deletion_may_be_deleted_again(
    plane: ControlPlane, topic: Topic
) -> None:
    dead = await dead_block(plane, topic)
    await plane.objects.forget([dead.object_id])
    assert await plane.objects.bar({dead.object_id: dead.key}) == {dead.object_id}


async def test_a_lease_protects_what_was_marked_after_it_began(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    before = await dead_block(plane, topic)
    await change(database, "UPDATE objects SET marked_ms = marked_ms - 10")
    lease = await plane.scans.take_lease("scan", duration_ms=60_000)
    after = await dead_block(plane, topic)
    assert await marked(plane) == [before.object_id]
    await plane.scans.release_lease(lease.lease_id)
    assert await marked(plane) == [before.object_id, after.object_id]


async def test_a_lease_protects_what_was_marked_after_the_clock_was_set_back(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    lease = await plane.scans.take_lease("scan", duration_ms=60_000)
    await change(database, "UPDATE leases SET started_ms = started_ms + 5000")
    made = await dead_block(plane, topic)
    assert await plane.objects.marked(grace_ms=-60_000, limit=100) == []
    await plane.scans.release_lease(lease.lease_id)
    [dead] = await plane.objects.marked(grace_ms=-60_000, limit=100)
    assert dead.object_id == made.object_id


async def test_the_oldest_live_lease_counts_and_expired_ones_do_not(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    old = await plane.scans.take_lease("old", duration_ms=60_000)
    made = await dead_block(plane, topic)
    await plane.scans.take_lease("young", duration_ms=60_000)
    await change(database, "UPDATE objects SET marked_ms = marked_ms - 5")
    await change(database, "UPDATE leases SET started_ms = started_ms - 10 WHERE holder = 'old'")
    assert await marked(plane) == []
    await change(database, "UPDATE leases SET expires_ms = 0 WHERE lease_id = $1", old.lease_id)
    assert await marked(plane) == [made.object_id]


async def test_a_lease_is_renewed_until_it_has_ended(
    plane: ControlPlane, database: Database
) -> None:
    lease = await plane.scans.take_lease("scan", duration_ms=60_000)
    assert lease.expires_ms == lease.started_ms + 60_000
    renewed = await plane.scans.renew_lease(lease.lease_id, duration_ms=600_000)
    assert renewed.started_ms == lease.started_ms
    assert renewed.expires_ms > lease.expires_ms
    await change(database, "UPDATE leases SET expires_ms = 0")
    with pytest.raises(LeaseExpiredError):
        await plane.scans.renew_lease(lease.lease_id, duration_ms=60_000)
    with pytest.raises(LeaseExpiredError):
        await plane.scans.renew_lease(uuid4(), duration_ms=60_000)
    await plane.scans.release_lease(lease.lease_id)


async def test_a_lease_waits_for_a_marking_under_way(
    plane: ControlPlane, database: Database
) -> None:
    marking, finish = threading.Event(), threading.Event()

    async def mark() -> None:
        async def work(connection: object) -> None:
            await connection.lock("leases", shared=True)  # type: ignore[attr-defined]
            marking.set()
            await held_up(finish)

        await database.write(work)

    marker = asyncio.create_task(mark())
    await held_up(marking)
    taking = asyncio.create_task(plane.scans.take_lease("scan", duration_ms=60_000))
    done, _ = await asyncio.wait([taking], timeout=0.1)
    assert not done
    finish.set()
    await marker
    assert (await taking).holder == "scan"
