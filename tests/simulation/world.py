"""One simulated run: a seed decides the cluster, the load and the faults; then everything heals,
drains, and is judged."""

import asyncio
import gc
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from tests.simulation.audits import Audit, AuditedStore
from tests.simulation.clients import Clients, Consumer, Deleter, Producer, Rereader
from tests.simulation.database import MemoryDatabase, empty_control_plane
from tests.simulation.disasters import Disasters
from tests.simulation.doors import alarmed_doors
from tests.simulation.faults import Faults
from tests.simulation.judge import judge
from tests.simulation.leases import Scanner, SlowWriter
from tests.simulation.loads import Load, load_of
from tests.simulation.mistakes import logged_mistakes
from tests.simulation.nodes import Broker, Machine, Pipeline
from tests.simulation.replacing import replaced
from tests.simulation.seals import counted_seals
from tests.simulation.strangers import BACKUP_WINDOW_MS, Backup, Stranger, draw_backups
from tests.simulation.surroundings import Surroundings
from tests.simulation.trace import Trace

from stratalog.control.identity import model as identity
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.model import Topic
from stratalog.janitor import segment_sweeper
from stratalog.settings import Settings
from stratalog.testing.checker.history import Event
from stratalog.testing.simulation import (
    MemoryStore,
    Network,
    NodeClock,
    Process,
    SimulatedFolder,
    run_simulated,
)

BROKERS = 3
PIPELINES = 2
LOAD_S = 9.0
PATIENCE_S = 90.0
"""Virtual seconds after which a run is stuck. It takes about 20."""
_KEPT_CLAIMS = 4
"""Claims on the store that stay known. In earnest they are more, and a store that was set back is
known by its claim only after minutes."""
_CALM_S = 1.5
"""The pause between the runs of janitor and pipeline when nothing goes wrong any more."""
FOLDER_SEEDS = 0.2
LEASED_SEEDS = 0.3
"""The part of the seeds with leases, which keep the sweeper from its work."""


@dataclass
class Outcome:
    seed: int
    digest: str
    violations: list[str]
    counts: dict[str, int]
    virtual_s: float
    """The virtual time that the run took."""
    history: list[Event] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    """Each call over the network: time, process, target, operation, fate."""


def simulate(seed: int) -> Outcome:
    empty_control_plane()
    folder = Path(tempfile.mkdtemp(prefix="stratalog-simulation-", dir=_memory_folder()))
    try:
        with (
            alarmed_doors() as leaks,
            logged_mistakes() as mistakes,
            _no_garbage_collection(),
        ):
            outcome = run_simulated(_simulate(seed, folder))
        outcome.violations += [*dict.fromkeys([*leaks, *mistakes])]
        return outcome
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """A run leaves some ten megabytes of cycles. To look for them in its midst costs a tenth."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _memory_folder() -> str | None:
    """A disk in memory, on which a sync costs nothing: a simulated crash is never the machine's."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


async def _simulate(seed: int, folder: Path) -> Outcome:
    world = await World.build(seed, folder)
    try:
        await world.run()
    finally:
        await world.close()
    return world.outcome()


@dataclass
class World:
    seed: int
    load: Load
    around: Surroundings
    brokers: list[Broker]
    pipelines: list[Pipeline]
    clients: Clients
    topics: list[Topic]
    database: MemoryDatabase
    clock: NodeClock
    random: Random
    trace: Trace
    audit: Audit
    store: MemoryStore | SimulatedFolder
    audited: AuditedStore
    faults: Faults
    has_leases: bool
    has_backups: bool
    stranger: Stranger
    violations: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    @classmethod
    async def build(cls, seed: int, folder: Path) -> "World":
        random, trace, clock = Random(seed), Trace(), NodeClock()
        database = await MemoryDatabase.open(clock, empty_control_plane())
        control = ControlPlane(database, Random(random.random()).randbytes)
        await control.identity.found()
        network = Network(Random(random.random()), on_call=trace.note)
        load = load_of(seed, random)
        settings = _with_window(load.settings) if draw_backups(seed) else load.settings
        network.slowness_s = load.slowness_s
        audit = Audit(database.raw, clock, settings.janitor.grace_ms)
        store = _store(folder / "store", clock, Random(random.random()))
        audited = AuditedStore(store, store.holds, audit)
        around = Surroundings(
            database=database,
            store=audited,
            holds=store.holds,
            network=network,
            settings=settings,
            random=Random(random.random()),
        )
        brokers = [Broker(f"broker {n}", NodeClock(), around) for n in range(BROKERS)]
        pipelines = [_pipeline(n, around, load, random) for n in range(PIPELINES)]
        clients = _clients(network, brokers, settings, clock, random)
        machines = [one.machine for one in brokers] + [one.machine for one in pipelines]
        return cls(
            seed=seed,
            load=load,
            around=around,
            audit=audit,
            store=store,
            audited=audited,
            faults=Faults(network, machines, load, Random(random.random())),
            has_leases=random.random() < LEASED_SEEDS,
            has_backups=draw_backups(seed),
            stranger=Stranger(clients, store, seed),
            brokers=brokers,
            pipelines=pipelines,
            clients=clients,
            topics=await _make_topics(control, load),
            database=database,
            clock=clock,
            random=random,
            trace=trace,
        )

    @property
    def machines(self) -> list[Machine]:
        brokers = [broker.machine for broker in self.brokers]
        return brokers + [pipeline.machine for pipeline in self.pipelines]

    async def run(self) -> None:
        is_stuck = False
        with (
            self.audit.of_holders(),
            self.faults.chains_in_doubt(),
            counted_seals(self.faults.counts),
            replaced(identity, "_KEPT_CLAIMS", _KEPT_CLAIMS),
            replaced(segment_sweeper, "_EVERY", self.load.segment_sweep_every),
        ):
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self._run()
            except TimeoutError:
                is_stuck = True
        self.violations += [*dict.fromkeys(self.clients.violations)]
        self.violations += self.audit.finish()
        if is_stuck:
            self.violations.append(f"stuck: not over after {PATIENCE_S} s")
        self.counts.update(self.faults.counts)
        self.counts.update(self.trace.fates)
        if isinstance(self.store, SimulatedFolder):
            self.counts["torn file"] = self.store.torn_files
            self.violations += await self.store.leftovers_after(days=30)
        self.counts["damaged answer"] = self.around.network.damaged_answers

    async def _run(self) -> None:
        for machine in self.machines:
            machine.start()
        producers = await self._producers()
        consumers = [
            Consumer(self.clients, f"consumer {n}", self.topics) for n in range(self.load.consumers)
        ]
        if self.load.has_rereader:
            consumers.append(Rereader(self.clients, "rereader", self.topics))
        runs = [client.run for client in producers]
        runs += [client.run for client in consumers]
        runs += [deleter.run for deleter in self._deleters()]
        runs.append(self.stranger.run)
        if self.has_backups:
            runs.append(Backup(self.clients, self.database, self.store).run)
        if self.has_leases:
            runs.append(Scanner(self.clients, self.around, self.topics).run)
            runs.append(SlowWriter(self.clients, self.around, self.clock).run)
        loads = [asyncio.create_task(run()) for run in runs]
        breaking = asyncio.create_task(self.faults.run())
        disaster = asyncio.create_task(Disasters(self).run())
        await asyncio.sleep(LOAD_S)
        breaking.cancel()
        await asyncio.gather(breaking, return_exceptions=True)
        await disaster
        self.faults.heal()
        self.clients.is_over = True
        for result in await asyncio.gather(*loads, return_exceptions=True):
            if isinstance(result, BaseException):
                self.violations.append(f"mistake: a client failed: {result!r}")
        await self._drain()
        self.violations += await judge(self)

    async def _producers(self) -> list[Producer]:
        return [
            Producer(
                self.clients,
                f"{'idempotent' if idempotent else 'plain'} {topic.name} {partition}",
                topic,
                partition,
                producer_id=100 + 10 * number + partition if idempotent else None,
                pause_s=0.25,
                in_flight=self.random.choice(self.load.in_flight) if idempotent else None,
            )
            for number, topic in enumerate(self.topics)
            for partition in range(topic.partition_count)
            for idempotent in (True, False)
        ]

    def _deleters(self) -> list[Deleter]:
        topic, load = self.topics[1], self.load
        control = self.around.control_for(self.clients.process)
        return [
            Deleter(self.clients, control, topic, load.deleter_pause_s, load.most_kept)
            for _ in range(load.deleters)
        ]

    async def _drain(self) -> None:
        """Let pipelines and janitors finish, and read everything once more."""
        # Longer than a broker needs to see that another one has its id.
        await asyncio.sleep(2)
        self._check_broker_ids()
        for machine in self.machines:
            self.violations += machine.failures
            machine.kill()
        # Requests that are late arrive before the clocks jump.
        await asyncio.sleep(4)
        # Two quiet hours: claims end, and everything that was left behind grows old, also by the
        # clocks that were wrong.
        for clock in (self.clock, *(machine.clock for machine in self.machines)):
            clock.jump(7_200_000)
        self._start_calmly(self.brokers[0], self.pipelines[0])
        await asyncio.sleep(4 * _CALM_S)
        # A run that is cut off leaves objects, and nothing grows old enough to be swept any more.
        while self.pipelines[0].runs:  # noqa: ASYNC110
            await asyncio.sleep(_CALM_S / 10)
        self.pipelines[0].machine.kill()
        self.clients.is_healed = True
        reader = Consumer(self.clients, "last consumer", self.topics)
        await reader.drain(self.brokers[0])

    def _start_calmly(self, broker: Broker, pipeline: Pipeline) -> None:
        """Start the last two machines. A few runs of each do all the work that is left."""
        janitor = replace(broker.settings.janitor, interval_ms=round(_CALM_S * 1000))
        broker.settings = replace(broker.settings, janitor=janitor)
        pipeline.pause_s = _CALM_S
        broker.machine.start()
        pipeline.machine.start()

    def _check_broker_ids(self) -> None:
        ids = [one.membership.broker_id for one in self.brokers if one.membership is not None]
        if len(set(ids)) < len(ids):
            self.violations.append(f"promise 6: brokers share an id: {ids}")

    async def close(self) -> None:
        for machine in self.machines:
            machine.kill()
        await asyncio.sleep(0)
        await self.database.close()

    def outcome(self) -> Outcome:
        for event in self.clients.history:
            self.trace.digest.update(repr(event).encode())
        return Outcome(
            seed=self.seed,
            digest=self.trace.digest.hexdigest(),
            violations=self.violations,
            counts=self.counts,
            virtual_s=asyncio.get_running_loop().time(),
            history=self.clients.history,
            calls=self.trace.lines,
        )


def _with_window(settings: Settings) -> Settings:
    return replace(settings, janitor=replace(settings.janitor, backup_window_ms=BACKUP_WINDOW_MS))


def _clients(
    network: Network, brokers: list[Broker], settings: Settings, clock: NodeClock, random: Random
) -> Clients:
    return Clients(
        process=Process("clients", clock),
        network=network,
        brokers=brokers,
        random=Random(random.random()),
        clock_ms=clock.now_ms,
        grace_ms=settings.janitor.grace_ms,
    )


def _pipeline(number: int, around: Surroundings, load: Load, random: Random) -> Pipeline:
    pause_s = random.uniform(*load.pipeline_pause_s)
    settings = load.settings
    if number and load.has_splitter:
        settings = replace(settings, tiering=replace(settings.tiering, min_segment_bytes=1 << 20))
        pause_s = 0.05
    return Pipeline(f"pipeline {number}", NodeClock(), around, settings, pause_s=pause_s)


async def _make_topics(control: ControlPlane, load: Load) -> list[Topic]:
    return [
        await control.topics.create("kept", partition_count=2, configs=load.kept),
        await control.topics.create("trimmed", partition_count=2, configs=load.trimmed),
    ]


def _store(root: Path, clock: NodeClock, random: Random) -> MemoryStore | SimulatedFolder:
    """A store in memory, which is fast, or the real folder store with torn files."""
    if random.random() < FOLDER_SEEDS:
        return SimulatedFolder(root, clock, random, torn=0.05)
    return MemoryStore(clock)
