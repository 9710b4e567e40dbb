"""A clock that stands still until a test moves it."""

import asyncio
import heapq
from itertools import count


class ManualClock:
    """Time for tests: `advance` moves it and wakes the sleepers whose time has come."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = now_ms
        self._elapsed_s = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Event]] = []
        self._order = count()

    def now_ms(self) -> int:
        return self._start_ms + round(self._elapsed_s * 1000)

    def monotonic(self) -> float:
        return self._elapsed_s

    async def sleep(self, seconds: float) -> None:
        wake = asyncio.Event()
        heapq.heappush(self._sleepers, (self._elapsed_s + seconds, next(self._order), wake))
        await wake.wait()

    async def advance(self, seconds: float) -> None:
        """Move on, waking sleepers in order, and let them run."""
        end_s = self._elapsed_s + seconds
        while self._sleepers and self._sleepers[0][0] <= end_s:
            self._elapsed_s, _, wake = heapq.heappop(self._sleepers)
            wake.set()
            await asyncio.sleep(0)
        self._elapsed_s = end_s
        await asyncio.sleep(0)
