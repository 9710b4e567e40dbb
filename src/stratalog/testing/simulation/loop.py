"""An event loop whose time is virtual: when nothing is ready, the clock jumps to the next timer.

Work for threads runs at once, in the loop. With that, the order of callbacks follows from the
program and its seed alone.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from stratalog.testing.simulation.errors import DeadlockError
from stratalog.testing.simulation.process import task_of_process

T = TypeVar("T")


class SimulatedLoop(asyncio.BaseEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._selector = self
        self.set_task_factory(task_of_process)  # type: ignore[arg-type]

    def time(self) -> float:
        return self._now_s

    def select(self, timeout_s: float | None) -> list[Any]:
        """Stand in for a selector: called by the loop to wait until something happens."""
        if timeout_s is None:
            raise DeadlockError("every task waits, and no timer is left")
        if timeout_s > 0:
            scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
            # Not the sum of now and the timeout, which rounding may leave short of the timer.
            self._now_s = max(self._now_s, scheduled[0].when())
        return []

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

    def _write_to_self(self) -> None:
        """There are no other threads to wake this one."""


def run_simulated(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end on a loop of its own, then cancel all that it left running."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(main)
