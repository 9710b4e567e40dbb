"""The memory of requests that are worked on: first come, first served, and shared."""

import asyncio

import pytest

from stratalog.kafka.server.memory import Memory

KIB = 1 << 10
MIB = 1 << 20


async def started(*claims: asyncio.Task[int]) -> None:
    for _ in range(3):
        await asyncio.sleep(0)
    assert claims


async def test_claims_wait_until_there_is_room_and_are_served_in_their_order() -> None:
    memory = Memory(8 * MIB)
    assert await memory.take(7 * MIB) == 7 * MIB
    first = asyncio.create_task(memory.take(2 * MIB))
    second = asyncio.create_task(memory.take(1 * MIB))
    await started(first, second)
    assert memory.is_short
    assert not first.done()
    assert not second.done()
    memory.give(2 * MIB)
    assert await first == 2 * MIB
    memory.give(1 * MIB)
    assert await second == 1 * MIB
    assert memory.used_bytes == 7 * MIB


async def test_small_claims_are_served_beside_large_ones_that_wait() -> None:
    memory = Memory(8 * MIB)
    await memory.take(7 * MIB)
    large = asyncio.create_task(memory.take(1 * MIB))
    await started(large)
    assert await asyncio.wait_for(memory.take(64 * KIB), 5) == 64 * KIB
    assert not large.done()
    large.cancel()
    await asyncio.gather(large, return_exceptions=True)
    assert not memory.is_short


async def test_claims_that_can_do_with_less_get_smaller_shares_as_the_memory_fills() -> None:
    memory = Memory(256 * MIB)
    given = [await memory.take(64 * MIB, least_bytes=MIB) for _ in range(50)]
    assert given == sorted(given, reverse=True)
    assert given[0] == 14 * MIB
    assert given[-1] == MIB
    assert memory.used_bytes <= 224 * MIB
    assert await memory.take(5 * KIB, least_bytes=MIB) == 5 * KIB


async def test_a_claim_larger_than_the_memory_is_served_when_it_is_alone() -> None:
    memory = Memory(MIB)
    await memory.take(KIB)
    large = asyncio.create_task(memory.take(2 * MIB))
    await started(large)
    assert not large.done()
    memory.give(KIB)
    assert await large == 2 * MIB
    assert memory.is_overdrawn


@pytest.mark.parametrize("is_served_first", [True, False])
async def test_a_claim_that_is_cancelled_holds_nothing(is_served_first: bool) -> None:
    memory = Memory(MIB)
    await memory.take(MIB - KIB)
    waiting = asyncio.create_task(memory.take(512 * KIB))
    await started(waiting)
    if is_served_first:
        memory.give(MIB - KIB)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    if not is_served_first:
        memory.give(MIB - KIB)
    assert memory.used_bytes == 0
    assert memory.take_at_once(800 * KIB)
