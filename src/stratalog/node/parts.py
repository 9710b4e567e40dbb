"""The parts of a node: started one after the other, stopped phase by phase.

A part that fails to stop does not keep the other parts from stopping: the failure is logged, and
raised when all parts have had their turn. A start that fails, or is cancelled, stops the parts that
had started before.
"""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

from stratalog.errors import StratalogError
from stratalog.node.phases import Phase

log = logging.getLogger(__name__)

Action: TypeAlias = Callable[[], Awaitable[object] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    name: str
    """As log lines call it, with its article: "the janitor"."""
    stops_in: Phase
    stop: Action
    """May be called in any state that `start`, once it succeeded, can lead to."""
    start: Action | None = None
    """None if the part runs as soon as it is made. A start that fails cleans up after itself."""
    is_independent: bool = False
    """True if the part uses no other part and no other part uses it. Its stop begins together with
    the first phase, and no phase waits for it; `Parts.stop` does, at its end."""


class Parts:
    """The parts that run, in the order in which they were started."""

    def __init__(self) -> None:
        self._running: list[Part] = []

    async def start(self, part: Part) -> None:
        log.debug("Starting %s.", part.name)
        if part.start is not None:
            await _perform(part.start)
        self._running.append(part)

    @asynccontextmanager
    async def undone_on_failure(self) -> AsyncIterator[None]:
        """Stop all parts if the block fails or is cancelled. The block's own error is raised."""
        try:
            yield
        except BaseException:
            await self._stop_all()
            raise

    async def stop(self) -> None:
        """Stop all parts, then raise the first failure. A second call finds nothing to stop."""
        failures = await self._stop_all()
        # A cancellation says that the caller is to end, and must not get lost behind an error.
        failures.sort(key=lambda failure: isinstance(failure, Exception))
        if failures:
            raise failures[0]

    def in_stopping_order(self) -> list[Part]:
        """The running parts in the order in which `stop` would stop them. Independent parts come
        first, because their stop begins first."""
        latest_first = reversed(self._running)
        return sorted(latest_first, key=lambda part: (not part.is_independent, part.stops_in))

    async def _stop_all(self) -> list[BaseException]:
        parts = self.in_stopping_order()
        self._running.clear()
        failures: list[BaseException] = []
        beside = [
            asyncio.create_task(_stop(part, failures), name=f"stop of {part.name}")
            for part in parts
            if part.is_independent
        ]
        for part in parts:
            if not part.is_independent:
                await _stop(part, failures)
        try:
            await asyncio.gather(*beside)
        except asyncio.CancelledError as cancelled:
            failures.append(cancelled)
        return failures


async def _stop(part: Part, failures: list[BaseException]) -> None:
    log.debug("Stopping %s.", part.name)
    try:
        await _perform(part.stop)
    except BaseException as failure:
        failures.append(failure)
        known = isinstance(failure, StratalogError | asyncio.CancelledError)
        log.error(
            "Stopping %s failed: %s",
            part.name,
            failure if isinstance(failure, StratalogError) else repr(failure),
            exc_info=None if known else failure,
        )


async def _perform(action: Action) -> None:
    result = action()
    if inspect.isawaitable(result):
        await result
