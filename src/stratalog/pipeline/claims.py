"""The claims of a run: renewed while units are worked on, and given back as each unit ends."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from stratalog.clock import Clock
from stratalog.control.pipeline.model import ClaimToken, Run
from stratalog.control.plane import ControlPlane
from stratalog.errors import OutcomeUnknownError, RetriableError, StratalogError
from stratalog.ids import TopicPartition
from stratalog.pipeline.report import Report
from stratalog.pipeline.units import Unit, Units, tokens_of
from stratalog.settings import TieringSettings

log = logging.getLogger(__name__)

_RENEWALS_PER_CLAIM = 3


class RunClaims:
    def __init__(
        self,
        *,
        control: ControlPlane,
        settings: TieringSettings,
        clock: Clock,
        run: Run,
        units: Units,
        report: Report,
        on_settled: Callable[[Unit], None],
    ) -> None:
        """`on_settled` is called for each unit that has ended."""
        self._control = control
        self._settings = settings
        self._clock = clock
        self._run = run
        self._units = units
        self._report = report
        self._on_settled = on_settled
        self._settled: set[ClaimToken] = set()

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Renew the claims within the block, and release the unsettled ones at its end."""
        renewing = asyncio.create_task(self._renew_forever(), name="renewing claims")
        try:
            yield
        finally:
            renewing.cancel()
            try:
                await asyncio.wait([renewing])
            finally:
                await self._release_the_rest()

    async def settle_idle(self) -> None:
        """Settle the units for which no task was planned."""
        idle = [unit for unit in self._units.idle() if unit.claim.token not in self._settled]
        await self.settle(idle)

    async def settle(self, units: Sequence[Unit]) -> None:
        """Give the claims of ended units back, and report the units."""
        tokens = {unit.claim.token for unit in units}
        self._settled |= tokens
        try:
            parked = await self._give_back(units)
        except (RetriableError, OutcomeUnknownError) as error:
            # The run goes on for the other units: the claims are released at its end.
            log.warning("%d claims could not be given back: %s", len(tokens), error)
            self._settled -= tokens
            parked = set()
        except BaseException:
            self._settled -= tokens
            raise
        for unit in units:
            self._on_settled(unit)
            self._report_unit(unit, parked=unit.claim.partition in parked)

    async def _release_the_rest(self) -> None:
        left = tokens_of(self._units.without(self._settled))
        if left:
            with suppress(StratalogError):
                await self._control.pipeline.release_claims(left, succeeded=False)

    async def _renew_forever(self) -> None:
        duration_ms = self._settings.splitter_claim_duration_ms
        while True:
            await self._clock.sleep(duration_ms / 1000 / _RENEWALS_PER_CLAIM)
            try:
                kept = await self._control.pipeline.renew_claims(
                    self._run.run_id, duration_ms=duration_ms
                )
            except Exception as error:
                # Every error is survived: without claims all the work under way would be in vain.
                known = isinstance(error, StratalogError)
                log.warning(
                    "The claims of this run could not be renewed: %s",
                    error if known else repr(error),
                    exc_info=None if known else error,
                )
                continue
            for unit in self._units.without(self._settled | kept):
                # The control plane would refuse the commits of this unit, so its work stops now.
                unit.lose()

    async def _give_back(self, units: Sequence[Unit]) -> set[TopicPartition]:
        """Give each claim back as its unit ended, and return the partitions that are now parked."""
        good = [unit for unit in units if not unit.is_broken and unit.commits]
        failed = [unit for unit in units if unit.error is not None and unit.counts]
        uncounted = [unit for unit in units if unit.failed_uncounted and unit.counts_attempts]
        done = {*tokens_of(good), *tokens_of(failed), *tokens_of(uncounted)}
        others = [unit for unit in units if unit.claim.token not in done]
        # A unit that counts no attempts leaves the failures of the partition as they were.
        for succeeded in (True, False):
            released = [unit for unit in good if unit.counts_attempts is succeeded]
            if released:
                await self._control.pipeline.release_claims(
                    tokens_of(released), succeeded=succeeded
                )
        if others:
            await self._control.pipeline.release_claims(tokens_of(others), succeeded=False)
        if uncounted:
            await self._control.pipeline.put_back_claims(tokens_of(uncounted))
        if not failed:
            return set()
        errors = {unit.claim.token: unit.error or "" for unit in failed}
        max_attempts = self._settings.max_attempts
        return set(await self._control.pipeline.fail_claims(errors, max_attempts=max_attempts))

    def _report_unit(self, unit: Unit, *, parked: bool) -> None:
        report = self._report
        report.commits += unit.commits
        if unit.commits and not unit.is_broken:
            report.done.add(unit.name)
        report.overtaken += unit.overtaken
        if unit.error is not None:
            report.failed[unit.name] = unit.error
        if parked:
            report.parked.append(unit.name)
