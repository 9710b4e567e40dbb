"""Ending a program of the pipeline by a signal: SIGTERM has the effect of Ctrl-C.

Schedulers, containers and service managers send SIGTERM, and kill a process that is still there
some time later. A run that is merely killed keeps its claims until they expire, and leaves Spark
behind.
"""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

TERMINATED = 128 + signal.SIGTERM
"""The exit code by which shells report that a signal ended a program."""


def run_until_terminated(work: Coroutine[Any, Any, T]) -> T:
    """Run the work as `asyncio.run` does, and let SIGTERM cancel it.

    After SIGTERM the work closes everything that it opened, and the program ends with an exit code
    that says so. A second SIGTERM ends the program at once.
    """
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
