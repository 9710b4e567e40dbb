"""The execution of a plan: bins go out to Spark, and their answers are committed as they come.

A unit costs only itself. An error of a unit ends that unit, and is counted unless waiting may help;
the others go on. Work that has become useless by then is not begun. A bin that failed as a whole is
repeated in smaller ones, until the cause is known (see `plan/failure_search.py`).
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from stratalog.clock import Clock
from stratalog.control.pipeline.model import ClaimToken, Run
from stratalog.control.plane import ControlPlane
from stratalog.errors import OutcomeUnknownError, RetriableError
from stratalog.ids import ObjectId
from stratalog.objects.store import ObjectStore
from stratalog.pipeline.claims import RunClaims
from stratalog.pipeline.errors import HoleError
from stratalog.pipeline.jobs import Bin, BinDone, BinFailed, Jobs, OpenJobs, make_bins
from stratalog.pipeline.kinds.committer import CommitContext, Committer
from stratalog.pipeline.kinds.registry import KINDS
from stratalog.pipeline.kinds.segment_finisher import SegmentFinisher
from stratalog.pipeline.plan.claimed_rows import ClaimedRows, check_rows
from stratalog.pipeline.plan.failure_search import MOST_REPEATS, halves, is_alone, probe, set_apart
from stratalog.pipeline.plan.tasks import Task, TaskDone, UnitFailed
from stratalog.pipeline.report import Report
from stratalog.pipeline.row_loader import has_changed, has_moved
from stratalog.pipeline.units import Unit, Units
from stratalog.settings import TieringSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverServices:
    """The parts of a driver that an execution works with."""

    control: ControlPlane
    objects: ObjectStore
    finisher: SegmentFinisher
    settings: TieringSettings
    clock: Clock


class Execution:
    def __init__(
        self, services: DriverServices, run: Run, units: Sequence[Unit], report: Report
    ) -> None:
        self._control = services.control
        self._report = report
        self._units = Units(units)
        self.stuck: set[ObjectId] = set()
        """Objects out of which a row cannot be moved."""
        context = CommitContext(
            control=services.control,
            objects=services.objects,
            finisher=services.finisher,
            clock=services.clock,
            units=self._units,
            report=report,
            stuck=self.stuck,
        )
        self._committers: dict[str, Committer[Any]] = {
            kind.name: kind.committer(context) for kind in KINDS
        }
        self._claims = RunClaims(
            control=services.control,
            settings=services.settings,
            clock=services.clock,
            run=run,
            units=self._units,
            report=report,
            on_settled=lambda unit: self._committers[unit.kind].settled(unit),
        )

    def claims_kept(self) -> AbstractAsyncContextManager[None]:
        return self._claims.kept()

    async def sound(self, claimed: Sequence[ClaimedRows]) -> list[ClaimedRows]:
        """Return the claims whose rows have no hole. The units of the others are settled."""
        sound = []
        for one in claimed:
            unit = self._units[one.claim.token]
            try:
                check_rows(one)
            except HoleError as error:
                if await has_moved(self._control, one):
                    unit.overtaken = True
                else:
                    unit.fail(str(error), counts=True)
                await self._claims.settle([unit])
            else:
                sound.append(one)
        return sound

    async def execute(self, tasks: Sequence[Task], open_jobs: OpenJobs) -> None:
        self._units.plan(tasks)
        for task in tasks:
            self._committers[task.kind].planned(task)
        await self._claims.settle_idle()
        if not tasks:
            return
        others, alone = self._set_apart(tasks)
        async with open_jobs() as jobs:
            bins = make_bins(others, [kind.name for kind in KINDS])
            failed = await self._run_bins(jobs, bins) if bins else []
            for work in alone:
                failed += await self._run_bins(jobs, [work])
            repeats_left = MOST_REPEATS
            while failed:
                bins = await self._judge(jobs, failed, repeats_left)
                repeats_left -= len(bins)
                failed = await self._run_bins(jobs, bins) if bins else []

    def _set_apart(self, tasks: Sequence[Task]) -> tuple[Sequence[Task], Sequence[Bin]]:
        """Give the parts that failed before jobs of their own.

        Not for kinds that count no attempts: a rewrite moves rows of parked partitions, all of
        which have failed, and a file for each would be as many files as before.
        """

        def attempts(token: ClaimToken) -> int:
            unit = self._units[token]
            return unit.claim.attempts if unit.counts_attempts else 0

        others, alone = set_apart(tasks, attempts)
        self._units.replan(tasks, [*others, *(task for work in alone for task in work.tasks)])
        return others, alone

    async def _run_bins(self, jobs: Jobs, bins: Sequence[Bin]) -> list[BinFailed]:
        """Commit the answers of bins as they come; return the bins that failed."""
        failed = []
        running = jobs.run(bins, self._begin)
        async with _side_by_side() as commits, aclosing(running) as outcomes:
            async for outcome in outcomes:
                if isinstance(outcome, BinDone):
                    for task, answer in zip(outcome.work.tasks, outcome.answers, strict=True):
                        self._report.add(answer.effort)
                        if task.parts:
                            # At once: the next bin begins before this answer is committed.
                            self._committers[task.kind].answered(task, answer)
                            commits.create_task(self._take(task, answer))
                else:
                    failed.append(outcome)
        return failed

    async def _begin(self, work: Bin) -> Bin | None:
        if not _tokens_in(work):
            return work
        needed = replace(work, tasks=[self._needed(task) for task in work.tasks])
        tokens = _tokens_in(needed)
        if not tokens:
            log.info("%s is left out: something before it has failed.", work.name)
            return None
        try:
            await self._control.pipeline.begin_claims(sorted(tokens))
        except (RetriableError, OutcomeUnknownError) as error:
            # The work goes on: only the count of a death is lost, should there be one.
            log.info("It could not be noted that %s begins: %s", work.name, error)
        return needed

    def _needed(self, task: Task) -> Task:
        """Return the task without the parts that cannot be committed any more."""
        committer = self._committers[task.kind]
        return task.with_parts([part for part in task.parts if committer.needs(part)])

    async def _judge(self, jobs: Jobs, failed: Sequence[BinFailed], repeats_left: int) -> list[Bin]:
        """Give up the bins about which there is no doubt; return the others in smaller bins."""
        spark_works = not await self._run_bins(jobs, [probe()])
        log.info("%d jobs failed; Spark %s.", len(failed), "works" if spark_works else "does not")
        if not spark_works:
            jobs.distrust()
        bins: list[Bin] = []
        for one in failed:
            smaller = halves(one) if spark_works else []
            if smaller and len(bins) + len(smaller) <= repeats_left:
                self._units.replan(
                    one.work.tasks, [task for half in smaller for task in half.tasks]
                )
                bins += smaller
            else:
                await self._give_up(one, counts=spark_works and is_alone(one))
        return bins

    async def _take(self, task: Task, answer: TaskDone) -> None:
        """Commit the answer of a task, and settle the units that wait for nothing else."""
        for failed in answer.failed:
            await self._note_failed(failed)
        await self._committers[task.kind].commit(answer)
        await self._claims.settle(self._units.task_ended(task))

    async def _give_up(self, outcome: BinFailed, *, counts: bool) -> None:
        for task in outcome.work.tasks:
            self._committers[task.kind].answered(task, TaskDone())
            for token in task.tokens:
                self._units[token].fail(str(outcome.error), counts=counts)
            await self._claims.settle(self._units.task_ended(task))

    async def _note_failed(self, failed: UnitFailed) -> None:
        unit = self._units[failed.token]
        try:
            changed = failed.lost and await has_changed(self._control, failed.row)
        except (RetriableError, OutcomeUnknownError):
            # The data may be lost, or deleted on purpose. The next run will find out.
            unit.fail(failed.error, counts=False)
            return
        if changed:
            unit.overtake(failed.error)
            return
        is_bad = failed.lost or not failed.retriable
        if is_bad and failed.row is not None:
            self.stuck.add(failed.row.object_id)
        unit.fail(failed.error, counts=is_bad and unit.counts_attempts)


@asynccontextmanager
async def _side_by_side() -> AsyncIterator[asyncio.TaskGroup]:
    """Run tasks that all end with the block. The first error ends them, and is raised as itself."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from errors


def _tokens_in(work: Bin) -> set[ClaimToken]:
    return {token for task in work.tasks for token in task.tokens}
