"""Calls that are repeated while the other side is away for a moment."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from stratalog.clock import Clock
from stratalog.errors import OutcomeUnknownError, RetriableError, StratalogError

T = TypeVar("T")

STREAM_PATIENCE_S = 60.0
"""Of a query that is meant to run for months: a database that fails over is back by then."""

OUTAGES = (RetriableError, OutcomeUnknownError)
"""How calls fail while the other side is away. Those in doubt may have been done: for calls that
may be done twice, as planning may, which leaves a lease that runs out."""

_FIRST_BACKOFF_S = 0.05
_MAX_BACKOFF_S = 2.0


async def patiently(
    call: Callable[[], Awaitable[T]],
    patience_s: float,
    *,
    clock: Clock,
    failures: type[StratalogError] | tuple[type[StratalogError], ...] = RetriableError,
) -> T:
    """Repeat a call that fails in one of these ways, with growing pauses, for a while."""
    deadline_s = clock.monotonic() + patience_s
    backoff_s = _FIRST_BACKOFF_S
    while True:
        try:
            return await call()
        except failures:
            if clock.monotonic() + backoff_s > deadline_s:
                raise
        await clock.sleep(backoff_s)
        backoff_s = min(2 * backoff_s, _MAX_BACKOFF_S)
