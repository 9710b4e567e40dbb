"""The one loop that repeats a call which failed.

A room decides three things: which failures are worth a repeat, how long the pauses are, and when to
give up. Clock and randomness are arguments, so that tests and simulation decide how time passes.
"""

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from stratalog.clock import Clock
from stratalog.errors import RetriableError
from stratalog.ids import Entropy, system_entropy

T = TypeVar("T")

Failures: TypeAlias = type[Exception] | tuple[type[Exception], ...]
OnRetry: TypeAlias = Callable[[Exception, float], None]
"""Called before each pause, with the failure and the seconds of the pause."""

_MOST_DOUBLINGS = 64
"""No pause is so long. A broker may wait for hours for its database, and after 1,024 doublings a
float overflows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Pauses between attempts: doubling from the first one up to the longest."""

    first_s: float = 0.05
    longest_s: float = 2.0
    spread: float = 0.0
    """The largest part of a pause that chance takes off, so that many clients drift apart."""

    def pause_s(self, failures: int, entropy: Entropy = system_entropy) -> float:
        """Return the pause after so many failures in a row."""
        doublings = min(failures - 1, _MOST_DOUBLINGS)
        full_s = min(self.longest_s, self.first_s * 2.0**doublings)
        return full_s * (1 - self.spread * (1 - entropy(1)[0] / 255)) if self.spread else full_s


BACKOFF = Backoff()
AT_ONCE = Backoff(first_s=0.0)
"""For a few attempts without pauses."""


async def retry(
    call: Callable[[], Awaitable[T]],
    *,
    clock: Clock,
    failures: Failures = RetriableError,
    backoff: Backoff = BACKOFF,
    deadline_s: float = math.inf,
    attempts: float = math.inf,
    entropy: Entropy = system_entropy,
    on_retry: OnRetry | None = None,
) -> T:
    """Repeat a call that fails in one of these ways, with growing pauses.

    The last failure is raised once there were so many `attempts`, or when the next attempt would
    come after `deadline_s`, a moment of the clock's `monotonic()`.
    """
    failed = 0
    while True:
        try:
            return await call()
        except failures as error:
            failed += 1
            pause_s = backoff.pause_s(failed, entropy)
            if failed >= attempts or clock.monotonic() + pause_s > deadline_s:
                raise
            if on_retry is not None:
                on_retry(error, pause_s)
        await clock.sleep(pause_s)
