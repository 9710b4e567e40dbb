"""One run of the pipeline: plan, claim, execute, commit unit by unit, clean.

The driver alone talks to the control plane; executors touch the object store alone. A run may end
anywhere. Its claims expire, what its executors have written and nobody committed is swept, and the
next run finds the partitions as they are.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from typing import Protocol
from uuid import UUID, uuid4

from stratalog.clock import Clock
from stratalog.control.model import Coordinates, Span, Topic
from stratalog.control.pipeline_model import (
    AgedPartition,
    Claim,
    ClaimToken,
    ClaimWish,
    Run,
    RunId,
    SplitOutcome,
    SplitPart,
    SplitToCommit,
    UnitKind,
)
from stratalog.control.plane import (
    BarredObjectError,
    BoundaryMovedError,
    ClaimLostError,
    ControlPlane,
    SegmentStateError,
)
from stratalog.control.segment_model import ChainOutcome
from stratalog.errors import RetriableError, StratalogError
from stratalog.ids import Offset, TopicId, TopicPartition
from stratalog.pipeline.bins import Bin, BinDone, BinOutcome
from stratalog.pipeline.finish import SegmentFinisher
from stratalog.pipeline.merge_plan import ClaimedRows, HoleError, check_rows, plan_merges
from stratalog.pipeline.report import Report
from stratalog.pipeline.select import Selection, TopicFacts, select
from stratalog.pipeline.split_plan import plan_rewrites, plan_splits
from stratalog.pipeline.tasks import SplitMade, Task, TaskDone
from stratalog.pipeline.units import Unit, Units, tokens_of
from stratalog.settings import Settings
from stratalog.topic.configs import effective

log = logging.getLogger(__name__)

_ALL_BYTES = 1 << 62
_SPANS_AT_ONCE = 500
_COMMIT_ATTEMPTS = 5
_RENEWALS_PER_CLAIM = 3
_BIN_TASKS = 4
_DEAD_PART = 0.25
"""Objects of which no more than this part is alive are rewritten."""
_DEAD_OBJECTS = 200


class Jobs(Protocol):
    def run(self, bins: Sequence[Bin]) -> AsyncGenerator[BinOutcome, None]: ...


OpenJobs = Callable[[], AbstractAsyncContextManager[Jobs]]
"""Starts Spark. Called only when there is work."""


class Driver:
    def __init__(
        self,
        *,
        control: ControlPlane,
        finisher: SegmentFinisher,
        open_jobs: OpenJobs,
        settings: Settings,
        clock: Clock,
        holder: str,
    ) -> None:
        self._control = control
        self._finisher = finisher
        self._open_jobs = open_jobs
        self._settings = settings
        self._tiering = settings.tiering
        self._clock = clock
        self._holder = holder

    async def run(
        self, kinds: Sequence[UnitKind] = tuple(UnitKind), topics: Sequence[str] | None = None
    ) -> Report:
        """Convert what has aged, within a run's budget."""
        started_s = self._clock.monotonic()
        report = Report()
        run = await self._control.begin_run(self._holder)
        facts = await self._facts(topics)
        finished = False
        try:
            selection = await self._select(facts, run.started_ms, kinds)
            _note_waiting(report, selection)
            await self._convert(run, selection, facts, report)
            if UnitKind.SPLIT in kinds:
                await self._rewrite_dead(run, facts, report)
            finished = True
        finally:
            report.seconds = self._clock.monotonic() - started_s
            with suppress(StratalogError):
                await self._control.save_run(run.run_id, report.to_json(), finished=finished)
        return report

    # Planning.

    async def _facts(self, names: Sequence[str] | None) -> dict[TopicId, TopicFacts]:
        topics = await (
            self._control.topics() if names is None else self._control.topics_named(names)
        )
        return {topic.id: self._facts_of(topic) for topic in topics}

    def _facts_of(self, topic: Topic) -> TopicFacts:
        config = effective(self._settings.topic, topic.configs)
        age_ms = config.local_retention_ms
        return TopicFacts(
            name=topic.name,
            segment_bytes=config.segment_bytes,
            segment_ms=config.segment_ms,
            index_interval_bytes=config.index_interval_bytes,
            age_ms=self._tiering.age_ms if age_ms is None else age_ms,
        )

    async def _select(
        self, facts: Mapping[TopicId, TopicFacts], now_ms: int, kinds: Sequence[UnitKind]
    ) -> Selection:
        ages = {topic_id: one.age_ms for topic_id, one in facts.items()}
        aged = await self._control.aged_partitions(ages)
        selection = select(aged, facts, self._tiering, now_ms)
        if UnitKind.MERGE not in kinds:
            selection.merges = []
        if UnitKind.SPLIT not in kinds:
            selection.splits = []
        return selection

    async def plan(
        self, kinds: Sequence[UnitKind] = tuple(UnitKind), topics: Sequence[str] | None = None
    ) -> tuple[Selection, list[Task]]:
        """What a run would do now. Claims nothing and changes nothing."""
        facts = await self._facts(topics)
        now_ms = self._clock.now_ms()
        selection = await self._select(facts, now_ms, kinds)
        wishes = _wishes(selection)
        claims = [_pretended(wish) for wish in wishes]
        claimed = await self._load(claims)
        return selection, self._tasks(claimed, facts, now_ms)

    def _tasks(
        self, claimed: Sequence[ClaimedRows], facts: Mapping[TopicId, TopicFacts], now_ms: int
    ) -> list[Task]:
        merges = [one for one in claimed if one.claim.kind is UnitKind.MERGE]
        splits = [one for one in claimed if one.claim.kind is UnitKind.SPLIT]
        return [
            *plan_merges(merges, facts, self._tiering, now_ms),
            *plan_splits(splits, facts, self._tiering),
        ]

    async def _load(self, claims: Sequence[Claim]) -> list[ClaimedRows]:
        """The rows of each claim, many partitions at a time."""
        rows: dict[TopicPartition, list[Coordinates]] = {one.partition: [] for one in claims}
        looking = list(claims)
        while looking:
            chunk, looking = looking[:_SPANS_AT_ONCE], looking[_SPANS_AT_ONCE:]
            spans = [_span(claim, rows[claim.partition]) for claim in chunk]
            for claim, found in zip(chunk, await self._control.find_batches(spans), strict=True):
                within = [row for row in found.rows if row.last_offset < claim.end_offset]
                rows[claim.partition].extend(within)
                if within and within[-1].last_offset + 1 < claim.end_offset:
                    looking.append(claim)
        return [ClaimedRows(claim=claim, rows=rows[claim.partition]) for claim in claims]

    # Working.

    async def _convert(
        self,
        run: Run,
        selection: Selection,
        facts: Mapping[TopicId, TopicFacts],
        report: Report,
    ) -> None:
        wishes = _wishes(selection)
        if not wishes:
            return
        claims = await self._claim(run, wishes)
        report.elsewhere += len(wishes) - len(claims)
        work = _Work(self, run, claims, facts, report)
        async with work.claims_kept():
            claimed = await work.sound(await self._load(claims))
            await work.execute(self._tasks(claimed, facts, run.started_ms))

    async def _rewrite_dead(
        self, run: Run, facts: Mapping[TopicId, TopicFacts], report: Report
    ) -> None:
        """Move the last rows out of objects that are mostly dead, whoever keeps them there."""
        ids = await self._control.mostly_dead_objects(
            older_than_ms=self._tiering.age_ms, max_live_part=_DEAD_PART, limit=_DEAD_OBJECTS
        )
        by_partition: dict[TopicPartition, list[Coordinates]] = {}
        for row in await self._control.coordinates_in(ids) if ids else []:
            if row.topic_id in facts:
                key = TopicPartition(row.topic_id, row.partition)
                by_partition.setdefault(key, []).append(row)
        if not by_partition:
            return
        wishes = [
            ClaimWish(
                partition=key,
                kind=UnitKind.SPLIT,
                first_offset=rows[0].base_offset,
                end_offset=Offset(rows[-1].last_offset + 1),
            )
            for key, rows in by_partition.items()
        ]
        claims = await self._claim(run, wishes, also_parked=True)
        work = _Work(self, run, claims, facts, report)
        async with work.claims_kept():
            claimed = [
                ClaimedRows(claim=claim, rows=by_partition[claim.partition]) for claim in claims
            ]
            await work.execute(plan_rewrites(claimed, facts, self._tiering))

    async def _claim(
        self, run: Run, wishes: Sequence[ClaimWish], *, also_parked: bool = False
    ) -> list[Claim]:
        return await self._control.claim_ranges(
            run.run_id,
            wishes,
            duration_ms=self._tiering.splitter_claim_duration_ms,
            max_attempts=self._tiering.max_attempts,
            also_parked=also_parked,
        )


class _Work:
    """The units of one run, while they are worked on."""

    def __init__(
        self,
        driver: Driver,
        run: Run,
        claims: Sequence[Claim],
        facts: Mapping[TopicId, TopicFacts],
        report: Report,
    ) -> None:
        self._driver = driver
        self._control = driver._control
        self._run = run
        self._report = report
        self._units = Units(
            Unit(claim=claim, name=_name(claim.partition, facts)) for claim in claims
        )
        self._settled: set[ClaimToken] = set()

    @asynccontextmanager
    async def claims_kept(self) -> AsyncIterator[None]:
        """Renew the claims meanwhile, and give back in the end what was not settled."""
        renewing = asyncio.create_task(self._renew_forever())
        try:
            yield
        finally:
            renewing.cancel()
            with suppress(asyncio.CancelledError):
                await renewing
            left = [unit.claim.token for unit in self._units.unsettled(self._settled)]
            if left:
                with suppress(StratalogError):
                    await self._control.release_claims(left, succeeded=False)

    async def _renew_forever(self) -> None:
        duration_ms = self._driver._tiering.splitter_claim_duration_ms
        while True:
            await self._driver._clock.sleep(duration_ms / 1000 / _RENEWALS_PER_CLAIM)
            try:
                await self._control.renew_claims(self._run.run_id, duration_ms=duration_ms)
            except StratalogError as error:
                log.warning("The claims of this run could not be renewed: %s", error)

    async def sound(self, claimed: Sequence[ClaimedRows]) -> list[ClaimedRows]:
        """Those whose rows are as the claims say. The others were changed, or have a hole."""
        sound = []
        for one in claimed:
            unit = self._units[one.claim.token]
            try:
                check_rows(one)
            except HoleError as error:
                if await self._has_moved(one):
                    unit.overtaken = True
                else:
                    unit.error = str(error)
                await self._settle([unit])
            else:
                sound.append(one)
        return sound

    async def _has_moved(self, one: ClaimedRows) -> bool:
        states = await self._control.partitions([one.claim.partition])
        state = states.get(one.claim.partition)
        return state is None or state.block_start > one.claim.first_offset

    async def execute(self, tasks: Sequence[Task]) -> None:
        self._units.plan(tasks)
        idle = [unit for unit in self._units.idle() if unit.claim.token not in self._settled]
        await self._settle(idle)
        if not tasks:
            return
        bins = _bins(tasks)
        async with self._driver._open_jobs() as jobs, aclosing(jobs.run(bins)) as outcomes:
            async for outcome in outcomes:
                await self._take(outcome)

    async def _take(self, outcome: BinOutcome) -> None:
        """Commit what a bin brought, and settle the units that wait for nothing else."""
        if isinstance(outcome, BinDone):
            for done in outcome.answers:
                await self._commit(done)
        else:
            for token in {token for task in outcome.work.tasks for token in tokens_of(task)}:
                self._fail(self._units[token], str(outcome.error))
        for task in outcome.work.tasks:
            await self._settle(self._units.task_ended(task))

    async def _commit(self, done: TaskDone) -> None:
        self._report.add(done.effort)
        for failed in done.failed:
            self._fail(self._units[failed.token], failed.error)
        for made in done.logs:
            self._units[made.token].made[made.built.base_offset] = made
        for token in dict.fromkeys(made.token for made in done.logs):
            await self._finish_ready(self._units[token])
        for split in done.splits:
            await self._commit_split(split)

    async def _finish_ready(self, unit: Unit) -> None:
        while (ready := unit.ready()) is not None:
            made, plan = ready
            try:
                outcome = await self._driver._finisher.finish(made, plan)
            except (BoundaryMovedError, ClaimLostError, SegmentStateError):
                unit.overtaken = True
            except StratalogError as error:
                self._fail(unit, str(error))
            else:
                if outcome is ChainOutcome.CHAINED:
                    self._report.segments += 1
                    self._report.merged_bytes += plan.size_bytes
                    self._report.rows_removed += len(plan.rows)

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
            outcomes = await self._repeated(commit)
        except BarredObjectError:
            outcomes = [SplitOutcome.ROWS_CHANGED] * len(split.parts)
        except StratalogError as error:
            for part in split.parts:
                self._fail(self._units[part.token], str(error))
            return
        self._report.split_files += SplitOutcome.SWAPPED in outcomes
        for part, outcome in zip(split.parts, outcomes, strict=True):
            if outcome is SplitOutcome.SWAPPED:
                self._report.split_bytes += sum(row.byte_size for row in part.new_rows)
                self._report.rows_removed += len(part.old_rows) - len(part.new_rows)
            else:
                self._units[part.token].overtaken = True

    async def _repeated(self, commit: SplitToCommit) -> list[SplitOutcome]:
        """To commit a split file again is harmless: doubt about it is settled by doing so."""
        for _ in range(_COMMIT_ATTEMPTS - 1):
            try:
                return await self._control.commit_split(commit)
            except RetriableError as error:
                log.info("A split file is committed again: %s", error)
        return await self._control.commit_split(commit)

    def _fail(self, unit: Unit, error: str) -> None:
        if not unit.is_broken:
            unit.error = error

    async def _settle(self, units: Sequence[Unit]) -> None:
        failed = {unit.claim.token: unit.error for unit in units if unit.error is not None}
        good = [unit for unit in units if not unit.is_broken]
        overtaken = [unit for unit in units if unit.overtaken]
        self._settled |= {unit.claim.token for unit in units}
        if good:
            await self._control.release_claims([unit.claim.token for unit in good])
        if overtaken:
            tokens = [unit.claim.token for unit in overtaken]
            await self._control.release_claims(tokens, succeeded=False)
        if failed:
            await self._note_failures({t: e for t, e in failed.items() if e is not None})
        for unit in good:
            if unit.claim.kind is UnitKind.MERGE:
                self._report.merged_partitions += 1
            else:
                self._report.split_partitions += 1
        self._report.overtaken += len(overtaken)

    async def _note_failures(self, errors: Mapping[ClaimToken, str]) -> None:
        parked = await self._control.fail_claims(
            errors, max_attempts=self._driver._tiering.max_attempts
        )
        for token, error in errors.items():
            unit = self._units[token]
            self._report.failed[unit.name] = error
            if unit.claim.partition in parked:
                self._report.parked.append(unit.name)


def _note_waiting(report: Report, selection: Selection) -> None:
    report.waiting = {reason.value: len(found) for reason, found in selection.waiting.items()}


def _wishes(selection: Selection) -> list[ClaimWish]:
    return [
        *(_wish(partition, UnitKind.MERGE) for partition in selection.merges),
        *(_wish(partition, UnitKind.SPLIT) for partition in selection.splits),
    ]


def _wish(partition: AgedPartition, kind: UnitKind) -> ClaimWish:
    return ClaimWish(
        partition=partition.topic_partition,
        kind=kind,
        first_offset=partition.first_offset,
        end_offset=partition.end_offset,
    )


def _pretended(wish: ClaimWish) -> Claim:
    """A claim that nobody made, for a plan that nobody executes."""
    return Claim(
        token=ClaimToken(uuid4()),
        run_id=RunId(UUID(int=0)),
        partition=wish.partition,
        kind=wish.kind,
        first_offset=wish.first_offset,
        end_offset=wish.end_offset,
        expires_ms=0,
        attempts=0,
    )


def _span(claim: Claim, rows: Sequence[Coordinates]) -> Span:
    offset = Offset(rows[-1].last_offset + 1) if rows else claim.first_offset
    topic_id, partition = claim.partition
    return Span(topic_id=topic_id, partition=partition, offset=offset, max_bytes=_ALL_BYTES)


def _bins(tasks: Sequence[Task]) -> list[Bin]:
    """Enough tasks that Spark's price for a job is small, few enough that units settle early."""
    groups = [tasks[at : at + _BIN_TASKS] for at in range(0, len(tasks), _BIN_TASKS)]
    return [
        Bin(name=f"job {number} of {len(groups)}", tasks=group)
        for number, group in enumerate(groups, 1)
    ]


def _name(partition: TopicPartition, facts: Mapping[TopicId, TopicFacts]) -> str:
    return f"{facts[partition.topic_id].name}-{partition.partition}"
