"""Bounds the memory of requests that are being worked on: their parsed forms, and their answers.

First come, first served, in two queues: the last eighth of the memory is kept for small claims, so
that clients which ask for little are served beside clients which ask for much. A claim that can do
with less gets a part of the free memory, so that many large claims share the memory, the later ones
with smaller shares.
"""

import asyncio
from collections import deque
from dataclasses import dataclass

_SMALL_BYTES = 64 << 10
_KEPT_PART = 8
_PART_OF_FREE = 16


@dataclass(slots=True, eq=False)
class _Waiting:
    wanted_bytes: int
    least_bytes: int
    granted: asyncio.Future[int]


class Memory:
    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.used_bytes = 0
        self._small: deque[_Waiting] = deque()
        self._large: deque[_Waiting] = deque()

    @property
    def is_short(self) -> bool:
        """True while a claim waits."""
        return bool(self._small or self._large)

    @property
    def is_overdrawn(self) -> bool:
        return self.used_bytes > self.total_bytes

    def take_at_once(self, wanted_bytes: int) -> bool:
        """Claim memory, unless that has to wait."""
        if self._small or self._large:
            return False
        if wanted_bytes > self._free(wanted_bytes) and self.used_bytes > 0:
            return False
        self.used_bytes += wanted_bytes
        return True

    async def take(self, wanted_bytes: int, *, least_bytes: int | None = None) -> int:
        """Claim memory and return the bytes that were given: all that is wanted, or at least
        `least_bytes` if that is less. Give them back with `give`."""
        if not wanted_bytes:
            return 0
        least = wanted_bytes if least_bytes is None else min(wanted_bytes, least_bytes)
        queue = self._small if wanted_bytes <= _SMALL_BYTES else self._large
        if not queue:
            given = self._offer(wanted_bytes, least)
            if given is not None:
                self.used_bytes += given
                return given
        waiting = _Waiting(wanted_bytes, least, asyncio.get_running_loop().create_future())
        queue.append(waiting)
        try:
            return await waiting.granted
        except asyncio.CancelledError:
            if waiting.granted.done() and not waiting.granted.cancelled():
                self.give(waiting.granted.result())
            elif waiting in queue:
                queue.remove(waiting)
                self._serve()
            raise

    def give(self, given_bytes: int) -> None:
        """Give bytes back. A negative number overdraws the memory without waiting."""
        self.used_bytes -= given_bytes
        if self._small or self._large:
            self._serve()

    def _free(self, wanted: int) -> int:
        """Return the bytes that are free for a claim of this size."""
        kept = 0 if wanted <= _SMALL_BYTES else self.total_bytes // _KEPT_PART
        return self.total_bytes - kept - self.used_bytes

    def _offer(self, wanted: int, least: int) -> int | None:
        free = self._free(wanted)
        offer = min(wanted, max(least, free // _PART_OF_FREE))
        return offer if offer <= free or self.used_bytes <= 0 else None

    def _serve(self) -> None:
        for queue in (self._small, self._large):
            while queue:
                first = queue[0]
                given = self._offer(first.wanted_bytes, first.least_bytes)
                if given is None:
                    break
                queue.popleft()
                if not first.granted.done():
                    self.used_bytes += given
                    first.granted.set_result(given)
