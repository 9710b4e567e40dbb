"""Repetition of calls while the control plane or the object store is away for a moment."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from stratalog.clock import Clock
from stratalog.errors import OutcomeUnknownError, RetriableError, StratalogError
from stratalog.retry import retry

T = TypeVar("T")

STREAM_RETRY_S = 60.0
"""The time for which a stream repeats calls. Streams run for months, and a database that fails over
is back within that time."""

OUTAGES = (RetriableError, OutcomeUnknownError)
"""The failures of calls during an outage. A call in doubt may have been done, so these are only for
calls that may be done twice. Planning may: a second plan leaves a lease that runs out."""


async def retry_for(
    call: Callable[[], Awaitable[T]],
    retry_s: float,
    *,
    clock: Clock,
    failures: type[StratalogError] | tuple[type[StratalogError], ...] = RetriableError,
) -> T:
    """Repeat a call that fails in one of these ways, with growing pauses, for so many seconds."""
    deadline_s = clock.monotonic() + retry_s
    return await retry(call, clock=clock, failures=failures, deadline_s=deadline_s)
