"""Patience of a starting node with a control plane or a store that is not ready.

A control plane or a store that is unreachable, or asks to slow down, is waited for. A broker that
ended instead would only be started again, and would add to the load of a store that is overloaded.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from stratalog.clock import Clock
from stratalog.errors import OutcomeUnknownError, RetriableError
from stratalog.retry import Backoff, retry

log = logging.getLogger(__name__)

T = TypeVar("T")

_BACKOFF = Backoff(first_s=0.5, longest_s=5.0)


async def patiently(name: str, call: Callable[[], Awaitable[T]], clock: Clock) -> T:
    """Repeat a call to the component of this name until the component is ready.

    The call must be safe to repeat, also after an attempt whose outcome is unknown."""

    def log_retry(error: Exception, pause_s: float) -> None:
        log.warning("%s is not ready, trying again in %.1f s: %s", name, pause_s, error)

    return await retry(
        call,
        clock=clock,
        failures=(RetriableError, OutcomeUnknownError),
        backoff=_BACKOFF,
        on_retry=log_retry,
    )
