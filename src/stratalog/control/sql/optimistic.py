"""The optimistic retry: plan on a snapshot without locks, then write if nothing has moved.

The writing transaction compares the boundaries with the snapshot's, under the locks, and raises
`PlanOutdatedError` if they differ. Then the plan is made again.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from stratalog.control.errors import ControlUnavailableError, PlanOutdatedError

T = TypeVar("T")

ATTEMPTS = 10
"""Each failed attempt means that another transaction got through."""


async def retry_outdated(attempt: Callable[[], Awaitable[T]], *, refusal: str) -> T:
    """Return the result of the first attempt whose plan still holds when it is written.

    Raises `ControlUnavailableError` with the refusal if every attempt was outdated.
    """
    for _ in range(ATTEMPTS):
        with suppress(PlanOutdatedError):
            return await attempt()
    raise ControlUnavailableError(refusal)
