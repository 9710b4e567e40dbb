"""The one door to time.

A room takes a `Clock` as an argument. `SYSTEM_CLOCK` is the default of such arguments and the clock
of code with which a process begins: commands, Spark's entry points, executors' tasks.
"""

import asyncio
import time
from typing import Final, Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since 1970. It may jump: for people and names, never for
        order and never for deadlines."""

    def monotonic(self) -> float:
        """Seconds that only grow. For durations and deadlines."""

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


SYSTEM_CLOCK: Final[Clock] = SystemClock()
