import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.objects.streams import ended, gathered, settled


async def stream(parts: list[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


@given(st.lists(st.binary(max_size=20), max_size=10), st.integers(1, 25))
async def test_runs_have_one_size_and_the_same_bytes(parts: list[bytes], run_bytes: int) -> None:
    runs = [b"".join(run) async for run in gathered(stream(parts), run_bytes)]
    assert b"".join(runs) == b"".join(parts)
    assert all(len(run) == run_bytes for run in runs[:-1])
    assert all(0 < len(run) <= run_bytes for run in runs[-1:])


async def test_a_part_that_fits_is_handed_on_without_a_copy() -> None:
    part = bytes(10)
    runs = [run async for run in gathered(stream([part]), 10)]
    assert isinstance(runs[0][0], memoryview)
    assert runs[0][0].obj is part


async def test_settled_work_goes_on_when_its_caller_is_cancelled() -> None:
    gate = asyncio.Event()
    done = []

    async def work() -> None:
        await gate.wait()
        done.append(True)

    caller = asyncio.create_task(settled(work()))
    for _ in range(3):
        await asyncio.sleep(0)
        caller.cancel()
    await asyncio.sleep(0)
    assert not caller.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert done == [True]


async def test_settled_work_answers_or_fails_as_it_would() -> None:
    async def work(divisor: int) -> int:
        return 6 // divisor

    assert await settled(work(3)) == 2
    with pytest.raises(ZeroDivisionError):
        await settled(work(0))


async def test_the_end_of_a_failure_is_quiet() -> None:
    async def fail() -> None:
        raise ValueError

    await ended(asyncio.create_task(fail()))
