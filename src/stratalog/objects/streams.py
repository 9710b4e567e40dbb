"""Streams into any store: runs of one size, and work that completes despite a cancellation."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable
from typing import Any, TypeVar

from stratalog.objects.store import Buffer

T = TypeVar("T")


async def gathered(
    parts: AsyncIterable[Buffer], run_bytes: int
) -> AsyncGenerator[list[Buffer], None]:
    """The same bytes in runs of exactly `run_bytes`, but for the last. Nothing is copied.

    Parts that are empty vanish, and a stream without a byte has no run.
    """
    run: list[Buffer] = []
    missing = run_bytes
    async for part in parts:
        view = memoryview(part).cast("B")
        while len(view) >= missing:
            yield [*run, view[:missing]]
            view = view[missing:]
            run, missing = [], run_bytes
        if len(view):
            run.append(view)
            missing -= len(view)
    if run:
        yield run


async def settled(work: Awaitable[T]) -> T:
    """The outcome of work that must not be left under way: a cancellation is heard after its end.

    A thread cannot be broken off, and a request that is broken off may have been served or not.
    """
    task = asyncio.ensure_future(work)
    await ended(task)
    return task.result()


async def ended(task: "asyncio.Future[Any]") -> None:
    """Wait for the end of `task`, be it a failure. Cancellations meanwhile are heard after it."""
    cancellation = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancellation = error
    if not task.cancelled():
        task.exception()
    if cancellation is not None:
        raise cancellation
