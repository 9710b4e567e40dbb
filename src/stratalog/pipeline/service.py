"""The pipeline beside a broker: looks for work at its intervals, and has a child process do it.

A look is a question to the control plane. Only if there is work is the child started, and with it
Spark. The child is kept for the next work, and ended when none has come for long. A failure here is
logged with its consequence, and tried again after the next look. It never concerns the broker.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.control.pipeline.model import UnitKind
from stratalog.control.plane import ControlPlane
from stratalog.errors import StratalogError
from stratalog.extras import INSTALL_SPARK, has_spark
from stratalog.ids import Entropy, system_entropy
from stratalog.opening.cluster import open_control
from stratalog.pipeline.hosting.child_process import WORKER, Child
from stratalog.pipeline.kinds.kind import SearchKind, SearchScope, Watch
from stratalog.pipeline.kinds.registry import AGED_KINDS, SEARCH_KINDS, kind_named
from stratalog.pipeline.plan.selection import select
from stratalog.pipeline.topic_facts import facts_of
from stratalog.settings import Settings

log = logging.getLogger(__name__)

_JITTER = 0.2
"""Brokers that started together drift apart by up to this part of the interval."""
_FAILURE_MEANS = (
    "Until it works, aged records stay in blocks and the control plane keeps their rows"
)

Look = Callable[[ControlPlane, Settings], Awaitable[Sequence[UnitKind]]]


Watches = Sequence[tuple[SearchKind[Any], Watch]]
"""The kinds that search for their work, each with its watch."""


def new_watches() -> Watches:
    return [(kind, kind.watch()) for kind in SEARCH_KINDS]


async def kinds_of_work(
    control: ControlPlane, settings: Settings, watches: Watches | None = None
) -> Sequence[UnitKind]:
    """Return the kinds for which a run would find work now.

    A caller that asks again and again keeps its `watches`, which remember how far they looked.
    """
    facts = facts_of(await control.topics.all(), settings)
    aged = await control.pipeline.aged_partitions(
        {topic: each.age_ms for topic, each in facts.items()}
    )
    selection = select(aged, facts, settings.tiering, SYSTEM_CLOCK.now_ms(), AGED_KINDS)
    found = {kind_named(name).unit_kind for name, chosen in selection.by_kind.items() if chosen}
    scope = SearchScope(
        control=control,
        topics=facts,
        settings=settings.tiering,
        selection=selection,
        spared=selection.postponed | {one.topic_partition for one in selection.selected},
    )
    for kind, watch in watches or new_watches():
        if kind.unit_kind not in found and await _finds_any(kind, watch, scope):
            found.add(kind.unit_kind)
    return [kind for kind in UnitKind if kind in found]


async def _finds_any(kind: SearchKind[Any], watch: Watch, scope: SearchScope) -> bool:
    try:
        return await watch.finds_any(scope)
    except StratalogError as error:
        log.warning(kind.search_failed, error)
        return False


@dataclass(slots=True)
class _Due:
    """The time of the next look for each kind of work, by the monotonic clock."""

    at_s: dict[UnitKind, float]

    def next(self) -> float:
        return min(self.at_s.values())

    def kinds(self, now_s: float) -> list[UnitKind]:
        return [kind for kind, at_s in self.at_s.items() if at_s <= now_s]


class PipelineService:
    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        entropy: Entropy = system_entropy,
        look: Look | None = None,
        command: Sequence[str] = WORKER,
    ) -> None:
        self._settings = settings
        self._clock = clock or SYSTEM_CLOCK
        self._entropy = entropy
        self._look = look or partial(kinds_of_work, watches=new_watches())
        self._command = command
        self._child: Child | None = None
        self._used_s = 0.0
        self._task: asyncio.Task[None] | None = None
        tiering = settings.tiering
        self._intervals_s = {
            UnitKind.SPLIT: tiering.splitter_interval_ms / 1000,
            UnitKind.MERGE: tiering.merger_interval_ms / 1000,
        }

    @property
    def child(self) -> Child | None:
        return self._child

    def start(self) -> None:
        """Look for work in the background from now on.

        Nothing is started if tiering is off, if the store is the memory of this process, which no
        child can read, or if Spark is not installed. Only the last is a surprise, and is logged.
        """
        in_memory = self._settings.storage.objects.startswith("memory:")
        if not self._settings.tiering.enabled or in_memory or self._task is not None:
            return
        if not has_spark():
            log.warning(
                "Spark is not installed: aged records wait for a pipeline elsewhere, or for %s",
                INSTALL_SPARK,
            )
            return
        self._task = asyncio.create_task(self._run_forever(), name="pipeline")

    async def stop(self) -> None:
        """Stop at once. The child's unfinished work is left to the next run."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        await self._end_child()

    async def _run_forever(self) -> None:
        control: ControlPlane | None = None
        now_s = self._clock.monotonic()
        due = _Due({kind: now_s + self._pause_s(kind) for kind in UnitKind})
        try:
            while True:
                await self._clock.sleep(max(0.0, due.next() - self._clock.monotonic()))
                kinds = due.kinds(self._clock.monotonic())
                try:
                    if control is None:
                        control = await open_control(self._settings)
                    await self._serve(control, kinds)
                except Exception as error:
                    await self._note_failure(error)
                now_s = self._clock.monotonic()
                due.at_s |= {kind: now_s + self._pause_s(kind) for kind in kinds}
        finally:
            if control is not None:
                await control.close()

    async def _serve(self, control: ControlPlane, kinds: Sequence[UnitKind]) -> None:
        found = [kind for kind in await self._look(control, self._settings) if kind in kinds]
        if not found:
            await self._end_idle_child()
            return
        if self._child is None or not self._child.is_alive:
            log.info("Aged records wait: the process of the pipeline is started.")
            self._child = await Child.start(self._settings, self._command)
        _log_report(await self._child.run(found))
        self._used_s = self._clock.monotonic()

    async def _end_idle_child(self) -> None:
        idle_s = self._clock.monotonic() - self._used_s
        if self._child is not None and idle_s * 1000 >= self._settings.tiering.idle_ms:
            await self._end_child()

    async def _note_failure(self, error: Exception) -> None:
        known = isinstance(error, StratalogError)
        log.warning(
            "The pipeline could not work, and will try again: %s. %s.",
            error if known else repr(error),
            _FAILURE_MEANS,
            exc_info=None if known else error,
        )
        await self._end_child()

    async def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await child.stop()

    def _pause_s(self, kind: UnitKind) -> float:
        spread = int.from_bytes(self._entropy(2)) / 0xFFFF * 2 - 1
        return self._intervals_s[kind] * (1 + _JITTER * spread)


def _log_report(report: Mapping[str, Any]) -> None:
    if "error" in report:
        log.warning("A run of the pipeline failed: %s. %s.", report["error"], _FAILURE_MEANS)
        return
    for partition, error in report["failed"].items():
        log.warning("The pipeline could not convert %s: %s", partition, error)
    for partition in report["parked"]:
        log.warning(
            "%s is parked: see `stratalog pipeline status`, then `stratalog pipeline unpark`",
            partition,
        )
    if report["failed_partitions"] > len(report["failed"]):
        log.warning(
            "In all, the pipeline could not convert %d partitions, and has parked %d.",
            report["failed_partitions"],
            report["parked_partitions"],
        )
    log.info(
        "The pipeline made %d segments and %d split files in %.1f s.",
        report["segments"],
        report["split_files"],
        report["seconds"],
    )
