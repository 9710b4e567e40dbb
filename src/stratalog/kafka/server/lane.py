"""Lets the processor's time of heavy requests pass one request at a time.

A heavy request names many topics or partitions, or asks for everything. Its work takes many turns
of the event loop, or long ones. One heavy request works while the others wait in their order, and
after its work the lane rests for longer than the work took, so that heavy requests, however many
there are, leave most of the event loop to all others.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stratalog.clock import Clock

_REST_PER_WORK = 2
_LONGEST_REST_S = 0.5
"""Some of the work of a request is time in which the control plane works."""


class Lane:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = asyncio.Lock()

    def turn(self) -> "Turn":
        return Turn(self._lock, self._clock)


class Turn:
    """One heavy request's time in the lane."""

    def __init__(self, lock: asyncio.Lock, clock: Clock) -> None:
        self._lock = lock
        self._clock = clock
        self._began_s: float | None = None

    async def begin(self) -> None:
        await self._lock.acquire()
        self._began_s = self._clock.monotonic()

    async def end(self) -> None:
        """May be called twice. The request itself waits for the rest, too."""
        began_s, self._began_s = self._began_s, None
        if began_s is None:
            return
        try:
            worked_s = self._clock.monotonic() - began_s
            if worked_s:
                await self._clock.sleep(min(worked_s * _REST_PER_WORK, _LONGEST_REST_S))
        finally:
            self._lock.release()

    def abandon(self) -> None:
        """Leave the lane at once: the request was cancelled before its work began."""
        if self._began_s is not None:
            self._began_s = None
            self._lock.release()

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """Leave the lane to others while the request waits for records."""
        await self.end()
        yield
        await self.begin()
