"""The report of a run, saved while the run goes on: a driver that is killed leaves the last one."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from stratalog.clock import Clock
from stratalog.control.pipeline.model import RunId
from stratalog.control.plane import ControlPlane
from stratalog.errors import StratalogError
from stratalog.pipeline.report import Report

SAVE_SECONDS = 10.0
"""One small write at this interval, and only after progress, costs the control plane nothing."""


@asynccontextmanager
async def saved_meanwhile(
    control: ControlPlane, run_id: RunId, report: Report, clock: Clock
) -> AsyncIterator[None]:
    """Save the report now and then. No save is under way any more when the block is left."""
    saver = _Saver(control, run_id, report, clock)
    saving = asyncio.create_task(saver.save_forever(), name="saving the report")
    try:
        yield
    finally:
        async with saver.at_work:
            saving.cancel()
        await asyncio.wait([saving])


class _Saver:
    def __init__(self, control: ControlPlane, run_id: RunId, report: Report, clock: Clock) -> None:
        self._control = control
        self._run_id = run_id
        self._report = report
        self._clock = clock
        self._started_s = clock.monotonic()
        self._saved: Mapping[str, object] = report.to_json()
        self.at_work = asyncio.Lock()
        """Held while a report is being saved, so that none arrives after the last."""

    async def save_forever(self) -> None:
        while True:
            await self._clock.sleep(SAVE_SECONDS)
            async with self.at_work:
                with suppress(StratalogError):
                    await self._save()

    async def _save(self) -> None:
        current = self._report.to_json()
        if current != self._saved:
            seconds = self._clock.monotonic() - self._started_s
            so_far = replace(self._report, seconds=seconds).to_json()
            await self._control.pipeline.save_run(self._run_id, so_far, finished=False)
            self._saved = current
