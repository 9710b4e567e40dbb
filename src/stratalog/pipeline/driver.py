"""One run of the pipeline: select, claim, plan, execute, commit unit by unit, clean.

The driver alone uses the control plane; executors use only the object store. A run may end
anywhere. Its claims expire, the sweeper removes the objects that its executors have written and
that were not committed, and the next run finds the partitions as they are.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, NamedTuple
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
from stratalog.errors import StratalogError
from stratalog.ids import TopicId, TopicPartition, new_uuid
from stratalog.objects.store import ObjectStore
from stratalog.pipeline.execution import DriverServices, Execution
from stratalog.pipeline.jobs import OpenJobs
from stratalog.pipeline.kinds.kind import ClaimedWork, Kind, SearchKind, SearchScope
from stratalog.pipeline.kinds.registry import AGED_KINDS, kind_named, search_kinds
from stratalog.pipeline.kinds.segment_finisher import SegmentFinisher
from stratalog.pipeline.kinds.unchained_segments import chain_finished
from stratalog.pipeline.plan.claimed_rows import ClaimedRows
from stratalog.pipeline.plan.selection import Reason, Selection, select
from stratalog.pipeline.plan.tasks import Effort, Task
from stratalog.pipeline.report import Report
from stratalog.pipeline.report_saver import saved_meanwhile
from stratalog.pipeline.row_loader import load_rows
from stratalog.pipeline.topic_facts import TopicFacts, facts_of, with_triggers
from stratalog.pipeline.units import Unit
from stratalog.settings import Settings

log = logging.getLogger(__name__)

BOTH = tuple(UnitKind)
_MOST_VAIN_RUNS = 3
"""Stop `run_until_idle` after this many runs in a row that did nothing although another might. The
condition that makes a run look so may last."""


class Plan(NamedTuple):
    selection: Selection
    tasks: Sequence[Task]
    """The tasks of all kinds."""


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
        """`check_store` raises if the store is not this cluster's. `clean` deletes objects that are
        not needed any more and returns their number. `effort` returns the driver's own use of the
        store so far."""
        self._control = control
        self._services = DriverServices(
            control=control,
            objects=objects,
            finisher=finisher,
            settings=settings.tiering,
            clock=clock,
        )
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
        """Convert aged partitions, within the budget of one run."""
        await self._check_topics(topics)
        return await self._run(kinds, topics)

    async def run_until_idle(
        self, kinds: Sequence[UnitKind] = BOTH, topics: Sequence[str] | None = None
    ) -> Report:
        """Run again and again, until a run has found nothing to do."""
        last = total = await self.run(kinds, topics)
        vain = 0
        while not last.did_nothing or (_was_in_vain(last) and vain < _MOST_VAIN_RUNS):
            vain = vain + 1 if last.did_nothing else 0
            # Without the check of topic names: a topic may be deleted meanwhile.
            last = await self._run(kinds, topics)
            total.include(last)
        return total

    async def select(
        self, kinds: Sequence[UnitKind] = BOTH, topics: Sequence[str] | None = None
    ) -> Selection:
        """Return the selection that a run would make now. Only the control plane is read."""
        facts = await self._facts(topics)
        return await self._select(facts, self._clock.now_ms(), kinds)

    async def plan(
        self, kinds: Sequence[UnitKind] = BOTH, topics: Sequence[str] | None = None
    ) -> Plan:
        """Return the plan that a run would execute now. Claims nothing and changes nothing."""
        await self._check_topics(topics)
        facts = await self._facts(topics)
        now_ms = self._clock.now_ms()
        selection = await self._select(facts, now_ms, kinds)
        claims = [_pretended(wish) for wish in _wishes(selection)]
        tasks = self._plan_aged(await self._load(claims), selection, facts, now_ms)
        spared = selection.postponed | {one.topic_partition for one in selection.selected}
        converted = [row for task in tasks for rows in task.row_lists for row in rows]
        scope = self._scope(selection, facts, spared, converted)
        for kind in search_kinds(kinds):
            found = await kind.search(scope)
            if found is not None:
                tasks += found.plan([_pretended(wish) for wish in found.wishes])
        return Plan(selection, tasks)

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
        for kind in search_kinds(kinds):
            await self._search(kind, run, selection, facts, report)
        if self._clean is not None:
            report.objects_deleted = await self._clean()

    # Planning.

    async def _check_topics(self, names: Sequence[str] | None) -> None:
        """Refuse a mistyped name, which would look like a topic without work."""
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
        return select(aged, facts, self._tiering, now_ms, AGED_KINDS, kinds)

    async def _select_and_claim(
        self,
        run: Run,
        kinds: Sequence[UnitKind],
        facts: Mapping[TopicId, TopicFacts],
        report: Report,
    ) -> tuple[Selection, list[Claim]]:
        """Select and claim, and select again in two cases.

        Finished segments that only had to be chained change the partitions. And if other runs
        claimed everything that was selected, they may have left more for the next run.
        """
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

    def _plan_aged(
        self,
        claimed: Sequence[ClaimedRows],
        selection: Selection,
        facts: Mapping[TopicId, TopicFacts],
        now_ms: int,
    ) -> list[Task]:
        kind_of = _kinds_by_partition(selection)
        known = with_triggers(facts, selection.selected)
        tasks: list[Task] = []
        for kind in AGED_KINDS:
            of_kind = [one for one in claimed if kind_of[one.claim.partition] is kind]
            tasks += kind.plan(
                ClaimedWork(claimed=of_kind, topics=known, settings=self._tiering, now_ms=now_ms)
            )
        return tasks

    def _scope(
        self,
        selection: Selection,
        facts: Mapping[TopicId, TopicFacts],
        spared: set[TopicPartition],
        converted: Sequence[Coordinates] = (),
    ) -> SearchScope:
        return SearchScope(
            control=self._control,
            topics=facts,
            settings=self._tiering,
            selection=selection,
            spared=spared,
            converted=converted,
        )

    # Working.

    async def _convert(
        self,
        run: Run,
        selection: Selection,
        claims: Sequence[Claim],
        facts: Mapping[TopicId, TopicFacts],
        report: Report,
    ) -> None:
        """Do the work of all aged kinds together, so that their jobs share Spark."""
        if not claims:
            return
        kind_of = _kinds_by_partition(selection)
        units = [_unit(claim, kind_of[claim.partition], facts) for claim in claims]
        execution = Execution(self._services, run, units, report)
        async with execution.claims_kept():
            claimed = await execution.sound(await self._load(claims))
            tasks = self._plan_aged(claimed, selection, facts, run.started_ms)
            await execution.execute(tasks, self._open_jobs)

    async def _search(
        self,
        kind: SearchKind[Any],
        run: Run,
        selection: Selection,
        facts: Mapping[TopicId, TopicFacts],
        report: Report,
    ) -> None:
        """Let a kind search for work, and do it.

        Partitions that are converted soon, or have just failed, are spared. If the search fails,
        the run goes on: the conversions are done all the same, and cleaning must not wait.
        """
        failed = {
            one.topic_partition
            for one in selection.selected
            if _name(one.topic_partition, facts) in report.failed
        }
        try:
            scope = self._scope(selection, facts, selection.postponed | failed)
            found = await kind.search(scope)
        except StratalogError as error:
            log.warning(kind.search_failed, error)
            return
        if found is None:
            return
        claims = await self._claim(run, found.wishes, also_parked=kind.claims_parked)
        units = [_unit(claim, kind, facts) for claim in claims]
        execution = Execution(self._services, run, units, report)
        async with execution.claims_kept():
            await execution.execute(found.plan(claims), self._open_jobs)
        await found.conclude(claims, execution.stuck)

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


def _was_in_vain(report: Report) -> bool:
    """Tell whether another run may do something, although this one did nothing.

    Other runs were faster, or the first partitions failed and the next run begins with others.
    """
    return bool(report.overtaken or (report.failed and Reason.BUDGET.value in report.waiting))


def _kinds_by_partition(selection: Selection) -> dict[TopicPartition, Kind[Any]]:
    return {
        partition.topic_partition: kind_named(name)
        for name, partitions in selection.by_kind.items()
        for partition in partitions
    }


def _wishes(selection: Selection) -> list[ClaimWish]:
    return [
        _wish(partition, kind_named(name).unit_kind)
        for name, partitions in selection.by_kind.items()
        for partition in partitions
    ]


def _wish(partition: AgedPartition, kind: UnitKind) -> ClaimWish:
    return ClaimWish(
        partition=partition.topic_partition,
        kind=kind,
        first_offset=partition.first_offset,
        end_offset=partition.end_offset,
    )


def _unit(claim: Claim, kind: Kind[Any], facts: Mapping[TopicId, TopicFacts]) -> Unit:
    return Unit(
        claim=claim,
        name=_name(claim.partition, facts),
        kind=kind.name,
        counts_attempts=kind.counts_attempts,
    )


def _pretended(wish: ClaimWish) -> Claim:
    """Make up a claim, for a plan that is not executed."""
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
