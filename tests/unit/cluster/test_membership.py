import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.support.ledgers import ControlWrapper
from tests.unit.block.rig import PATIENCE_S, TellingClock

from stratalog.cluster.membership import Membership
from stratalog.control.brokers.errors import AddressTakenError, BrokerIdTakenError
from stratalog.control.brokers.model import BrokerInfo
from stratalog.control.errors import ControlUnavailableError
from stratalog.control.open import open_control_plane
from stratalog.control.plane import ControlPlane
from stratalog.ids import BrokerId, PartitionIndex, TopicId, TopicPartition

LEASE_MS = 600_000
"""Longer than any test: leases run by the database's clock, which no test here moves."""


class FailingControl(ControlWrapper):
    """Fails the next calls of `renew_broker`, and tells when one was made."""

    def __init__(self, inner: ControlPlane) -> None:
        super().__init__(inner)
        self.failures: list[Exception] = []
        self.refreshed = asyncio.Event()

    async def brokers_renew(self, *args: Any, **more: Any) -> bool:
        if self.failures:
            raise self.failures.pop(0)
        return await self.inner.brokers.renew(*args, **more)

    async def brokers_all(self) -> list[BrokerInfo]:
        found = await self.inner.brokers.all()
        self.refreshed.set()
        return found

    async def until_refreshed(self) -> None:
        self.refreshed.clear()
        async with asyncio.timeout(PATIENCE_S):
            await self.refreshed.wait()


@pytest.fixture
async def control(tmp_path: Path) -> AsyncIterator[FailingControl]:
    plane = await open_control_plane(f"sqlite:{tmp_path / 'control.db'}")
    yield FailingControl(plane)
    await plane.close()


@pytest.fixture
def clock() -> TellingClock:
    return TellingClock()


async def join(
    control: FailingControl,
    clock: TellingClock,
    broker_id: int | None = None,
    *,
    port: int = 9092,
    incarnation: UUID | None = None,
    lease_ms: int = LEASE_MS,
    socket_name: str | None = "here:9092",
) -> Membership:
    return await Membership.join(
        control=control,
        clock=clock,
        broker_id=None if broker_id is None else BrokerId(broker_id),
        host="here",
        port=port,
        rack=None,
        incarnation=incarnation or uuid4(),
        lease_ms=lease_ms,
        socket_name=socket_name,
    )


async def renewed(control: FailingControl, clock: TellingClock) -> None:
    """Let the time until a renewal pass, and wait until it is over."""
    control.refreshed.clear()
    await clock.pass_nap()
    async with asyncio.timeout(PATIENCE_S):
        await control.refreshed.wait()


async def test_brokers_get_the_lowest_ids_and_see_each_other(
    control: FailingControl, clock: TellingClock
) -> None:
    first = await join(control, clock, port=1)
    second = await join(control, clock, port=2)
    assert (first.broker_id, second.broker_id) == (0, 1)
    assert [broker.port for broker in second.live()] == [1, 2]
    assert first.others() == []
    await first.refresh()
    assert [broker.port for broker in first.others()] == [2]
    for membership in (first, second):
        await membership.leave()
    assert await control.inner.brokers.all() == []


async def test_an_id_that_a_live_broker_has_is_refused(
    control: FailingControl, clock: TellingClock
) -> None:
    first = await join(control, clock, 5, port=1)
    with pytest.raises(BrokerIdTakenError):
        await join(control, clock, 5, port=2)
    await first.leave()
    second = await join(control, clock, 5, port=2)
    assert second.broker_id == 5
    await second.leave()


async def test_a_broker_that_was_killed_has_its_id_back_when_it_starts_again(
    control: FailingControl, clock: TellingClock
) -> None:
    killed = await join(control, clock, 5)
    again = await join(control, TellingClock(), 5)
    assert (again.broker_id, len(again.live())) == (5, 1)
    for one in (killed, again):
        await one.leave()
    assert await control.inner.brokers.all() == []


async def test_a_broker_waits_for_the_lease_of_a_dead_one_on_another_machine(
    control: FailingControl, clock: TellingClock, caplog: pytest.LogCaptureFixture
) -> None:
    killed = await join(control, TellingClock(), socket_name="elsewhere")
    starting = asyncio.create_task(join(control, clock))
    nap_s = await clock.next_nap()
    await control.inner.brokers.renew(killed.broker_id, killed.incarnation, lease_ms=0)
    await clock.advance(nap_s)
    started = await starting
    assert started.broker_id == killed.broker_id
    assert "Waiting for the other broker's lease to end" in caplog.text
    for one in (killed, started):
        await one.leave()


async def test_two_live_brokers_of_one_address_are_a_mistake_that_names_both(
    control: FailingControl, clock: TellingClock
) -> None:
    first = await join(control, TellingClock(), socket_name="elsewhere")
    starting = asyncio.create_task(join(control, clock))
    nap_s = await clock.next_nap()
    await control.inner.brokers.renew(first.broker_id, first.incarnation, lease_ms=90_000)
    await clock.advance(nap_s)
    with pytest.raises(AddressTakenError, match=f"broker 0 .*{first.incarnation}"):
        await starting
    assert [broker.broker_id for broker in await control.inner.brokers.all()] == [0]
    await first.leave()


async def test_the_lease_is_renewed_three_times_before_it_ends(
    control: FailingControl, clock: TellingClock
) -> None:
    membership = await join(control, clock)
    assert await clock.next_nap() == pytest.approx(LEASE_MS / 3 / 1000)
    await membership.leave()


async def test_a_broker_that_lost_its_id_registers_anew(
    control: FailingControl, clock: TellingClock
) -> None:
    membership = await join(control, clock, 3, port=1)
    await control.inner.brokers.remove(BrokerId(3), membership.live()[0].incarnation)
    usurper = await join(control, TellingClock(), 3, port=2)
    await renewed(control, clock)
    await clock.next_nap()
    assert membership.broker_id == 0
    assert {broker.broker_id: broker.port for broker in membership.live()} == {0: 1, 3: 2}
    for one in (membership, usurper):
        await one.leave()
    assert await control.inner.brokers.all() == []


@pytest.mark.parametrize("failure", [ControlUnavailableError("away"), ZeroDivisionError("ours")])
async def test_a_renewal_that_fails_is_not_the_last(
    control: FailingControl, clock: TellingClock, failure: Exception
) -> None:
    membership = await join(control, clock)
    control.failures.append(failure)
    await clock.pass_nap()
    other = await join(control, TellingClock(), port=2)
    await renewed(control, clock)
    await clock.next_nap()
    assert len(membership.live()) == 2
    for one in (membership, other):
        await one.leave()


async def test_leaving_without_a_control_plane_is_no_failure(tmp_path: Path) -> None:
    class Unreachable(FailingControl):
        async def brokers_remove(self, *args: Any) -> None:
            raise ControlUnavailableError("away")

    plane = await open_control_plane(f"sqlite:{tmp_path / 'control.db'}")
    membership = await join(Unreachable(plane), TellingClock())
    await membership.leave()
    assert [broker.broker_id for broker in await plane.brokers.all()] == [0], "its lease ends it"
    await plane.close()


async def test_a_broker_whose_lease_ran_out_counts_no_more(
    control: FailingControl, clock: TellingClock
) -> None:
    living = await join(control, clock, port=1)
    dead = await join(control, TellingClock(), port=2, lease_ms=1)
    await asyncio.sleep(0.01)
    await living.refresh()
    assert [broker.port for broker in living.live()] == [1]
    await dead.refresh()
    assert [broker.port for broker in dead.live()] == [1, 2], "oneself is always there"
    for one in (living, dead):
        await one.leave()


# Leaders.

PARTITIONS = [
    TopicPartition(TopicId(UUID(int=topic)), PartitionIndex(index))
    for topic in range(10)
    for index in range(60)
]


def leaders(membership: Membership) -> dict[TopicPartition, BrokerId]:
    return {one: membership.leader_of(one).broker_id for one in PARTITIONS}


async def test_all_brokers_name_the_same_leaders(
    control: FailingControl, clock: TellingClock
) -> None:
    members = [await join(control, TellingClock(), port=port) for port in range(1, 4)]
    for member in members:
        await member.refresh()
    assert leaders(members[0]) == leaders(members[1]) == leaders(members[2])
    for member in members:
        await member.leave()


async def test_leadership_is_spread_evenly(control: FailingControl, clock: TellingClock) -> None:
    members = [await join(control, TellingClock(), port=port) for port in range(1, 4)]
    counts = Counter(leaders(members[2]).values())
    assert sorted(counts) == [0, 1, 2]
    assert min(counts.values()) > 0.75 * len(PARTITIONS) / 3
    for member in members:
        await member.leave()


async def test_a_broker_that_comes_or_goes_moves_only_its_own_partitions(
    control: FailingControl, clock: TellingClock
) -> None:
    members = [await join(control, TellingClock(), port=port) for port in range(1, 4)]
    watching = members[0]
    await watching.refresh()
    before = leaders(watching)
    await members[2].leave()
    await watching.refresh()
    without = leaders(watching)
    assert {one for one in PARTITIONS if before[one] != without[one]} == {
        one for one in PARTITIONS if before[one] == 2
    }
    back = await join(control, TellingClock(), port=3)
    await watching.refresh()
    assert leaders(watching) == before
    for member in (members[0], members[1], back):
        await member.leave()
