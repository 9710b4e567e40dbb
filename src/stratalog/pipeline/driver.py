"""One run of the pipeline: plan, claim, execute, commit unit by unit, clean.

The driver alone talks to the control plane; executors touch the object store alone. A run may end
anywhere. Its claims expire, what its executors have written and nobody committed is swept, and the
next run finds the partitions as they are.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import NamedTuple
from uuid import UUID

from stratalog.clock import Clock
from stratalog.control.log.model import Coordinates
from stratalog.control.pipeline.model import (
    AgedPartition,
    Claim,
    ClaimToken,
    ClaimWish,
    Run,
    RunId,
    UnitKind,
)
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.control.topics.model import Topic
from stratalog.errors import StratalogError
from stratalog.ids import TopicId, TopicPartition, new_uuid
from stratalog.objects.store import ObjectStore
from stratalog.pipeline.execution import OpenJobs, Work
from stratalog.pipeline.held_claims import Unit
from stratalog.pipeline.kinds.rewrite_search import (
    LOOK_FAILED,
    Rewrites,
    converted_now,
    converted_soon,
    find_rewrites,
    left_bytes,
    objects_given_up,
    rewrite_wishes,
)
from stratalog.pipeline.kinds.segment_finisher import SegmentFinisher
from stratalog.pipeline.kinds.unchained_segments import chain_finished
from stratalog.pipeline.plan.merge_plan import ClaimedRows, plan_merges
from stratalog.pipeline.plan.selection import Reason, Selection, TopicFacts, select, with_triggers
from stratalog.pipeline.plan.split_plan import plan_rewrites, plan_splits
from stratalog.pipeline.plan.tasks import Effort, SplitTask, Task, row_lists
from stratalog.pipeline.report import Report
from stratalog.pipeline.report_saver import saved_meanwhile
from stratalog.pipeline.row_loader import load_rows
from stratalog.settings import Settings
from stratalog.topic.configs import effective
from stratalog.topic_configs import TopicConfigError

log = logging.getLogger(__name__)

BOTH = tuple(UnitKind)
_MOST_VAIN_RUNS = 3
"""In a row, of runs that did nothing, and another may. What seems to be that may last."""


class Plan(NamedTuple):
    selection: Selection
    tasks: Sequence[Task]
    rewrites: Sequence[SplitTask]
    """Out of objects that are mostly dead."""


class Driver:
    def __init__(
        self,
        *,
        control: ControlPlane,
        objects: ObjectStore,
        finisher: SegmentFinisher,
        open_jobs: OpenJobs,
        settings: Settings,
        clock: Clock,
        holder: str,
        check_store: Callable[[], Awaitable[None]],
        clean: Callable[[], Awaitable[int]] | None = None,
        effort: Callable[[], Effort] = Effort,
    ) -> None:
        """`check_store` raises if the store is not this cluster's; `clean` deletes what nobody
        needs any more and answers how many objects that were; `effort` tells what the driver itself
        has asked of the store so far."""
        self._control = control
        self._objects = objects
        self._finisher = finisher
        self._open_jobs = open_jobs
        self._settings = settings
        self._tiering = settings.tiering
        self._clock = clock
        self._holder = holder
        self._clean = clean
        self._effort = effort
        self._check_store = check_store

    async def run(
        self, kinds: Sequence[UnitKind] = BOTH, topics: Sequence[str] | None = None
    ) -> Report:
        """Convert what has aged, within a run's budget."""
        await self._check_topics(topics)
        return await self._run(kinds, topics)

    async def _run(self, kinds: Sequence[UnitKind], topics: Sequence[str] | None) -> Report:
        await self._check_store()
        started_s, before = self._clock.monotonic(), self._effort()
        report = Report()
        run = await self._control.pipeline.begin_run(self._holder)
        finished = False
        try:
            async with saved_meanwhile(self._control, run.run_id, report, self._clock):
                await self._work(run, kinds, await self._facts(topics), report)
            finished = True
        finally:
            report.add(_since(before, self._effort()))
            report.seconds = self._clock.monotonic() - started_s
            with suppress(StratalogError):
                await self._control.pipeline.save_run(
                    run.run_id, report.to_json(), finished=finished
                )
        return report

    async def run_until_idle(
        self, kinds: Sequence[UnitKind] = BOTH, topics: Sequence[str] | None = None
    ) -> Report:
        """Run again and again, until a run has found nothing to do."""
        last = total = await self.run(kinds, topics)
        vain = 0
        while not last.did_nothing or (_was_in_vain(last) and vain < _MOST_VAIN_RUNS):
            vain = vain + 1 if last.did_nothing else 0
            # A topic that was deleted meanwhile is nobody's mistake.
            last = await self._run(kinds, topics)
            total.include(last)
        return total

    async def select(
        self, kinds: Sequence[UnitKind] = BOTH, topics: Sequence[str] | None = None
    ) -> Selection:
        """What a run would work on now: a look at the control plane, and nothing else."""
        facts = await self._facts(topics)
        return await self._select(facts, self._clock.now_ms(), kinds)

    async def plan(
        self, kinds: Sequence[UnitKind] = BOTH, topics: Sequence[str] | None = None
    ) -> Plan:
        """What a run would do now. Claims nothing and changes nothing."""
        await self._check_topics(topics)
        facts = await self._facts(topics)
        now_ms = self._clock.now_ms()
        selection = await self._select(facts, now_ms, kinds)
        claims = [_pretended(wish) for wish in _wishes(selection)]
        known = with_triggers(facts, selection.merges)
        tasks = self._tasks(await self._load(claims), known, now_ms)
        return Plan(selection, tasks, await self._plan_rewrites(selection, tasks, kinds, facts))

    async def _plan_rewrites(
        self,
        selection: Selection,
        tasks: Sequence[Task],
        kinds: Sequence[UnitKind],
        facts: Mapping[TopicId, TopicFacts],
    ) -> list[SplitTask]:
        if UnitKind.SPLIT not in kinds:
            return []
        spared = converted_soon(selection) | converted_now(selection)
        converted = [row for task in tasks for rows in row_lists(task) for row in rows]
        rewrites = await self._find_rewrites(selection, facts, spared, converted)
        claims = [_pretended(wish) for wish in rewrite_wishes(rewrites)]
        return plan_rewrites(_with_rows(claims, rewrites), facts, self._tiering)

    async def _work(
        self,
        run: Run,
        kinds: Sequence[UnitKind],
        facts: Mapping[TopicId, TopicFacts],
        report: Report,
    ) -> None:
        selection, claims = await self._select_and_claim(run, kinds, facts, report)
        report.waiting = {reason.value: len(found) for reason, found in selection.waiting.items()}
        await self._convert(run, selection, claims, facts, report)
        if UnitKind.SPLIT in kinds:
            await self._rewrite_dead(run, selection, facts, report)
        if self._clean is not None:
            report.objects_deleted = await self._clean()

    # Planning.

    async def _check_topics(self, names: Sequence[str] | None) -> None:
        """A mistyped name must not look like a topic that has nothing to be done."""
        if names is None:
            return
        known = {topic.name for topic in await self._control.topics.all()}
        for name in names:
            if name not in known:
                close = get_close_matches(name, known, n=1)
                hint = f'did you mean "{close[0]}"?' if close else "is this the one you mean?"
                place = self._control.url
                raise UnknownTopicError(f'there is no topic "{name}" in {place}: {hint}')

    async def _facts(self, names: Sequence[str] | None) -> dict[TopicId, TopicFacts]:
        topics = await (
            self._control.topics.all() if names is None else self._control.topics.named(names)
        )
        return facts_of(topics, self._settings)

    async def _select(
        self, facts: Mapping[TopicId, TopicFacts], now_ms: int, kinds: Sequence[UnitKind]
    ) -> Selection:
        ages = {topic_id: one.age_ms for topic_id, one in facts.items()}
        aged = await self._control.pipeline.aged_partitions(ages)
        return select(aged, facts, self._tiering, now_ms, kinds)

    async def _select_and_claim(
        self,
        run: Run,
        kinds: Sequence[UnitKind],
        facts: Mapping[TopicId, TopicFacts],
        report: Report,
    ) -> tuple[Selection, list[Claim]]:
        """Look again if segments were found that only had to be chained; and if others were faster
        and took all that was selected: there may be more, which they have left for the next run."""
        before: list[ClaimWish] = []
        while True:
            selection = await self._select(facts, run.started_ms, kinds)
            wishes = _wishes(selection)
            if await chain_finished(self._control, {wish.partition for wish in wishes}):
                continue
            claims = await self._claim(run, wishes) if wishes else []
            if claims or wishes == before:
                report.elsewhere = len(wishes) - len(claims)
                return selection, claims
            before = wishes

    async def _load(self, claims: Sequence[Claim]) -> list[ClaimedRows]:
        return await load_rows(
            self._control,
            claims,
            max_rows=self._tiering.max_batches_per_run,
            max_bytes=self._tiering.max_bytes_per_run,
        )

    def _tasks(
        self, claimed: Sequence[ClaimedRows], facts: Mapping[TopicId, TopicFacts], now_ms: int
    ) -> list[Task]:
        merges = [one for one in claimed if one.claim.kind is UnitKind.MERGE]
        splits = [one for one in claimed if one.claim.kind is UnitKind.SPLIT]
        return [
            *plan_merges(merges, facts, self._tiering, now_ms),
            *plan_splits(splits, facts, self._tiering),
        ]

    # Working.

    async def _convert(
        self,
        run: Run,
        selection: Selection,
        claims: Sequence[Claim],
        facts: Mapping[TopicId, TopicFacts],
        report: Report,
    ) -> None:
        if not claims:
            return
        work = self._work_on(run, claims, facts, report)
        async with work.claims_kept():
            claimed = await work.sound(await self._load(claims))
            known = with_triggers(facts, selection.merges)
            await work.execute(self._tasks(claimed, known, run.started_ms), self._open_jobs)

    async def _rewrite_dead(
        self,
        run: Run,
        selection: Selection,
        facts: Mapping[TopicId, TopicFacts],
        report: Report,
    ) -> None:
        """Move the last rows out of objects that are mostly dead, whoever keeps them there.

        Spared are those that are converted soon, or have just failed. What was converted is no
        less so, and what can be deleted is deleted, if such objects cannot be looked for.
        """
        failed = {
            one.topic_partition
            for one in (*selection.merges, *selection.splits)
            if _name(one.topic_partition, facts) in report.failed
        }
        spared = converted_soon(selection) | failed
        try:
            rewrites = await self._find_rewrites(selection, facts, spared)
        except StratalogError as error:
            log.warning(LOOK_FAILED, error)
            return
        if not rewrites:
            return
        claims = await self._claim(run, rewrite_wishes(rewrites), also_parked=True)
        work = self._work_on(run, claims, facts, report, rewrites=True)
        async with work.claims_kept():
            claimed = _with_rows(claims, rewrites)
            await work.execute(plan_rewrites(claimed, facts, self._tiering), self._open_jobs)
        granted = {claim.partition for claim in claims}
        stuck = work.stuck | objects_given_up(rewrites, granted, selection)
        if stuck:
            # What is not noted is found out again by the next run.
            with suppress(StratalogError):
                await self._control.pipeline.note_stuck(sorted(stuck))

    async def _find_rewrites(
        self,
        selection: Selection,
        facts: Mapping[TopicId, TopicFacts],
        spared: set[TopicPartition],
        converted: Sequence[Coordinates] = (),
    ) -> Rewrites:
        return await find_rewrites(
            self._control,
            facts,
            self._tiering,
            left_bytes=left_bytes(selection, self._tiering),
            spared=spared,
            converted=converted,
        )

    async def _claim(
        self, run: Run, wishes: Sequence[ClaimWish], *, also_parked: bool = False
    ) -> list[Claim]:
        return await self._control.pipeline.claim_ranges(
            run.run_id,
            wishes,
            duration_ms=self._tiering.splitter_claim_duration_ms,
            max_attempts=self._tiering.max_attempts,
            also_parked=also_parked,
        )

    def _work_on(
        self,
        run: Run,
        claims: Sequence[Claim],
        facts: Mapping[TopicId, TopicFacts],
        report: Report,
        *,
        rewrites: bool = False,
    ) -> Work:
        return Work(
            control=self._control,
            objects=self._objects,
            finisher=self._finisher,
            settings=self._tiering,
            clock=self._clock,
            run=run,
            units=[Unit(claim=claim, name=_name(claim.partition, facts)) for claim in claims],
            report=report,
            rewrites=rewrites,
        )


def _was_in_vain(report: Report) -> bool:
    """Others were faster, or what came first has failed, and the next run begins with others."""
    return bool(report.overtaken or (report.failed and Reason.BUDGET.value in report.waiting))


def facts_of(topics: Iterable[Topic], settings: Settings) -> dict[TopicId, TopicFacts]:
    """Of all topics whose configs can be read. The others hold nobody up."""
    found = {}
    for topic in topics:
        try:
            found[topic.id] = topic_facts(topic, settings)
        except TopicConfigError as error:
            log.warning("Topic %s is not converted until it is fixed: %s", topic.name, error)
    return found


def topic_facts(topic: Topic, settings: Settings) -> TopicFacts:
    config = effective(settings.topic, topic.configs)
    age_ms = config.local_retention_ms
    return TopicFacts(
        name=topic.name,
        segment_bytes=config.segment_bytes,
        segment_ms=config.segment_ms,
        index_interval_bytes=config.index_interval_bytes,
        age_ms=settings.tiering.age_ms if age_ms is None else age_ms,
    )


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


def _with_rows(claims: Sequence[Claim], rewrites: Rewrites) -> list[ClaimedRows]:
    return [
        ClaimedRows(claim=claim, rows=rewrites[claim.partition], end_offset=claim.end_offset)
        for claim in claims
    ]


def _pretended(wish: ClaimWish) -> Claim:
    """A claim that nobody made, for a plan that nobody executes."""
    return Claim(
        token=ClaimToken(new_uuid()),
        run_id=RunId(UUID(int=0)),
        partition=wish.partition,
        kind=wish.kind,
        first_offset=wish.first_offset,
        end_offset=wish.end_offset,
        expires_ms=0,
        attempts=0,
    )


def _since(before: Effort, now: Effort) -> Effort:
    return Effort(
        bytes_read=now.bytes_read - before.bytes_read,
        bytes_written=now.bytes_written - before.bytes_written,
        requests=now.requests - before.requests,
    )


def _name(partition: TopicPartition, facts: Mapping[TopicId, TopicFacts]) -> str:
    return f"{facts[partition.topic_id].name}-{partition.partition}"
