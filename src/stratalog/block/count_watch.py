"""The watch on the count of commits, for a broker that commits nothing.

Each commit finds out whether the control plane went back (`control/writers/counting.py`). A broker
without producers makes none. It would go on to acknowledge committed offsets and new topics to a
control plane that an operator may be about to replace, or after another broker halted the cluster.
So it asks for its count as often as it renews its lease. A broker that commits is not asked.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from stratalog.block.announced_writer import AnnouncedWriter
from stratalog.clock import Clock
from stratalog.control.plane import ControlPlane
from stratalog.control.writers.errors import WriterRefusedError
from stratalog.errors import StratalogError

log = logging.getLogger(__name__)


class CountWatch:
    def __init__(
        self,
        control: ControlPlane,
        announced: AnnouncedWriter,
        *,
        interval_s: float,
        clock: Clock,
        on_refused: Callable[[WriterRefusedError], Awaitable[None]],
    ) -> None:
        self._control = control
        self._announced = announced
        self._interval_s = interval_s
        self._clock = clock
        self._on_refused = on_refused
        self._seen = announced.commits
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="count-watch")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        """Ask until the writer is refused."""
        while True:
            await self._clock.sleep(self._interval_s)
            if self._announced.commits != self._seen:
                self._seen = self._announced.commits
                continue
            try:
                await self._control.writers.check(self._announced.count)
            except WriterRefusedError as refusal:
                await self._on_refused(refusal)
                return
            except StratalogError as error:
                log.debug("The count of commits could not be asked for: %s", error)
            except Exception:
                log.exception("The count of commits could not be asked for")
