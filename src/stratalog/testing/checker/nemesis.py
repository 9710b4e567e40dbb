"""Faults made against running brokers, and healed."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from stratalog.clock import SYSTEM_CLOCK
from stratalog.testing.checker.disasters import Disasters
from stratalog.testing.checker.faults import DISASTERS, Fault, Kind, Target
from stratalog.testing.checker.processes import BrokerProcess
from stratalog.testing.checker.proxy import Proxy, Weather

_WEATHER = {
    Kind.AWAY: Weather.AWAY,
    Kind.DEAF: Weather.DEAF,
    Kind.STALL: Weather.STALLED,
}


class Nemesis:
    """Carries a plan out against running brokers."""

    def __init__(
        self,
        brokers: Sequence[BrokerProcess],
        faults: Sequence[Fault],
        disasters: Disasters,
        *,
        note: Callable[[str], None],
    ) -> None:
        self.done: Counter[str] = Counter()
        """The number of faults of each kind."""
        self._brokers = brokers
        self._faults = faults
        self._disasters = disasters
        self._note = note
        self._clock = SYSTEM_CLOCK

    @property
    def mistakes(self) -> list[str]:
        return self._disasters.mistakes

    async def run(self) -> None:
        """Make every fault at its time. Each ends by itself."""
        started = self._clock.monotonic()
        disasters = [fault for fault in self._faults if fault.kind in DISASTERS]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._one_by_one(disasters, started))
            for fault in self._faults:
                if fault.kind not in DISASTERS:
                    await self._until(started + fault.at_s)
                    tasks.create_task(self._make(fault))

    async def _one_by_one(self, disasters: Sequence[Fault], started: float) -> None:
        """Make disasters. Each takes longer on a slow machine, where the last ones fall out."""
        end = started + max((fault.at_s for fault in self._faults), default=0.0)
        for fault in disasters:
            await self._until(started + fault.at_s)
            if self._clock.monotonic() <= max(end, started + fault.at_s + 1):
                self._count(fault)
                await self._disasters.make(fault)

    async def _until(self, monotonic_s: float) -> None:
        await asyncio.sleep(max(0.0, monotonic_s - self._clock.monotonic()))

    async def heal(self) -> None:
        """Repair everything that is broken."""
        for broker in self._brokers:
            for proxy in broker.links.all:
                proxy.turn(Weather.FAIR)
            async with broker.lock:
                broker.go_on()
                if not broker.running:
                    await broker.start()
        self._note("healed")

    async def look_after(self) -> None:
        """Start brokers that ended by themselves, as a supervisor would, and count them."""
        for number, broker in enumerate(self._brokers):
            broker.note_memory()
            if not broker.lock.locked() and broker.note_crash():
                self._note(f"broker {number} ended by itself")
                async with broker.lock:
                    await broker.start()

    async def _make(self, fault: Fault) -> None:
        self._count(fault)
        await asyncio.gather(*(self._befall(number, fault) for number in fault.brokers))

    def _count(self, fault: Fault) -> None:
        self._note(str(fault))
        self.done[f"{fault.target} {fault.kind}"] += 1

    async def _befall(self, number: int, fault: Fault) -> None:
        broker = self._brokers[number]
        if fault.target is Target.PROCESS:
            if broker.lock.locked():
                return  # It is down or starting. Faults that wait for it would keep it down.
            async with broker.lock:
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


def possible_disasters(broker: BrokerProcess) -> list[Kind]:
    """List the disasters that this storage can have. A folder never hangs."""
    return [kind for kind in DISASTERS if kind is not Kind.HANG or broker.links.objects]
