"""The ends of waits: waits that end at about the same time share a timer, and end together.

Hundreds of idle consumers wait for half a second each, again and again. With a timer each, every
one of them would wake the process on its own; together they are answered in a few turns of the
event loop. A wait may last a sixteenth longer than it asked for, a sixteenth of a second at the
most, and is never cut short.
"""

import asyncio
import math

_MOST_LATE_PART = 16
_LONG_S = 1.0
"""Longer waits are no later than one of this length: clients count on a timeout of their own."""

_Waiter = asyncio.Future[None]


class WaitEnds:
    def __init__(self) -> None:
        self._groups: dict[float, _Group] = {}

    def add(self, waiter: _Waiter, wait_s: float) -> float:
        """End the wait of a future after so many seconds. Returns the time for `remove`."""
        loop = asyncio.get_running_loop()
        # A power of two, so that waits of different lengths have ends in common.
        grain_s = math.ldexp(0.5, math.frexp(min(wait_s, _LONG_S) / _MOST_LATE_PART)[1])
        end_s = math.ceil((loop.time() + wait_s) / grain_s) * grain_s
        group = self._groups.get(end_s)
        if group is None:
            timer = loop.call_at(end_s, self._end, end_s)
            group = self._groups[end_s] = _Group(timer)
        group.waiters[waiter] = None
        return end_s

    def remove(self, waiter: _Waiter, end_s: float) -> None:
        """Forget a future, whether its wait has ended or not."""
        group = self._groups.get(end_s)
        if group is None:
            return
        group.waiters.pop(waiter, None)
        if not group.waiters:
            group.timer.cancel()
            del self._groups[end_s]

    def _end(self, end_s: float) -> None:
        for waiter in self._groups.pop(end_s).waiters:
            if not waiter.done():
                waiter.set_result(None)


class _Group:
    __slots__ = ("timer", "waiters")

    def __init__(self, timer: asyncio.TimerHandle) -> None:
        self.timer = timer
        self.waiters: dict[_Waiter, None] = {}
