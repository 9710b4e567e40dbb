import asyncio

import pytest

from stratalog.topic.wait_ends import WaitEnds

WAIT_S = 0.08


@pytest.fixture
def ends() -> WaitEnds:
    return WaitEnds()


def new_waiter() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("wait_s", [0.001, 0.08, 0.5, 1.0, 30.0, 3e6])
async def test_a_wait_ends_at_most_a_sixteenth_of_it_or_of_a_second_late_and_never_early(
    ends: WaitEnds, wait_s: float
) -> None:
    now_s = asyncio.get_running_loop().time()
    waiter = new_waiter()
    end_s = ends.add(waiter, wait_s)
    after_s = asyncio.get_running_loop().time()
    assert now_s + wait_s <= end_s <= after_s + wait_s + min(wait_s, 1.0) / 16
    ends.remove(waiter, end_s)


async def test_waits_that_began_at_about_the_same_time_end_together(ends: WaitEnds) -> None:
    waiters = [new_waiter() for _ in range(100)]
    assert len({ends.add(waiter, 500) for waiter in waiters}) <= 2


async def test_a_wait_ends_and_leaves_nothing_behind(ends: WaitEnds) -> None:
    waiter = new_waiter()
    end_s = ends.add(waiter, WAIT_S)
    await waiter
    assert asyncio.get_running_loop().time() >= end_s - 0.002, "uvloop counts in milliseconds"
    ends.remove(waiter, end_s)
    assert not ends._groups


async def test_the_last_wait_that_leaves_takes_the_timer_along(ends: WaitEnds) -> None:
    first, second = new_waiter(), new_waiter()
    end_s = ends.add(first, 500)
    assert ends.add(second, 500) == end_s
    timer = ends._groups[end_s].timer
    ends.remove(first, end_s)
    assert not timer.cancelled()
    ends.remove(second, end_s)
    assert timer.cancelled()


async def test_a_wait_that_ended_for_another_reason_is_left_alone(ends: WaitEnds) -> None:
    woken, other = new_waiter(), new_waiter()
    ends.add(woken, WAIT_S)
    woken.cancel()
    ends.add(other, WAIT_S)
    await other
    assert woken.cancelled()
