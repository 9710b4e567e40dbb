"""Faults of a run: planned from a seed, made against running brokers, and healed.

Two streams of faults run side by side. One stops processes (killed, paused), the other one breaks
networks (clients, database, object store). So a broker may be killed while its database is away.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from stratalog.clock import SYSTEM_CLOCK
from stratalog.testing.checker.processes import BrokerProcess
from stratalog.testing.checker.proxy import Proxy, Weather


class Kind(StrEnum):
    KILL = "kill"
    PAUSE = "pause"
    CUT = "cut"
    AWAY = "away"
    DEAF = "lost replies"
    STALL = "stall"


class Target(StrEnum):
    PROCESS = "process"
    CLIENTS = "clients"
    CONTROL = "database"
    OBJECTS = "object store"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    at_s: float
    """Seconds since the start of the run."""
    seconds: float
    """The duration of the fault."""
    kind: Kind
    target: Target
    brokers: tuple[int, ...]

    def __str__(self) -> str:
        whom = ", ".join(map(str, self.brokers))
        return f"{self.kind} {self.target} of broker {whom} for {self.seconds:.1f} s"


_PROCESS_KINDS = (Kind.KILL, Kind.KILL, Kind.PAUSE)
_NETWORK_KINDS = (Kind.CUT, Kind.AWAY, Kind.DEAF, Kind.STALL)
_WEATHER = {
    Kind.AWAY: Weather.AWAY,
    Kind.DEAF: Weather.DEAF,
    Kind.STALL: Weather.STALLED,
}
_MEAN_PAUSE_S = 2.0
_MAX_SECONDS = 4.0
_ALL_BROKERS_CHANCE = 0.3


def plan(seed: int, seconds: float, *, brokers: int, targets: Sequence[Target]) -> list[Fault]:
    """Plan the faults of a run, in the order in which they begin. A seed gives the same plan."""
    networks = [target for target in targets if target is not Target.PROCESS]
    streams = []
    if Target.PROCESS in targets:
        streams.append(_stream(Random(f"{seed} process"), seconds, brokers, _PROCESS_KINDS, None))
    if networks:
        stream = _stream(Random(f"{seed} network"), seconds, brokers, _NETWORK_KINDS, networks)
        streams.append(stream)
    return sorted((fault for stream in streams for fault in stream), key=lambda fault: fault.at_s)


def _stream(
    random: Random,
    seconds: float,
    brokers: int,
    kinds: Sequence[Kind],
    networks: Sequence[Target] | None,
) -> Iterator[Fault]:
    at_s = random.uniform(0.5, _MEAN_PAUSE_S)
    while at_s < seconds:
        kind = random.choice(kinds)
        everybody = random.random() < _ALL_BROKERS_CHANCE
        fault = Fault(
            at_s=at_s,
            seconds=0.0 if kind is Kind.CUT else random.uniform(0.2, _MAX_SECONDS),
            kind=kind,
            target=random.choice(networks) if networks else Target.PROCESS,
            brokers=tuple(range(brokers)) if everybody else (random.randrange(brokers),),
        )
        yield fault
        at_s += fault.seconds + random.expovariate(1 / _MEAN_PAUSE_S)


class Nemesis:
    """Carries a plan out against running brokers."""

    def __init__(
        self,
        brokers: Sequence[BrokerProcess],
        faults: Sequence[Fault],
        *,
        note: Callable[[str], None],
    ) -> None:
        self.done: Counter[str] = Counter()
        """The number of faults of each kind."""
        self._brokers = brokers
        self._faults = faults
        self._note = note
        self._clock = SYSTEM_CLOCK
        self._locks = [asyncio.Lock() for _ in brokers]

    async def run(self) -> None:
        """Make every fault at its time. Each ends by itself."""
        started = self._clock.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for fault in self._faults:
                await asyncio.sleep(max(0.0, started + fault.at_s - self._clock.monotonic()))
                tasks.create_task(self._make(fault))

    async def heal(self) -> None:
        """Repair everything that is broken."""
        for number, broker in enumerate(self._brokers):
            for proxy in broker.links.all:
                proxy.turn(Weather.FAIR)
            async with self._locks[number]:
                broker.go_on()
                if not broker.running:
                    await broker.start()
        self._note("healed")

    async def restart_the_crashed(self) -> None:
        """Start brokers that ended by themselves, as a supervisor would, and count them."""
        for number, broker in enumerate(self._brokers):
            if not self._locks[number].locked() and broker.note_crash():
                self._note(f"broker {number} ended by itself ({broker.crashes[-1]})")
                async with self._locks[number]:
                    await broker.start()

    async def _make(self, fault: Fault) -> None:
        self._note(str(fault))
        self.done[f"{fault.target} {fault.kind}"] += 1
        await asyncio.gather(*(self._befall(number, fault) for number in fault.brokers))

    async def _befall(self, number: int, fault: Fault) -> None:
        broker = self._brokers[number]
        if fault.target is Target.PROCESS:
            async with self._locks[number]:
                await self._stop_process(broker, fault)
            return
        proxy = _proxy(broker, fault.target)
        if proxy is None:
            return
        if fault.kind is Kind.CUT:
            proxy.cut_all()
            return
        proxy.turn(_WEATHER[fault.kind])
        await asyncio.sleep(fault.seconds)
        proxy.turn(Weather.FAIR)

    async def _stop_process(self, broker: BrokerProcess, fault: Fault) -> None:
        if fault.kind is Kind.PAUSE:
            broker.pause()
            await asyncio.sleep(fault.seconds)
            broker.go_on()
            return
        broker.kill()
        await asyncio.sleep(fault.seconds)
        await broker.start()


def _proxy(broker: BrokerProcess, target: Target) -> Proxy | None:
    links = broker.links
    return {
        Target.CLIENTS: links.clients,
        Target.CONTROL: links.control,
        Target.OBJECTS: links.objects,
    }[target]


def possible_targets(broker: BrokerProcess) -> list[Target]:
    """List the targets of faults. A folder or an embedded database has no connection to cut."""
    networks = (Target.CLIENTS, Target.CONTROL, Target.OBJECTS)
    return [Target.PROCESS, *(target for target in networks if _proxy(broker, target) is not None)]
