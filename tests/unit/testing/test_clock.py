import asyncio

from stratalog.testing import ManualClock


async def test_time_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(now_ms=5_000)
    assert (clock.now_ms(), clock.monotonic()) == (5_000, 0.0)
    await clock.advance(1.5)
    assert (clock.now_ms(), clock.monotonic()) == (6_500, 1.5)


async def test_a_sleeper_wakes_when_its_time_has_come_and_not_before() -> None:
    clock = ManualClock()
    sleeping = asyncio.ensure_future(clock.sleep(1))
    await asyncio.sleep(0)
    await clock.advance(0.999)
    assert not sleeping.done()
    await clock.advance(0.001)
    await asyncio.sleep(0)
    assert sleeping.done()


async def test_sleepers_wake_in_the_order_of_their_times() -> None:
    clock = ManualClock()
    woken: list[tuple[str, float]] = []

    async def sleep(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic()))

    sleepers = [asyncio.ensure_future(sleep(*one)) for one in (("b", 2), ("a", 1), ("c", 2))]
    await asyncio.sleep(0)
    await clock.advance(10)
    await asyncio.gather(*sleepers)
    assert woken == [("a", 1), ("b", 2), ("c", 2)]


async def test_a_sleeper_may_sleep_again_within_one_advance() -> None:
    clock = ManualClock()
    naps: list[float] = []

    async def doze() -> None:
        while True:
            await clock.sleep(1)
            naps.append(clock.monotonic())

    dozing = asyncio.ensure_future(doze())
    await asyncio.sleep(0)
    await clock.advance(3)
    dozing.cancel()
    assert naps == [1, 2, 3]
