"""Ending a program of the pipeline from outside: SIGTERM does what Ctrl-C does.

Schedulers, containers and service managers send it, and kill what is still there some time later.
A run that is merely ended keeps its claims until they expire, and leaves Spark behind.
"""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

TERMINATED = 128 + signal.SIGTERM
"""The exit code by which shells tell that a signal ended a program."""


def run_until_terminated(work: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`. SIGTERM cancels the work, waits until it has closed what it opened, and
    ends the program with an exit code that says so; a second one ends it where it is."""
    signals: list[int] = []

    async def main() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def stop() -> None:
            loop.remove_signal_handler(signal.SIGTERM)
            signals.append(signal.SIGTERM)
            task.cancel()

        loop.add_signal_handler(signal.SIGTERM, stop)
        return await work

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        if not signals:
            raise
        raise SystemExit(TERMINATED) from None
