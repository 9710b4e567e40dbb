"""An event loop whose time is virtual: when nothing is ready, the clock jumps to the next timer.

Work for threads runs at once, in the loop. With that, the order of callbacks follows from the
program and its seed alone.

Simulations spend a good part of their time here, so that the loop has queues and handles of its
own: asyncio's are made for threads, descriptors and debugging as well.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from heapq import heappop, heappush
from typing import Any, TypeVar

from stratalog.testing.simulation.errors import DeadlockError
from stratalog.testing.simulation.process import task_of_process

T = TypeVar("T")


class _Handle:
    """A callback that waits for its turn or its time: the part of `asyncio.Handle` in use here."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "when_s")

    def __init__(
        self, callback: Callable[..., object], args: Any, context: Context | None, when_s: float
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = copy_context() if context is None else context
        self.when_s = when_s
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.when_s


class SimulatedLoop(asyncio.BaseEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._timers: list[tuple[float, int, _Handle]] = []
        """A heap. Timers of the same moment are called in the order in which they were made."""
        self._timer_count = 0
        self.set_task_factory(task_of_process)  # type: ignore[arg-type]

    def time(self) -> float:
        return self._now_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Handle:
        handle = _Handle(callback, args, context, self._now_s)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]
    """There are no threads. Generators that are thrown away are closed through this one."""

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> _Handle:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> _Handle:
        handle = _Handle(callback, args, context, when)
        self._timer_count += 1
        heappush(self._timers, (when, self._timer_count, handle))
        return handle

    def _run_once(self) -> None:
        """Run callbacks until the loop stops."""
        ready = self._ready  # type: ignore[attr-defined]
        while not self._stopping:  # type: ignore[attr-defined]
            self._move_due_timers()
            for _ in range(len(ready)):
                handle = ready.popleft()
                if handle.is_cancelled:
                    continue
                try:
                    handle.context.run(handle.callback, *handle.args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    message = f"a callback failed: {handle.callback!r}"
                    self.call_exception_handler({"message": message, "exception": error})

    def _move_due_timers(self) -> None:
        """Make due timers ready, and wait for the first one if nothing else is ready."""
        timers, ready = self._timers, self._ready  # type: ignore[attr-defined]
        while timers and (timers[0][0] <= self._now_s or not ready):
            when_s, _, handle = heappop(timers)
            if handle.is_cancelled:
                continue
            if when_s > self._now_s:
                self._now_s = when_s
            ready.append(handle)
        if not ready:
            raise DeadlockError("every task waits, and no timer is left")

    def close(self) -> None:
        self._timers.clear()
        super().close()

    def run_in_executor(  # type: ignore[override]
        self,
        executor: object,  # noqa: ARG002 - there are no threads
        func: Callable[..., T],
        *args: Any,
    ) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            future.set_exception(error)
        return future

    def _process_events(self, event_list: list[Any]) -> None:
        """There are no events: nothing here has a file descriptor."""


def run_simulated(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end on a loop of its own, then cancel all that it left running."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(main)
