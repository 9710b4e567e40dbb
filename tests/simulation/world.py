"""One simulated run: a seed decides the cluster, the load and the faults; then everything heals,
drains, and is judged."""

import asyncio
import hashlib
import json
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.simulation.clients import Clients, Consumer, Deleter, Producer
from tests.simulation.faults import Faults
from tests.simulation.judge import judge
from tests.simulation.nodes import Broker, Machine, Pipeline, Surroundings

from stratalog.control.plane import ControlPlane
from stratalog.control.sql.migrate import migrate
from stratalog.control.sql.sqlite import SqliteDatabase
from stratalog.control.topics.model import Topic
from stratalog.settings import (
    BlockSettings,
    BrokerSettings,
    FetchSettings,
    JanitorSettings,
    RemoteSettings,
    Settings,
    TieringSettings,
)
from stratalog.testing.checker.history import to_json
from stratalog.testing.simulation import (
    Call,
    MemoryStore,
    Network,
    NodeClock,
    Process,
    run_simulated,
)

BROKERS = 3
PIPELINES = 2
LOAD_S = 12.0
GRACE_MS = 1500
ORPHAN_AGE_MS = 4000


@dataclass
class Outcome:
    seed: int
    digest: str
    violations: list[str]
    counts: dict[str, int]
    history: list[str] = field(default_factory=list)
    """Each event of a client as JSON."""
    calls: list[str] = field(default_factory=list)
    """Each call over the network: time, process, target, operation, fate."""


def simulate(seed: int) -> Outcome:
    folder = Path(tempfile.mkdtemp(prefix="stratalog-simulation-", dir=_memory_folder()))
    try:
        return run_simulated(_simulate(seed, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
    around: Surroundings
    brokers: list[Broker]
    pipelines: list[Pipeline]
    clients: Clients
    topics: list[Topic]
    database: SqliteDatabase
    clock: NodeClock
    random: Random
    digest: hashlib.blake2b
    trace: list[str]
    violations: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    @classmethod
    async def build(cls, seed: int, folder: Path) -> "World":
        random = Random(seed)
        digest = hashlib.blake2b(digest_size=16)
        trace: list[str] = []

        def note(call: Call) -> None:
            line = f"{call.at_s:.6f} {call.process} {call.target} {call.operation} {call.fate}"
            digest.update(line.encode())
            trace.append(line)

        clock = NodeClock()
        database = await SqliteDatabase.open(f"sqlite:{folder / 'control.db'}", clock)
        await migrate(database)
        control = ControlPlane(database, Random(random.random()).randbytes)
        await control.identity.found()
        network = Network(Random(random.random()), on_call=note)
        around = Surroundings(
            database=database,
            store=MemoryStore(clock),
            network=network,
            settings=_settings(random),
            random=Random(random.random()),
        )
        topics = [
            await control.topics.create("kept", partition_count=2, configs=_configs(random)),
            await control.topics.create(
                "trimmed",
                partition_count=2,
                configs={**_configs(random), "retention.bytes": str(random.choice([600, 4000]))},
            ),
        ]
        brokers = [Broker(f"broker {n}", NodeClock(), around) for n in range(BROKERS)]
        pipelines = [
            Pipeline(f"pipeline {n}", NodeClock(), around, pause_s=random.uniform(0.5, 2.0))
            for n in range(PIPELINES)
        ]
        clients = Clients(
            process=Process("clients", clock),
            network=network,
            brokers=brokers,
            random=Random(random.random()),
            clock_ms=clock.now_ms,
        )
        return cls(
            seed=seed,
            around=around,
            brokers=brokers,
            pipelines=pipelines,
            clients=clients,
            topics=topics,
            database=database,
            clock=clock,
            random=random,
            digest=digest,
            trace=trace,
        )

    @property
    def machines(self) -> list[Machine]:
        return [broker.machine for broker in self.brokers] + [
            pipeline.machine for pipeline in self.pipelines
        ]

    async def run(self) -> None:
        for machine in self.machines:
            machine.start()
        producers = await self._producers()
        consumers = [Consumer(self.clients, f"consumer {n}", self.topics) for n in range(2)]
        deleter = Deleter(self.clients, self.topics[1], pause_s=2.0)
        faults = Faults(self.around.network, self.machines, Random(self.random.random()))
        runs = [client.run for client in producers] + [client.run for client in consumers]
        loads = [asyncio.create_task(run()) for run in (*runs, deleter.run)]
        breaking = asyncio.create_task(faults.run())
        await asyncio.sleep(LOAD_S)
        breaking.cancel()
        await asyncio.gather(breaking, return_exceptions=True)
        faults.heal()
        self.clients.is_over = True
        for result in await asyncio.gather(*loads, return_exceptions=True):
            if isinstance(result, BaseException):
                self.violations.append(f"mistake: a client failed: {result!r}")
        await asyncio.sleep(2)
        await self._drain()
        self.violations += self.clients.violations
        self.violations += await judge(self)

    async def _producers(self) -> list[Producer]:
        return [
            Producer(
                self.clients,
                f"{'idempotent' if idempotent else 'plain'} {topic.name} {partition}",
                topic,
                partition,
                producer_id=100 + 10 * number + partition if idempotent else None,
                pause_s=0.35,
            )
            for number, topic in enumerate(self.topics)
            for partition in range(topic.partition_count)
            for idempotent in (True, False)
        ]

    async def _drain(self) -> None:
        """Let pipelines and janitors finish, and read everything once more."""
        await asyncio.sleep(5)
        for machine in self.machines:
            machine.kill()
        await asyncio.sleep(5)
        # Two quiet hours: claims end, and everything that was left behind grows old, also by the
        # clocks that were wrong.
        for clock in (self.clock, *(machine.clock for machine in self.machines)):
            clock.jump(7_200_000)
        self.brokers[0].machine.start()
        self.pipelines[0].machine.start()
        await asyncio.sleep(8)
        self.pipelines[0].machine.kill()
        reader = Consumer(self.clients, "last consumer", self.topics)
        while await reader.poll(max_wait_ms=0, broker=self.brokers[0]):
            pass
        reader.drained()

    async def close(self) -> None:
        for machine in self.machines:
            machine.kill()
        await asyncio.sleep(0)
        await self.database.close()

    def outcome(self) -> Outcome:
        history = [json.dumps(to_json(event)) for event in self.clients.history]
        for line in history:
            self.digest.update(line.encode())
        return Outcome(
            seed=self.seed,
            digest=self.digest.hexdigest(),
            violations=self.violations,
            counts=self.counts,
            history=history,
            calls=self.trace,
        )


def _configs(random: Random) -> dict[str, str]:
    return {"segment.bytes": str(random.choice([700, 2000, 1 << 20])), "segment.ms": "3000"}


def _settings(random: Random) -> Settings:
    return Settings(
        broker=BrokerSettings(lease_ms=4000),
        block=BlockSettings(
            window_ms=random.choice([50, 150, 300]),
            retry_ms=2500,
            parallel_uploads=random.choice([1, 4]),
            cache_bytes=random.choice([0, 20_000]),
        ),
        fetch=FetchSettings(poll_ms=500),
        remote=RemoteSettings(chunk_bytes=random.choice([512, 1 << 20])),
        tiering=TieringSettings(
            age_ms=300,
            min_segment_bytes=random.choice([1, 1500, 1 << 20]),
            max_rows=random.choice([2, 6]),
            task_bytes=2000,
            splitter_claim_duration_ms=2500,
        ),
        janitor=JanitorSettings(
            interval_ms=2500,
            grace_ms=GRACE_MS,
            orphan_age_ms=ORPHAN_AGE_MS,
            unfinished_age_ms=4000,
            answers_ms=60_000,
        ),
    )
