"""Heavy requests work one at a time, and the lane rests for longer than they work."""

import asyncio

from stratalog.kafka.server.lane import Lane
from stratalog.testing.clock import ManualClock


async def test_the_lane_rests_for_twice_the_time_of_the_work() -> None:
    clock = ManualClock()
    lane = Lane(clock)
    log: list[str] = []

    async def work(name: str, seconds: float) -> None:
        turn = lane.turn()
        await turn.begin()
        log.append(name)
        await clock.sleep(seconds)
        await turn.end()
        await turn.end()

    tasks = [asyncio.create_task(work(name, 0.1)) for name in "ab"]
    for _ in range(3):
        await asyncio.sleep(0)
    assert log == ["a"]
    await clock.advance(0.1)
    await clock.advance(0.19)
    assert log == ["a"]
    await clock.advance(0.02)
    for _ in range(3):
        await asyncio.sleep(0)
    assert log == ["a", "b"]
    await clock.advance(1)
    await clock.advance(1)
    await asyncio.gather(*tasks)


async def test_others_work_while_a_request_waits_for_records() -> None:
    lane = Lane(ManualClock())
    waiting, other = lane.turn(), lane.turn()
    await waiting.begin()
    async with waiting.away():
        await asyncio.wait_for(other.begin(), 5)
        await other.end()
    await waiting.end()
    await asyncio.wait_for(other.begin(), 5)
    await other.end()
