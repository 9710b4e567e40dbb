"""The claimed units of a run, while they are worked on: bins go out, what comes back is committed.

A unit costs only itself. What goes wrong with it ends it, and is counted unless waiting may help;
the others go on. What can be of no use then is not begun any more. A bin that failed as a whole is
repeated in smaller ones, until it is known who is to blame (see `suspects.py`).
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from dataclasses import replace
from typing import Protocol

from stratalog.clock import Clock
from stratalog.control.objects.errors import BarredObjectError
from stratalog.control.pipeline.errors import ClaimLostError
from stratalog.control.pipeline.model import (
    ClaimToken,
    Run,
    SplitOutcome,
    SplitPart,
    SplitToCommit,
    UnitKind,
)
from stratalog.control.plane import ControlPlane
from stratalog.control.segments.errors import BoundaryMovedError, SegmentStateError
from stratalog.control.segments.model import ChainOutcome
from stratalog.errors import OutcomeUnknownError, RetriableError, StratalogError
from stratalog.ids import ObjectId, TopicPartition
from stratalog.objects.store import ObjectStore, StoreAccessError
from stratalog.pipeline.held_claims import Unit, Units, tokens_of
from stratalog.pipeline.jobs import Begin, Bin, BinDone, BinFailed, BinOutcome
from stratalog.pipeline.kinds.segment_finisher import SegmentFinisher
from stratalog.pipeline.kinds.upload_check import UploadGoneError, check_uploaded
from stratalog.pipeline.plan.bisection import MOST_REPEATS, halves, is_alone, probe, set_apart
from stratalog.pipeline.plan.merge_plan import ClaimedRows, HoleError, check_rows
from stratalog.pipeline.plan.tasks import MergeTask, SplitMade, Task, TaskDone, UnitFailed
from stratalog.pipeline.report import Report
from stratalog.pipeline.row_loader import has_changed, has_moved
from stratalog.settings import TieringSettings

log = logging.getLogger(__name__)

_COMMIT_ATTEMPTS = 5
_RENEWALS_PER_CLAIM = 3
_BIN_TASKS = 2
_FINISHED_AT_ONCE = 16
"""Segments of different partitions: to finish one is a few small requests, one after another."""
_OVERTAKEN = (ClaimLostError, BoundaryMovedError, SegmentStateError)
"""The control plane's refusals of those whom somebody else was faster than."""


class Jobs(Protocol):
    def run(self, bins: Sequence[Bin], begin: Begin) -> AsyncGenerator[BinOutcome, None]: ...

    def distrust(self) -> None:
        """Whoever opens jobs next needs another Spark."""


OpenJobs = Callable[[], AbstractAsyncContextManager[Jobs]]
"""Starts Spark. Called only when there is work."""


class Work:
    def __init__(
        self,
        *,
        control: ControlPlane,
        objects: ObjectStore,
        finisher: SegmentFinisher,
        settings: TieringSettings,
        clock: Clock,
        run: Run,
        units: Sequence[Unit],
        report: Report,
        rewrites: bool = False,
    ) -> None:
        """`rewrites`: rows are only moved out of objects that are mostly dead. What can be moved
        is; what cannot says something about its object and nothing about its partition."""
        self._control = control
        self._objects = objects
        self._finisher = finisher
        self._settings = settings
        self._clock = clock
        self._run = run
        self._report = report
        self._units = Units(units)
        self._rewrites = rewrites
        self.stuck: set[ObjectId] = set()
        """Objects out of which something cannot be moved."""
        self._settled: set[ClaimToken] = set()
        self._finishing = asyncio.Semaphore(_FINISHED_AT_ONCE)

    # Claims.

    @asynccontextmanager
    async def claims_kept(self) -> AsyncIterator[None]:
        """Renew the claims meanwhile, and give back in the end what was not settled."""
        renewing = asyncio.create_task(self._renew_forever(), name="renewing claims")
        try:
            yield
        finally:
            renewing.cancel()
            try:
                await asyncio.wait([renewing])
            finally:
                await self._release_the_rest()

    async def _release_the_rest(self) -> None:
        left = _tokens(self._units.unsettled(self._settled))
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
                # Whatever it was: without claims all that is under way would be in vain.
                known = isinstance(error, StratalogError)
                log.warning(
                    "The claims of this run could not be renewed: %s",
                    error if known else repr(error),
                    exc_info=None if known else error,
                )
                continue
            for unit in self._units.unsettled(self._settled | kept):
                # The control plane would refuse what we do for it: stop now.
                unit.lose()

    async def sound(self, claimed: Sequence[ClaimedRows]) -> list[ClaimedRows]:
        """Those whose rows are as the claims say. The others were changed, or have a hole."""
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
                await self._settle([unit])
            else:
                sound.append(one)
        return sound

    # Execution.

    async def execute(self, tasks: Sequence[Task], open_jobs: OpenJobs) -> None:
        self._units.plan(tasks)
        idle = [unit for unit in self._units.idle() if unit.claim.token not in self._settled]
        await self._settle(idle)
        if not tasks:
            return
        others, alone = self._set_apart(tasks)
        async with open_jobs() as jobs:
            failed = await self._run_bins(jobs, make_bins(others)) if others else []
            for work in alone:
                failed += await self._run_bins(jobs, [work])
            repeats_left = MOST_REPEATS
            while failed:
                bins = await self._judge(jobs, failed, repeats_left)
                repeats_left -= len(bins)
                failed = await self._run_bins(jobs, bins) if bins else []

    def _set_apart(self, tasks: Sequence[Task]) -> tuple[Sequence[Task], Sequence[Bin]]:
        """What has failed before gets jobs of its own. Not what is only moved: those that are
        parked have all failed, and a file for each would be as many as before."""
        if self._rewrites:
            return tasks, []
        others, alone = set_apart(tasks, lambda token: self._units[token].claim.attempts)
        self._units.replan(tasks, [*others, *(task for work in alone for task in work.tasks)])
        return others, alone

    async def _run_bins(self, jobs: Jobs, bins: Sequence[Bin]) -> list[BinFailed]:
        """Commit what bins bring as they come; return those that failed."""
        failed = []
        running = jobs.run(bins, self._begin)
        async with _side_by_side() as commits, aclosing(running) as outcomes:
            async for outcome in outcomes:
                if isinstance(outcome, BinDone):
                    for task, answer in zip(outcome.work.tasks, outcome.answers, strict=True):
                        # At once: the next bin begins before anything of this one is committed.
                        self._units.cut_after(task, answer)
                        commits.create_task(self._take(task, answer))
                else:
                    failed.append(outcome)
        return failed

    async def _begin(self, work: Bin) -> Bin | None:
        if not _tokens_in(work):
            return work
        needed = replace(work, tasks=[self._units.needed(task) for task in work.tasks])
        tokens = _tokens_in(needed)
        if not tokens:
            log.info("%s is left out: something before it has failed.", work.name)
            return None
        try:
            await self._control.pipeline.begin_claims(sorted(tokens))
        except (RetriableError, OutcomeUnknownError) as error:
            # Not worth the work: all that is lost is the count of a death, should there be one.
            log.info("It could not be noted that %s begins: %s", work.name, error)
        return needed

    async def _judge(self, jobs: Jobs, failed: Sequence[BinFailed], repeats_left: int) -> list[Bin]:
        """Give up those about which there is no doubt; return the others in smaller bins."""
        spark_works = not await self._run_bins(jobs, [probe()])
        log.info("%d jobs failed; Spark %s.", len(failed), "works" if spark_works else "does not")
        if not spark_works:
            jobs.distrust()
        bins: list[Bin] = []
        for one in failed:
            pieces = halves(one) if spark_works else []
            if pieces and len(bins) + len(pieces) <= repeats_left:
                tasks = [task for piece in pieces for task in piece.tasks]
                self._units.replan(one.work.tasks, tasks)
                bins += pieces
            else:
                await self._give_up(one, counts=spark_works and is_alone(one))
        return bins

    async def _take(self, task: Task, answer: TaskDone) -> None:
        """Commit what a task brought, and settle the units that wait for nothing else."""
        await self._commit(answer)
        await self._settle(self._units.task_ended(task))

    async def _give_up(self, outcome: BinFailed, *, counts: bool) -> None:
        for task in outcome.work.tasks:
            self._units.cut_after(task, TaskDone())
            for token in tokens_of(task):
                self._units[token].fail(str(outcome.error), counts=counts)
            await self._settle(self._units.task_ended(task))

    # Commits.

    async def _commit(self, done: TaskDone) -> None:
        self._report.add(done.effort)
        for failed in done.failed:
            await self._note_failed(failed)
        for made in done.logs:
            self._units[made.token].made[made.built.base_offset] = made
        tokens = dict.fromkeys(made.token for made in done.logs)
        await asyncio.gather(*(self._finish_ready(self._units[token]) for token in tokens))
        for split in done.splits:
            await self._commit_split(split)

    async def _note_failed(self, failed: UnitFailed) -> None:
        unit = self._units[failed.token]
        try:
            changed = failed.lost and await has_changed(self._control, failed.row)
        except (RetriableError, OutcomeUnknownError):
            # The data may be gone, or deleted. The next run will find out.
            unit.fail(failed.error, counts=False)
            return
        if changed:
            log.info("%s was overtaken: %s", unit.name, failed.error)
            unit.overtaken = True
            return
        is_bad = failed.lost or not failed.retriable
        if is_bad and failed.row is not None and self._rewrites:
            self.stuck.add(failed.row.object_id)
        unit.fail(failed.error, counts=is_bad and not self._rewrites)

    async def _finish_ready(self, unit: Unit) -> None:
        """One segment of a unit after another, also if several tasks have brought some."""
        async with unit.finishing, self._finishing:
            while (ready := unit.ready()) is not None:
                made, plan = ready
                try:
                    outcome = await self._finisher.finish(made, plan)
                except Exception as error:
                    self._note_error(unit, error)
                    unit.segments.clear()
                else:
                    if outcome is ChainOutcome.CHAINED:
                        unit.commits += 1
                        self._report.segments += 1
                        self._report.merged_bytes += plan.size_bytes
                        self._report.rows_removed += len(plan.rows)

    def _note_error(self, unit: Unit, error: Exception) -> None:
        """Somebody else's change ends a unit quietly; what waiting may cure is not counted. What is
        merely not there (any more) is neither: to look again and again would find no end. A rewrite
        counts nothing."""
        if isinstance(error, _OVERTAKEN):
            log.info("%s was overtaken: %s", unit.name, error)
            unit.overtaken = True
        elif isinstance(error, RetriableError | OutcomeUnknownError | StoreAccessError):
            unit.fail(str(error), counts=False)
        elif isinstance(error, StratalogError):
            unit.fail(str(error), counts=not self._rewrites)
        else:
            log.error("%s failed unexpectedly", unit.name, exc_info=error)
            unit.fail(f"{type(error).__name__}: {error}", counts=not self._rewrites)

    async def _commit_split(self, split: SplitMade) -> None:
        commit = SplitToCommit(
            object_id=split.object_id,
            key=split.key,
            size_bytes=split.size_bytes,
            parts=[
                SplitPart(token=part.token, old_rows=part.old_rows, new_rows=part.new_rows)
                for part in split.parts
            ],
        )
        try:
            # Once rows point at the file, what they pointed at before is deleted.
            await check_uploaded(self._objects, split.key, split.size_bytes)
            outcomes = await self._repeated(commit)
        except BarredObjectError:
            outcomes = [SplitOutcome.ROWS_CHANGED] * len(split.parts)
        except Exception as error:
            self._note_split_error(split, error)
            return
        self._report.split_files += SplitOutcome.SWAPPED in outcomes
        for part, outcome in zip(split.parts, outcomes, strict=True):
            unit = self._units[part.token]
            if outcome is SplitOutcome.SWAPPED:
                unit.commits += 1
                self._report.split_bytes += sum(row.byte_size for row in part.new_rows)
                self._report.rows_removed += len(part.old_rows) - len(part.new_rows)
            elif outcome is SplitOutcome.CLAIM_LOST:
                unit.lose()
            else:
                unit.overtaken = True

    def _note_split_error(self, split: SplitMade, error: Exception) -> None:
        for part in split.parts:
            self._note_error(self._units[part.token], error)
        if isinstance(error, UploadGoneError) and self._rewrites:
            self.stuck |= {row.object_id for part in split.parts for row in part.old_rows}

    async def _repeated(self, commit: SplitToCommit) -> list[SplitOutcome]:
        """To commit a split file again is harmless: doubt about it is settled by doing so."""
        for _ in range(_COMMIT_ATTEMPTS - 1):
            try:
                return await self._control.pipeline.commit_split(commit)
            except (RetriableError, OutcomeUnknownError) as error:
                log.info("A split file is committed again: %s", error)
        return await self._control.pipeline.commit_split(commit)

    # The end of units.

    async def _settle(self, units: Sequence[Unit]) -> None:
        tokens = {unit.claim.token for unit in units}
        self._settled |= tokens
        try:
            parked = await self._give_back(units)
        except (RetriableError, OutcomeUnknownError) as error:
            # Not worth the work of others: the claims are released with those left in the end.
            log.warning("%d claims could not be given back: %s", len(tokens), error)
            self._settled -= tokens
            parked = set()
        except BaseException:
            self._settled -= tokens
            raise
        for unit in units:
            self._finisher.forget(unit.claim.partition)
            self._tell(unit, parked=unit.claim.partition in parked)

    async def _give_back(self, units: Sequence[Unit]) -> set[TopicPartition]:
        """Release the claims as it befits their units, and return the partitions now parked."""
        good = [unit for unit in units if not unit.is_broken and unit.commits]
        failed = [unit for unit in units if unit.error is not None and unit.counts]
        # What cannot be moved out of a dead object says nothing about the partition's own turn.
        uncounted = [] if self._rewrites else [unit for unit in units if unit.failed_uncounted]
        done = {unit.claim.token for unit in (*good, *failed, *uncounted)}
        others = [unit for unit in units if unit.claim.token not in done]
        if good:
            # A rewrite says nothing about what failed before, when the partition was converted.
            await self._control.pipeline.release_claims(_tokens(good), succeeded=not self._rewrites)
        if others:
            await self._control.pipeline.release_claims(_tokens(others), succeeded=False)
        if uncounted:
            await self._control.pipeline.put_back_claims(_tokens(uncounted))
        if not failed:
            return set()
        errors = {unit.claim.token: unit.error or "" for unit in failed}
        max_attempts = self._settings.max_attempts
        return set(await self._control.pipeline.fail_claims(errors, max_attempts=max_attempts))

    def _tell(self, unit: Unit, *, parked: bool) -> None:
        report = self._report
        if unit.commits and unit.claim.kind is UnitKind.MERGE:
            report.merged_partitions += 1
        elif unit.commits:
            report.split_partitions += 1
        if unit.commits and not unit.is_broken:
            report.done.add(unit.name)
        report.overtaken += unit.overtaken
        if unit.error is not None:
            report.failed[unit.name] = unit.error
        if parked:
            report.parked.append(unit.name)


@asynccontextmanager
async def _side_by_side() -> AsyncIterator[asyncio.TaskGroup]:
    """Tasks that all end with the block. The first error ends them, and comes out as itself."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from errors


def make_bins(tasks: Sequence[Task]) -> list[Bin]:
    """Enough tasks that Spark's price for a job is small, few enough that units settle early."""
    merges = [task for task in tasks if isinstance(task, MergeTask)]
    splits = [task for task in tasks if not isinstance(task, MergeTask)]
    return [*_named(UnitKind.MERGE, merges), *_named(UnitKind.SPLIT, splits)]


def _named(kind: UnitKind, tasks: Sequence[Task]) -> Iterable[Bin]:
    groups = [tasks[at : at + _BIN_TASKS] for at in range(0, len(tasks), _BIN_TASKS)]
    for number, group in enumerate(groups, 1):
        yield Bin(name=f"{kind.value} {number} of {len(groups)}", tasks=group)


def _tokens_in(work: Bin) -> set[ClaimToken]:
    return {token for task in work.tasks for token in tokens_of(task)}


def _tokens(units: Iterable[Unit]) -> list[ClaimToken]:
    return [unit.claim.token for unit in units]
