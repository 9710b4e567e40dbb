"""A whole run: brokers, clients, faults, healing, draining, and the judgement."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from stratalog.checks.fsck import run_fsck
from stratalog.checks.report import Report as FsckReport
from stratalog.clock import SYSTEM_CLOCK
from stratalog.opening.cluster import Rights, opened_cluster
from stratalog.settings import Settings, StorageSettings
from stratalog.testing.checker.check import check
from stratalog.testing.checker.client_load import Load
from stratalog.testing.checker.disasters import Disasters
from stratalog.testing.checker.faults import Kind, plan
from stratalog.testing.checker.history import History, Note
from stratalog.testing.checker.nemesis import Nemesis, possible_disasters, possible_targets
from stratalog.testing.checker.processes import BrokerProcess
from stratalog.testing.checker.recorder import Recorder
from stratalog.testing.checker.report import Report
from stratalog.testing.checker.workload import Workload, create_topic, new_topic_name

_TICK_SECONDS = 1.0

Tick = Callable[[float, Recorder], None]
"""Called every second with the seconds since the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    seconds: float
    seed: int
    bootstrap: str | None = None
    """Brokers outside the run, which are used and never broken."""
    storage: StorageSettings | None = None
    """The storage of the run's own brokers."""
    folder: Path
    """For settings and logs of the run's own brokers."""
    brokers: int = 2
    partitions: int = 4
    sends_per_second: float = 50.0
    patience_s: float = 30.0
    drain_s: float = 180.0
    """The longest wait for the next record: brokers begin with cold caches on a busy machine."""
    groups: bool = False
    overrides: Sequence[str] = ()
    """Settings of the run's own brokers."""
    disasters: Sequence[Kind] | None = ()
    """None: all that the storage can have."""
    most_memory_bytes: int = 1 << 30
    """The most memory that a broker may ever need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    history: History
    report: Report
    drained: bool
    """True if everything could be read to the end after all faults were healed."""
    fsck: FsckReport | None
    faults: Counter[str]
    crashes: list[int]
    """Exit codes of brokers that ended by themselves."""
    stuck: list[str]
    """Clients that did not end when the run stopped them. A broker may be the cause."""
    mistakes: list[str] = field(default_factory=list)
    """Acts of brokers that are wrong, whatever the clients saw."""
    most_memory_bytes: int = 0
    """The most memory that one of the brokers needed."""

    @property
    def ok(self) -> bool:
        fsck_ok = self.fsck is None or not self.fsck.damaged
        brokers_ok = not self.crashes and not self.mistakes
        return self.report.ok and self.drained and fsck_ok and brokers_ok


class _End(NamedTuple):
    """The end of the clients."""

    drained: bool
    stuck: list[str]


async def run(plan_: Plan, tick: Tick) -> Outcome:
    recorder = Recorder()
    if plan_.bootstrap is not None:
        end = await _drive(plan_, _load(plan_, plan_.bootstrap), recorder, None, tick)
        return _outcome(recorder, end)
    return await _run_with_brokers(plan_, recorder, tick)


def _load(plan_: Plan, bootstrap: str) -> Load:
    return Load(
        bootstrap=bootstrap,
        topic=new_topic_name(),
        partitions=plan_.partitions,
        seed=plan_.seed,
        sends_per_second=plan_.sends_per_second,
        patience_s=plan_.patience_s,
    )


async def _run_with_brokers(plan_: Plan, recorder: Recorder, tick: Tick) -> Outcome:
    assert plan_.storage is not None, "without a bootstrap address there must be a storage"
    async with _brokers(plan_, plan_.storage) as brokers:
        load = _load(plan_, ",".join(broker.address for broker in brokers))
        nemesis = _nemesis(plan_, plan_.storage, brokers, load.topic, recorder)
        end = await _drive(plan_, load, recorder, nemesis, tick)
    fsck = await _fsck(plan_.storage)
    return _outcome(
        recorder,
        end,
        fsck=fsck,
        faults=nemesis.done,
        crashes=[code for broker in brokers for code in broker.crashes],
        mistakes=[*nemesis.mistakes, *_greed(plan_, brokers)],
        most_memory_bytes=max(broker.most_memory_bytes for broker in brokers),
    )


def _nemesis(
    plan_: Plan,
    storage: StorageSettings,
    brokers: Sequence[BrokerProcess],
    topic: str,
    recorder: Recorder,
) -> Nemesis:
    def note(what: str) -> None:
        recorder.add(Note(what=what))

    kinds = plan_.disasters
    faults = plan(
        plan_.seed,
        plan_.seconds,
        brokers=len(brokers),
        targets=possible_targets(brokers[0]),
        disasters=possible_disasters(brokers[0]) if kinds is None else kinds,
    )
    disasters = Disasters(
        brokers,
        storage=storage,
        folder=plan_.folder,
        topic=topic,
        random=Random(f"{plan_.seed} attacks"),
        note=recorder.add,
    )
    return Nemesis(brokers, faults, disasters, note=note)


def _greed(plan_: Plan, brokers: Sequence[BrokerProcess]) -> list[str]:
    return [
        f"broker {broker.number} needed {broker.most_memory_bytes >> 20} MiB of memory"
        for broker in brokers
        if broker.most_memory_bytes > plan_.most_memory_bytes
    ]


def _outcome(recorder: Recorder, end: _End, **rest: Any) -> Outcome:
    nothing: dict[str, Any] = {"fsck": None, "faults": Counter(), "crashes": []}
    return Outcome(
        history=recorder.history,
        report=check(recorder.history),
        drained=end.drained,
        stuck=end.stuck,
        **(nothing | rest),
    )


@asynccontextmanager
async def _brokers(plan_: Plan, storage: StorageSettings) -> AsyncIterator[list[BrokerProcess]]:
    prepared = [
        await BrokerProcess.prepare(number, storage, plan_.folder, plan_.overrides)
        for number in range(plan_.brokers)
    ]
    try:
        for broker in prepared:
            await broker.start()
        yield prepared
    finally:
        for broker in prepared:
            await broker.stop()


async def _drive(
    plan_: Plan, load: Load, recorder: Recorder, nemesis: Nemesis | None, tick: Tick
) -> _End:
    """Write and read under faults for the given time, and then read to the end."""
    await create_topic(load)
    workload = Workload(load, groups=plan_.groups, recorder=recorder)
    workload.start()
    ticking = asyncio.create_task(_tick(recorder, nemesis, tick))
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.sleep(plan_.seconds))
            if nemesis is not None:
                tasks.create_task(nemesis.run())
        if nemesis is not None:
            await nemesis.heal()
        return _End(await workload.finish(seconds=plan_.drain_s), workload.stuck)
    finally:
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)


async def _tick(recorder: Recorder, nemesis: Nemesis | None, tick: Tick) -> None:
    clock = SYSTEM_CLOCK
    started = clock.monotonic()
    while True:
        await asyncio.sleep(_TICK_SECONDS)
        tick(clock.monotonic() - started, recorder)
        if nemesis is not None:
            await nemesis.look_after()


async def _fsck(storage: StorageSettings) -> FsckReport:
    async with opened_cluster(Settings(storage=storage), Rights.READ, checked=False) as cluster:
        return await run_fsck(cluster.control, cluster.objects, deep=True)
