"""The processes of a simulated cluster: brokers and pipelines, made of the real rooms."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tests.simulation.surroundings import Surroundings

from stratalog.block.announced_writer import AnnouncedWriter
from stratalog.block.fresh_blocks import FreshBlocks
from stratalog.block.newest_footers import check_not_behind
from stratalog.block.reader import BlockReader
from stratalog.block.witness import CommitWitness
from stratalog.block.writer import Advanced, BlockWriter
from stratalog.clock import Clock
from stratalog.cluster.membership import Membership
from stratalog.control.log.model import WriteTier
from stratalog.control.plane import ControlPlane
from stratalog.control.writers.model import WriterKind
from stratalog.errors import OutcomeUnknownError, RetriableError, StratalogError
from stratalog.ids import new_uuid
from stratalog.janitor.service import Janitor
from stratalog.metrics import Metrics
from stratalog.objects.store import ObjectStore
from stratalog.opening.claim import check_store, claim_segments, claim_store
from stratalog.opening.writers import announced_writer
from stratalog.pipeline.driver import Driver
from stratalog.pipeline.jobs import Begin, Bin, BinDone, BinOutcome, nothing_to_do
from stratalog.pipeline.kinds.registry import run_by_kind
from stratalog.pipeline.kinds.segment_finisher import SegmentFinisher
from stratalog.pipeline.kinds.source_reader import Pace
from stratalog.pipeline.plan.tasks import Task, TaskDone
from stratalog.pipeline.workplace import OpenWorkplace
from stratalog.retry import retry
from stratalog.segment.chunk_encoding import Encoding
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.reader import SegmentReader
from stratalog.segment.stores import SegmentStores
from stratalog.settings import Settings
from stratalog.testing.simulation import NodeClock, Process
from stratalog.topic.aborted import AbortedTransactions
from stratalog.topic.append import TopicAppender
from stratalog.topic.catalog import TopicCatalog
from stratalog.topic.open_tiers import open_tiers
from stratalog.topic.read import TopicReader
from stratalog.topic.retention import retention_by
from stratalog.topic.watermarks import Watermarks

T = TypeVar("T")

_WITNESS_MS = 500


class ConnectionLostError(Exception):
    """The broker ended before it answered, or does not run."""


class Machine:
    """Runs one process, and another one in its place after it was killed."""

    def __init__(
        self, name: str, clock: NodeClock, run: Callable[["Machine"], Coroutine[Any, Any, None]]
    ) -> None:
        self.name = name
        self.clock = clock
        self._run = run
        self.process = Process(name, clock)
        self.process.is_dead = True
        self.failures: list[str] = []
        """Processes that ended without being killed."""
        self.may_end = False
        """True while a process does right to end, because its store is another one."""
        self.stays_down = False
        """True while a disaster keeps it switched off, whatever would restart it otherwise."""

    def start(self) -> None:
        if self.process.is_dead and not self.stays_down:
            self.process = Process(self.name, self.clock)
            self.process.start(self._run(self)).add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        if not (self.may_end and isinstance(error, StratalogError)):
            self.failures.append(f"mistake: {self.name} ended: {error!r}")

    def kill(self) -> None:
        self.process.kill()


class Broker:
    """A broker without its sockets: clients call `serve`."""

    def __init__(self, name: str, clock: NodeClock, around: Surroundings) -> None:
        self._around = around
        self.settings = around.settings
        """Of the processes that are started from now on."""
        self.machine = Machine(name, clock, self._run)
        self.appender: TopicAppender | None = None
        self.reader: TopicReader | None = None
        self.control: ControlPlane | None = None
        self.membership: Membership | None = None
        self.announced: AnnouncedWriter | None = None
        self._was_started = False

    async def serve(self, work: Callable[["Broker"], Coroutine[Any, Any, T]]) -> T:
        """Do a client's request in the broker's process."""
        process = self.machine.process
        if process.is_dead or self.appender is None:
            raise ConnectionLostError(self.machine.name)

        async def gated() -> T:
            await process.passes()
            return await work(self)

        task = process.start(gated())
        await asyncio.wait([task])
        if task.cancelled():
            raise ConnectionLostError(self.machine.name)
        return task.result()

    async def _run(self, machine: Machine) -> None:
        self.appender = self.reader = self.control = self.membership = self.announced = None
        around, process, settings = self._around, machine.process, self.settings
        clock, metrics = process.clock, Metrics()
        control, store = around.control_for(process), around.store_for(process)
        await self._check_stores(control, store, clock)
        stores = SegmentStores(store, _no_other)
        membership = await self._join(machine, control)
        self.membership = membership
        watermarks = Watermarks(control=control, clock=clock, poll_ms=settings.fetch.poll_ms)
        cache = FreshBlocks(settings.block.cache_bytes)
        segments = SegmentReader(stores=stores, keys=KeyRing(), settings=settings.remote)

        announced = await _announce(control, clock, membership)
        witness = CommitWitness(announced, store, interval_ms=_WITNESS_MS, clock=clock)
        witness.start()

        def committed(advanced: Advanced) -> None:
            witness.committed()
            watermarks.advanced(advanced)

        writer = BlockWriter(
            store=store,
            control=control,
            cache=cache,
            broker_id=lambda: membership.broker_id,
            settings=settings.block,
            clock=clock,
            entropy=around.entropy(),
            metrics=metrics,
            on_commit=committed,
            announced=announced,
        )
        self.control = control
        self.announced = announced
        self.reader = TopicReader(
            control=control,
            tiers=open_tiers(blocks=BlockReader(store=store, cache=cache), segments=segments),
            aborted=AbortedTransactions(metadata=control.segments, segments=segments, clock=clock),
            watermarks=watermarks,
            clock=clock,
            max_bytes=settings.fetch.max_bytes,
        )
        self.appender = TopicAppender(
            appenders={WriteTier.BLOCK: writer},
            catalog=TopicCatalog(control=control, clock=clock),
            clock=clock,
            topic_defaults=settings.topic,
        )
        self._start_janitor(process, control, store, metrics)

    async def _check_stores(self, control: ControlPlane, store: ObjectStore, clock: Clock) -> None:
        """Claim the store, and look whether it knows more than the control plane."""
        checks: list[Callable[[], Awaitable[object]]] = [
            lambda: claim_store(control, store),
            lambda: claim_segments(control, store, store),
        ]
        if self._was_started:
            # A new cluster has forgotten nothing, and would look through two months for it.
            checks.append(lambda: check_not_behind(control, store, clock.now_ms()))
        for check in checks:
            await retry(check, clock=clock, failures=(RetriableError, OutcomeUnknownError))
        self._was_started = True

    async def _join(self, machine: Machine, control: ControlPlane) -> Membership:
        around, clock = self._around, machine.process.clock
        incarnation = new_uuid(around.entropy())
        return await retry(
            lambda: Membership.join(
                control=control,
                clock=clock,
                broker_id=None,
                host=machine.name,
                port=9092,
                rack=None,
                incarnation=incarnation,
                lease_ms=around.settings.broker.lease_ms,
                # A machine of the simulation binds its socket again after a crash.
                socket_name=machine.name,
            ),
            clock=clock,
            failures=(RetriableError, OutcomeUnknownError),
        )

    def _start_janitor(
        self, process: Process, control: ControlPlane, store: ObjectStore, metrics: Metrics
    ) -> None:
        around, settings = self._around, self.settings
        janitor = Janitor(
            control=control,
            store=store,
            retention_of=retention_by(settings.topic),
            settings=settings.janitor,
            offsets_retention_ms=settings.groups.offsets_retention_ms,
            clock=process.clock,
            segments=SegmentStores(store, _no_other),
            metrics=metrics,
            entropy=around.entropy(),
        )
        janitor.start()


async def _announce(control: ControlPlane, clock: Clock, membership: Membership) -> AnnouncedWriter:
    announced = AnnouncedWriter(control.writers.new_tag())
    await retry(
        lambda: control.writers.announce(announced.tag, WriterKind.BROKER, membership.broker_id),
        clock=clock,
        failures=(RetriableError, OutcomeUnknownError),
    )
    return announced


class Pipeline:
    """A driver that runs again and again, with its executors in its own process."""

    def __init__(
        self,
        name: str,
        clock: NodeClock,
        around: Surroundings,
        settings: Settings,
        *,
        pause_s: float,
    ) -> None:
        self._around = around
        self._settings = settings
        self.pause_s = pause_s
        self.runs = False
        """True while a run of the driver is under way, or was when its machine was killed."""
        self.machine = Machine(name, clock, self._run)

    async def _run(self, machine: Machine) -> None:
        process = machine.process
        while True:
            self.runs = False
            await process.clock.sleep(self.pause_s)
            self.runs = True
            with suppress(StratalogError):
                await self.driver(process).run()

    def driver(self, process: Process) -> Driver:
        around, settings, clock = self._around, self._settings, process.clock
        control, store = around.control_for(process), around.store_for(process)
        stores = SegmentStores(store, _no_other)
        place = OpenWorkplace(
            objects=store,
            segments=store,
            segments_prefix=settings.remote.prefix,
            encoding=Encoding(chunk_bytes=settings.remote.chunk_bytes),
            keys=KeyRing(),
            clock=clock,
            entropy=around.entropy(),
            pace=Pace(0, clock),
        )

        @asynccontextmanager
        async def open_jobs() -> AsyncIterator[InProcessJobs]:
            async with announced_writer(control, WriterKind.PIPELINE) as tag:
                yield InProcessJobs(replace(place, writer=tag))

        return Driver(
            control=control,
            objects=store,
            finisher=SegmentFinisher(
                control=control,
                metadata=control.segments,
                stores=stores,
                reader=SegmentReader(stores=stores, keys=KeyRing(), settings=settings.remote),
                keys=KeyRing(),
                clock=clock,
                producer_expiry_ms=settings.janitor.producer_expiry_ms,
            ),
            open_jobs=open_jobs,
            settings=settings,
            clock=clock,
            holder=process.name,
            check_store=lambda: _check_store(control, store),
        )


async def _check_store(control: ControlPlane, store: ObjectStore) -> None:
    await check_store(control, store)


@dataclass
class InProcessJobs:
    """Runs tasks where Spark would."""

    place: OpenWorkplace

    def distrust(self) -> None:
        """There is no session that could be broken."""

    async def run(self, bins: Sequence[Bin], begin: Begin) -> AsyncGenerator[BinOutcome, None]:
        for work in bins:
            needed = await begin(work)
            if needed is None:
                yield nothing_to_do(work)
                continue
            yield BinDone(work=work, answers=[await self._do(task) for task in needed.tasks])

    async def _do(self, task: Task) -> TaskDone:
        return await run_by_kind(task, self.place)


def _no_other(url: str) -> ObjectStore:
    raise AssertionError(url)
