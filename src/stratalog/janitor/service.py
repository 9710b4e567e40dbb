"""The janitor: runs retention, deletion and the sweeps, again and again.

Every broker has one. They need no leader: each step is a transaction or can be done twice. One
that fails is logged with what that means, and the others go on.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from stratalog.checks.remote_tier import SEGMENT_PREFIX, beside_blocks
from stratalog.clock import Clock
from stratalog.control.plane import ControlPlane
from stratalog.errors import StratalogError
from stratalog.ids import Entropy, system_entropy
from stratalog.janitor.deletion import delete_marked, purge_topics
from stratalog.janitor.retention import RetentionOf, enforce_retention
from stratalog.janitor.segment_sweeper import SegmentSweeper, check_segment_prefix
from stratalog.janitor.segments import clear_unfinished, delete_doomed
from stratalog.janitor.sweeper import Sweeper
from stratalog.metrics import JANITOR_FAILURES, JANITOR_REMOVED, Metrics
from stratalog.objects.store import ObjectStore
from stratalog.segment.stores import SegmentStores
from stratalog.settings import JanitorSettings

log = logging.getLogger(__name__)

_JITTER = 0.2
"""Brokers that started together drift apart by up to this part of the interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    name: str
    run: Callable[[], Awaitable[int]]
    failure_means: str
    takes_objects: bool = False
    """Whether what it removes are objects and segments of the store, not rows."""
    brokers_only: bool = False
    """Whether it forgets what only brokers ask for, and is left to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    name: str
    done: int
    """Rows or objects that the step removed."""
    took_objects: bool = False
    error: Exception | None = None


class Janitor:
    def __init__(
        self,
        *,
        control: ControlPlane,
        store: ObjectStore,
        retention_of: RetentionOf,
        settings: JanitorSettings,
        offsets_retention_ms: int,
        clock: Clock,
        segments: SegmentStores | None = None,
        segment_prefix: str = SEGMENT_PREFIX,
        metrics: Metrics | None = None,
        entropy: Entropy = system_entropy,
    ) -> None:
        self._control = control
        self._store = store
        self._retention_of = retention_of
        self._settings = settings
        self._offsets_retention_ms = offsets_retention_ms
        self._clock = clock
        self._entropy = entropy
        self._segments = segments or beside_blocks(store)
        if self._segments.own.url == store.url:
            check_segment_prefix(segment_prefix)
        self._sweeper = Sweeper(control, store, clock=clock, orphan_age_ms=settings.orphan_age_ms)
        self._segment_sweeper = SegmentSweeper(
            control,
            self._segments.own,
            prefix=segment_prefix,
            clock=clock,
            orphan_age_ms=settings.orphan_age_ms,
        )
        self._steps = self._make_steps()
        self._task: asyncio.Task[None] | None = None
        registered = metrics or Metrics()
        self._removed = registered.counter(JANITOR_REMOVED)
        self._failures = registered.counter(JANITOR_FAILURES)

    def start(self) -> None:
        """Begin to run in the background, unless the interval is 0."""
        if self._settings.interval_ms and self._task is None:
            self._task = asyncio.create_task(self._run_forever(), name="janitor")

    async def stop(self) -> None:
        """Stop at once: every step can be cut off anywhere."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def run_once(self) -> list[StepOutcome]:
        """Run every step, in order, whatever becomes of the others."""
        return [await self._run_step(step) for step in self._steps]

    async def free_store(self) -> int:
        """Run the steps that are due without brokers, too; return how many objects and segments
        they took."""
        steps = [step for step in self._steps if not step.brokers_only]
        outcomes = [await self._run_step(step) for step in steps]
        return sum(outcome.done for outcome in outcomes if outcome.took_objects)

    async def _run_forever(self) -> None:
        while True:
            await self._clock.sleep(self._pause_seconds())
            await self.run_once()

    def _pause_seconds(self) -> float:
        spread = int.from_bytes(self._entropy(2)) / 0xFFFF * 2 - 1
        return self._settings.interval_ms / 1000 * (1 + _JITTER * spread)

    async def _run_step(self, step: _Step) -> StepOutcome:
        try:
            done = await step.run()
            self._removed.labels(step.name).inc(done)
        except Exception as error:
            self._failures.labels(step.name).inc()
            known = isinstance(error, StratalogError)
            log.warning(
                "The janitor could not finish %s, and will try again: %s. Until then %s.",
                step.name,
                error if known else repr(error),
                step.failure_means,
                exc_info=None if known else error,
            )
            return StepOutcome(name=step.name, done=0, error=error)
        return StepOutcome(name=step.name, done=done, took_objects=step.takes_objects)

    def _make_steps(self) -> list[_Step]:
        return [
            _Step(
                name="retention",
                run=self._enforce_retention,
                failure_means="expired records stay readable and keep their space",
            ),
            _Step(
                name="topic purge",
                run=self._purge_topics,
                failure_means="deleted topics keep their space",
            ),
            _Step(
                name="deletion",
                run=self._delete_marked,
                failure_means="objects that nobody needs keep their space",
                takes_objects=True,
            ),
            _Step(
                name="unfinished segments",
                run=self._clear_unfinished,
                failure_means="segments that were never finished keep their space",
            ),
            _Step(
                name="segment deletion",
                run=self._delete_segments,
                failure_means="segments that nobody needs keep their space",
                takes_objects=True,
            ),
            _Step(
                name="sweep",
                run=self._sweep,
                failure_means="objects that were never committed keep their space",
                takes_objects=True,
            ),
            _Step(
                name="segment sweep",
                run=self._sweep_segments,
                failure_means="objects of segments that were given up keep their space",
                takes_objects=True,
            ),
            _Step(
                name="answer expiry",
                run=self._forget_answers,
                # The rows of deleted objects stay with their answers, so that a pipeline that runs
                # alone would add a row per file that it ever wrote.
                failure_means="the control plane keeps answers that nobody asks for, and the rows"
                " of deleted objects",
            ),
            _Step(
                name="producer expiry",
                run=self._expire_producers,
                failure_means="the control plane keeps the sequences of idle producers",
                brokers_only=True,
            ),
            _Step(
                name="offset expiry",
                run=self._expire_offsets,
                failure_means="groups that are long gone keep their offsets",
                brokers_only=True,
            ),
        ]

    async def _enforce_retention(self) -> int:
        return await enforce_retention(
            self._control, self._retention_of, chunk_rows=self._settings.chunk_rows
        )

    async def _purge_topics(self) -> int:
        return await purge_topics(self._control, chunk_rows=self._settings.chunk_rows)

    async def _delete_marked(self) -> int:
        return await delete_marked(
            self._control,
            self._store,
            grace_ms=self._settings.grace_ms,
            chunk_rows=self._settings.chunk_rows,
        )

    async def _clear_unfinished(self) -> int:
        return await clear_unfinished(
            self._control,
            older_than_ms=self._settings.unfinished_age_ms,
            chunk_rows=self._settings.chunk_rows,
        )

    async def _delete_segments(self) -> int:
        return await delete_doomed(
            self._control.segments,
            self._segments,
            grace_ms=self._settings.grace_ms,
            chunk_rows=self._settings.chunk_rows,
        )

    async def _sweep(self) -> int:
        return (await self._sweeper.sweep()).deleted

    async def _sweep_segments(self) -> int:
        return (await self._segment_sweeper.sweep()).deleted

    async def _forget_answers(self) -> int:
        return await self._control.log.forget_answers(older_than_ms=self._settings.answers_ms)

    async def _expire_producers(self) -> int:
        removed = 0
        while True:
            chunk = await self._control.log.expire_producers(
                idle_ms=self._settings.producer_expiry_ms, max_rows=self._settings.chunk_rows
            )
            removed += chunk
            if chunk < self._settings.chunk_rows:
                return removed

    async def _expire_offsets(self) -> int:
        removed = 0
        while True:
            chunk = await self._control.groups.expire_offsets(
                retention_ms=self._offsets_retention_ms, max_rows=self._settings.chunk_rows
            )
            removed += chunk
            if chunk < self._settings.chunk_rows:
                return removed
