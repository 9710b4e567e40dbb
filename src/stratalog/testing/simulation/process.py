"""A process that can be paused and killed.

A task belongs to the process in whose context it was made. Every door of the process (its clock,
its database, its store, its clients) asks `passes()` before and after each call: a paused process
waits there until it goes on, and a dead one goes no further.
"""

import asyncio
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

from stratalog.testing.simulation.clock import NodeClock

T = TypeVar("T")

_current: ContextVar["Process | None"] = ContextVar("simulated_process", default=None)


class Process:
    def __init__(self, name: str, clock: NodeClock) -> None:
        self.name = name
        self.clock = ProcessClock(self, clock)
        self.machine = clock
        self.is_dead = False
        self._running = asyncio.Event()
        self._running.set()
        # A dictionary, because the order in which tasks are cancelled must follow from the seed.
        self._tasks: dict[asyncio.Task[Any], None] = {}

    async def passes(self) -> None:
        """Let the caller through; later if the process is paused, never if it is dead."""
        if self.is_dead:
            raise asyncio.CancelledError
        if not self._running.is_set():
            await self._running.wait()
            if self.is_dead:
                raise asyncio.CancelledError

    @property
    def is_paused(self) -> bool:
        return not self._running.is_set()

    def pause(self) -> None:
        self._running.clear()

    def resume(self) -> None:
        self._running.set()

    def kill(self) -> None:
        """End all tasks at once. Their clean-up finds every door shut."""
        self.is_dead = True
        self._running.set()
        for task in list(self._tasks):
            task.cancel()

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run `work` in a task of this process. Tasks that it makes belong to the process, too."""
        context = copy_context()
        context.run(_current.set, self)
        return asyncio.get_running_loop().create_task(work, context=context)

    def adopt(self, task: "asyncio.Task[Any]") -> None:
        self._tasks[task] = None
        task.add_done_callback(self._forget)

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.pop(task, None)
        if not task.cancelled():
            task.exception()


class ProcessClock:
    """The machine's clock as a process sees it. A process that is paused sleeps on."""

    def __init__(self, process: Process, machine: NodeClock) -> None:
        self._process = process
        self._machine = machine

    def now_ms(self) -> int:
        return self._machine.now_ms()

    def monotonic(self) -> float:
        return self._machine.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._process.passes()
        await self._machine.sleep(seconds)
        await self._process.passes()


def task_of_process(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, T],
    *,
    context: Context | None = None,
    **rest: Any,
) -> "asyncio.Task[T]":
    """A task factory that gives each task to the process in whose context it is made."""
    task = asyncio.Task(work, loop=loop, context=context, **rest)
    # An empty context is false, and belongs to no process.
    process = _current.get() if context is None else context.get(_current)
    if process is not None:
        process.adopt(task)
        if process.is_dead:
            task.cancel()
    return task
