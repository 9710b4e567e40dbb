"""Work that several callers wait for together, and that outlives each of them.

A caller that is cancelled leaves the work running for the others. `close` cancels the work that is
still running, and waits for its end.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from stratalog.segment.errors import ReaderClosedError

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class SingleFlight(Generic[Key, Result]):
    def __init__(self) -> None:
        self._running: dict[Key, asyncio.Task[Result]] = {}
        self._closed = False

    def __contains__(self, key: Key) -> bool:
        return key in self._running

    def find(self, key: Key) -> "asyncio.Task[Result] | None":
        return self._running.get(key)

    def start(
        self, keys: list[Key], work: Callable[[], Coroutine[Any, Any, Result]]
    ) -> "asyncio.Task[Result]":
        """Begin work that gives the result for all these keys. None of them may be in progress."""
        if self._closed:
            raise ReaderClosedError("the reader of segments was closed")
        task = asyncio.create_task(work())
        for key in keys:
            assert key not in self._running, f"{key} is in flight already"
            self._running[key] = task
        task.add_done_callback(lambda done: self._ended(keys, done))
        return task

    async def share(self, key: Key, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Return the result of the work on `key`. The first caller begins the work."""
        return await wait_for(self.find(key) or self.start([key], work))

    async def close(self) -> None:
        self._closed = True
        tasks = set(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, keys: list[Key], task: "asyncio.Task[Result]") -> None:
        for key in keys:
            del self._running[key]
        if not task.cancelled():
            # Retrieve the error: asyncio would log a warning if no caller was left to do so.
            task.exception()


async def wait_for(task: "asyncio.Task[Result]") -> Result:
    """Wait for work of several callers. A caller that is cancelled does not end the work."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        waiter = asyncio.current_task()
        if task.cancelled() and not (waiter and waiter.cancelling()):
            raise ReaderClosedError("the reader of segments was closed") from None
        raise
