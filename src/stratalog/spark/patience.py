"""Calls that are repeated while the other side is away for a moment."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from stratalog.clock import Clock
from stratalog.errors import OutcomeUnknownError, RetriableError, StratalogError
from stratalog.retry import retry

T = TypeVar("T")

STREAM_PATIENCE_S = 60.0
"""Of a query that is meant to run for months: a database that fails over is back by then."""

OUTAGES = (RetriableError, OutcomeUnknownError)
"""How calls fail while the other side is away. Those in doubt may have been done: for calls that
may be done twice, as planning may, which leaves a lease that runs out."""


async def patiently(
    call: Callable[[], Awaitable[T]],
    patience_s: float,
    *,
    clock: Clock,
    failures: type[StratalogError] | tuple[type[StratalogError], ...] = RetriableError,
) -> T:
    """Repeat a call that fails in one of these ways, with growing pauses, for a while."""
    deadline_s = clock.monotonic() + patience_s
    return await retry(call, clock=clock, failures=failures, deadline_s=deadline_s)
