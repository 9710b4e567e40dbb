import asyncio

import pytest
from tests.unit.pipeline.world import World, merge_of, sent

from stratalog.pipeline.kinds.merge_task import run_merge
from stratalog.pipeline.kinds.source_reader import Pace
from stratalog.pipeline.kinds.split_task import run_split
from stratalog.testing.clock import ManualClock


class CountingClock(ManualClock):
    """No task waits here. The clock counts the time that they would have waited."""

    async def sleep(self, seconds: float) -> None:
        await self.advance(seconds)


async def test_bytes_have_their_time_and_none_is_saved_up() -> None:
    clock = ManualClock()
    pace = Pace(1000, clock)
    await pace.wait_for(500)
    waiting = asyncio.create_task(pace.wait_for(2000))
    await asyncio.sleep(0)
    await clock.advance(0.4)
    assert not waiting.done()
    await clock.advance(0.2)
    await waiting
    await clock.advance(100)
    await pace.wait_for(1000)
    again = asyncio.create_task(pace.wait_for(1))
    await asyncio.sleep(0)
    await clock.advance(0.9)
    assert not again.done()
    await clock.advance(0.2)
    await again


async def test_without_a_limit_nobody_waits() -> None:
    pace = Pace(0, ManualClock())
    for _ in range(10):
        await pace.wait_for(1 << 40)


@pytest.mark.parametrize("kind", ["merge", "split"])
async def test_a_task_reads_no_faster_than_it_may(kind: str) -> None:
    world, clock = World(), CountingClock()
    for _ in range(4):
        await world.commit(sent(0, 10, 100), sent(1, 10, 100))
    size_bytes = sum(row.byte_size for rows in world.rows.values() for row in rows)
    place = world.place(clock=clock, task_bytes_per_second=size_bytes // 8)
    if kind == "merge":
        done = await run_merge(merge_of(world.segments()), place)
    else:
        done = await run_split(world.split_task().parts, place)
    # The first of four blocks is read at once, each of the others two seconds after the one before.
    assert clock.monotonic() == pytest.approx(6, abs=0.1)
    assert not done.failed
