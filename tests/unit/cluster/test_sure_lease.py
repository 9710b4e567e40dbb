"""How long a broker can be sure that no other takes it for dead."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.support.ledgers import ControlWrapper

from stratalog.cluster.membership import Membership
from stratalog.control.errors import ControlUnavailableError
from stratalog.control.open import open_control_plane
from stratalog.control.plane import ControlPlane
from stratalog.ids import BrokerId
from stratalog.testing.clock import ManualClock

LEASE_S = 600
NAP_S = LEASE_S / 3


class SlowControl(ControlWrapper):
    """Renewals and registrations take their time on the way there."""

    def __init__(self, inner: ControlPlane, clock: ManualClock) -> None:
        super().__init__(inner)
        self.clock = clock
        self.takes_s = 0.0
        self.is_away = False

    async def brokers_register(self, *args: Any, **more: Any) -> Any:
        await self.clock.advance(self.takes_s)
        return await self.inner.brokers.register(*args, **more)

    async def brokers_renew(self, *args: Any, **more: Any) -> bool:
        if self.is_away:
            raise ControlUnavailableError("away")
        await self.clock.advance(self.takes_s)
        return await self.inner.brokers.renew(*args, **more)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def control(tmp_path: Path, clock: ManualClock) -> AsyncIterator[SlowControl]:
    plane = await open_control_plane(f"sqlite:{tmp_path / 'control.db'}")
    yield SlowControl(plane, clock)
    await plane.close()


async def join(control: SlowControl, clock: ManualClock) -> Membership:
    membership = await Membership.join(
        control=control,
        clock=clock,
        broker_id=None,
        host="here",
        port=1,
        rack=None,
        incarnation=uuid4(),
        lease_ms=LEASE_S * 1000,
    )
    # Renewed by the tests, not by itself.
    assert membership._renewer is not None
    membership._renewer.cancel()
    return membership


def state(membership: Membership) -> tuple[bool, int]:
    return membership.is_surely_alive, membership.lease_number


async def test_the_lease_counts_from_when_it_was_asked_for(
    control: SlowControl, clock: ManualClock
) -> None:
    control.takes_s = 100
    membership = await join(control, clock)
    await clock.advance(LEASE_S - 100 - 0.001)
    assert state(membership) == (True, 1)
    await clock.advance(0.001)
    assert state(membership) == (False, 1)


async def test_a_renewal_in_time_goes_on_with_the_same_lease(
    control: SlowControl, clock: ManualClock
) -> None:
    membership = await join(control, clock)
    await clock.advance(LEASE_S - 10)
    control.takes_s = 9
    await membership._renew()
    assert state(membership) == (True, 1)
    await clock.advance(LEASE_S - 9)
    assert state(membership) == (False, 1)


@pytest.mark.parametrize("late_s", [0, 50])
async def test_a_renewal_that_comes_too_late_is_another_lease(
    control: SlowControl, clock: ManualClock, late_s: float
) -> None:
    membership = await join(control, clock)
    await clock.advance(LEASE_S - 10)
    control.takes_s = 10 + late_s
    await membership._renew()
    assert state(membership) == (True, 2)


async def test_a_renewal_that_fails_changes_nothing(
    control: SlowControl, clock: ManualClock
) -> None:
    membership = await join(control, clock)
    control.is_away = True
    with pytest.raises(ControlUnavailableError):
        await membership._renew()
    assert state(membership) == (True, 1)
    await clock.advance(LEASE_S)
    assert state(membership) == (False, 1)


async def test_a_broker_that_lost_its_id_has_another_lease(
    control: SlowControl, clock: ManualClock
) -> None:
    membership = await join(control, clock)
    await control.inner.brokers.remove(BrokerId(0), membership.incarnation)
    await membership._renew()
    assert state(membership) == (True, 2)


async def test_a_broker_that_leaves_is_not_sure_any_more(
    control: SlowControl, clock: ManualClock
) -> None:
    membership = await join(control, clock)
    await membership.leave()
    assert state(membership) == (False, 1)


async def test_groups_are_spread_over_the_brokers_that_stay(
    control: SlowControl, clock: ManualClock
) -> None:
    membership = await join(control, clock)
    await control.inner.brokers.register(
        None, host="there", port=2, rack=None, incarnation=uuid4(), lease_ms=LEASE_S * 1000
    )
    await membership.refresh()
    groups = [f"group-{number}" for number in range(100)]
    chosen = [membership.coordinator_of(group).broker_id for group in groups]
    assert 25 < sum(chosen) < 75
    await membership.leave()
    assert {membership.coordinator_of(group).broker_id for group in groups} == {1}
