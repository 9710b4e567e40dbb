"""The janitor: runs retention, deletion, sweeps and expiry again and again.

Every broker has a janitor, and the janitors need no leader. A step that fails is logged with the
consequences of the failure, and the other steps go on.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from stratalog.checks.remote_tier import SEGMENT_PREFIX, beside_blocks
from stratalog.clock import Clock
from stratalog.control.plane import ControlPlane
from stratalog.errors import StratalogError
from stratalog.ids import Entropy, system_entropy
from stratalog.janitor.retention import RetentionOf
from stratalog.janitor.segment_sweeper import SegmentSweeper, check_segment_prefix
from stratalog.janitor.steps import STEPS, Premises, Step
from stratalog.janitor.sweeper import Sweeper
from stratalog.metrics import JANITOR_FAILURES, JANITOR_REMOVED, Metrics
from stratalog.objects.store import ObjectStore
from stratalog.opening.errors import CLAIM_LOST
from stratalog.opening.segment_store import segments_role
from stratalog.segment.stores import SegmentStores
from stratalog.settings import JanitorSettings

log = logging.getLogger(__name__)

_JITTER = 0.2
"""The largest part of the interval by which a pause varies, so that brokers drift apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    name: str
    done: int
    """Rows or objects that the step removed."""
    took_objects: bool = False
    error: Exception | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The settings that a janitor goes by."""

    settings: JanitorSettings
    offsets_retention_ms: int
    retention_of: RetentionOf
    differing: frozenset[str] = frozenset()
    """Settings that this process was given, and that differ from the cluster's."""


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
        on_claim_lost: Callable[[StratalogError], None] | None = None,
        rules: Callable[[], Awaitable[Rules]] | None = None,
    ) -> None:
        """`on_claim_lost` is called if the store or the control plane turns out not to be the
        cluster's own. `rules` are asked before each run, and replace the settings given here."""
        self._settings = settings
        self._clock = clock
        self._on_claim_lost = on_claim_lost
        self._entropy = entropy
        segment_stores = segments or beside_blocks(store)
        if segment_stores.own.url == store.url:
            check_segment_prefix(segment_prefix)
        orphan_age_ms = settings.orphan_age_ms
        self._premises = Premises(
            control=control,
            store=store,
            clock=clock,
            segments=segment_stores,
            sweeper=Sweeper(control, store, clock=clock, orphan_age_ms=orphan_age_ms),
            segment_sweeper=SegmentSweeper(
                control,
                segment_stores.own,
                prefix=segment_prefix,
                clock=clock,
                orphan_age_ms=orphan_age_ms,
                role=segments_role(store, segment_stores.own),
            ),
            retention_of=retention_of,
            settings=settings,
            offsets_retention_ms=offsets_retention_ms,
        )
        self._rules = rules
        self._differing: frozenset[str] = frozenset()
        self._task: asyncio.Task[None] | None = None
        registered = metrics or Metrics()
        self._removed = registered.counter(JANITOR_REMOVED)
        self._failures = registered.counter(JANITOR_FAILURES)

    def start(self) -> None:
        """Begin to run in the background, unless the interval is 0."""
        if self._settings.interval_ms and self._task is None:
            self._task = asyncio.create_task(self._run_forever(), name="janitor")

    async def stop(self) -> None:
        """Stop at once. A step that is running is cut off."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def run_once(self) -> list[StepOutcome]:
        """Run every step, in order. A step that fails does not keep the next ones from running."""
        return await self._run(STEPS)

    async def free_store(self) -> int:
        """Run the steps that a cluster without brokers needs, too. Return the number of objects and
        segments that they removed."""
        outcomes = await self._run([step for step in STEPS if not step.brokers_only])
        return sum(outcome.done for outcome in outcomes if outcome.took_objects)

    async def _run(self, steps: Sequence[Step]) -> list[StepOutcome]:
        try:
            await self._follow_rules()
        except StratalogError as error:
            # By rules that may have changed, nothing is deleted.
            log.warning("The janitor cannot read the cluster's settings, and waits: %s", error)
            return [StepOutcome(name=step.name, done=0, error=error) for step in steps]
        return [await self._run_step(step) for step in steps]

    async def _follow_rules(self) -> None:
        if self._rules is None:
            return
        rules = await self._rules()
        self._differing = rules.differing
        self._premises = replace(
            self._premises,
            retention_of=rules.retention_of,
            settings=rules.settings,
            offsets_retention_ms=rules.offsets_retention_ms,
        )
        self._premises.sweeper.orphan_age_ms = rules.settings.orphan_age_ms
        self._premises.segment_sweeper.orphan_age_ms = rules.settings.orphan_age_ms

    async def _run_forever(self) -> None:
        while True:
            await self._clock.sleep(self._pause_seconds())
            await self.run_once()

    def _pause_seconds(self) -> float:
        spread = int.from_bytes(self._entropy(2)) / 0xFFFF * 2 - 1
        return self._settings.interval_ms / 1000 * (1 + _JITTER * spread)

    async def _run_step(self, step: Step) -> StepOutcome:
        differing = self._differing.intersection(step.goes_by)
        if differing:
            names = ", ".join(sorted(differing))
            log.warning(
                "The janitor left out %s, because this process was given %s other than the"
                " cluster's: `stratalog cluster config list` shows them.",
                step.name,
                names,
            )
            return StepOutcome(name=step.name, done=0)
        try:
            done = await step.run(self._premises)
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
            if isinstance(error, CLAIM_LOST) and self._on_claim_lost is not None:
                self._on_claim_lost(error)
            return StepOutcome(name=step.name, done=0, error=error)
        return StepOutcome(name=step.name, done=done, took_objects=step.takes_objects)
