"""Groups whose members and coordinator died together."""

import asyncio

import pytest
from tests.unit.groups.rig import GROUP, LEASE_MS, Node

from stratalog.clock import Clock
from stratalog.control.plane import ControlPlane
from stratalog.control.sql.database import Connection
from stratalog.groups.abandoned import AbandonedGroups
from stratalog.testing.clock import ManualClock


def search_of(node: Node, clock: Clock, *, lease_ms: int = LEASE_MS) -> AbandonedGroups:
    return AbandonedGroups(
        control=node.control,
        coordinator=node.coordinator,
        membership=node.membership,
        clock=clock,
        lease_ms=lease_ms,
    )


async def state_of(plane: ControlPlane) -> str:
    [summary] = await plane.groups.all()
    return summary.state_name


async def expire_members(clock: ManualClock, plane: ControlPlane) -> None:
    for _ in range(20):
        await clock.advance(1)
    # The save takes as long as the database's thread and the disk want.
    for _ in range(10_000):
        if await state_of(plane) == "Empty":
            return
        await asyncio.sleep(0.001)
    pytest.fail("the members were never removed")


async def kill(node: Node, plane: ControlPlane) -> None:
    """End a broker's lease. Its memory does not matter any more."""

    async def work(connection: Connection) -> int:
        return await connection.execute(
            "UPDATE brokers SET expires_ms = 0 WHERE broker_id = $1", node.membership.broker_id
        )

    assert await plane.groups._database.write(work) == 1


async def test_members_that_died_with_their_coordinator_leave_the_group_all_the_same(
    node: Node, other: Node, plane: ControlPlane, clock: ManualClock
) -> None:
    await node.stable()
    await kill(node, plane)
    await other.membership.refresh()
    assert await state_of(plane) == "Stable"
    search = search_of(other, clock)
    assert await search.look() == 1
    assert await search.look() == 0, "it is loaded"
    await expire_members(clock, plane)
    assert other.control.saved[-1].empty_since_ms is None
    assert await search.look() == 0


async def test_members_that_come_back_find_their_generation(
    node: Node, other: Node, plane: ControlPlane, clock: ManualClock
) -> None:
    joined = await node.stable()
    await kill(node, plane)
    await other.membership.refresh()
    assert await search_of(other, clock).look() == 1
    await other.beat(joined)
    assert await other.sync(joined) == b"mine"


async def test_groups_of_a_live_coordinator_are_left_alone(
    node: Node, other: Node, plane: ControlPlane, clock: ManualClock
) -> None:
    await node.stable()
    for each in (node, other):
        assert await search_of(each, clock).look() == 0
    assert await state_of(plane) == "Stable"


async def test_a_broker_whose_lease_had_ended_loads_its_groups_again(
    node: Node, plane: ControlPlane, clock: ManualClock
) -> None:
    await node.stable()
    node.membership.lease_number += 1
    assert await search_of(node, clock).look() == 1
    await expire_members(clock, plane)


async def test_a_group_that_cannot_be_loaded_keeps_no_other_from_it(
    node: Node, other: Node, plane: ControlPlane, clock: ManualClock
) -> None:
    for group_id in (GROUP, "a-damaged-one"):
        await node.join(group_id=group_id)
    await kill(node, plane)
    await other.membership.refresh()

    async def damage(connection: Connection) -> None:
        await connection.execute(
            "UPDATE groups SET state = $1 WHERE group_id = 'a-damaged-one'", b"{"
        )

    await plane.groups._database.write(damage)
    assert await search_of(other, clock).look() == 1
    assert other.coordinator.has(GROUP)


async def test_the_search_goes_on_by_itself(
    node: Node, other: Node, plane: ControlPlane, clock: ManualClock
) -> None:
    await node.stable()
    await kill(node, plane)
    await other.membership.refresh()
    search = search_of(other, clock, lease_ms=1000)
    search.start()
    await clock.advance(5)
    assert not other.coordinator.has(GROUP)
    await expire_members(clock, plane)
    await search.stop()
