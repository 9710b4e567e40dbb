"""Two brokers in this process whose store and control plane go wrong by chance."""

import asyncio
import threading
from collections import Counter
from collections.abc import Coroutine
from concurrent.futures import Future
from random import Random
from types import TracebackType
from typing import Any, TypeVar

import uvloop
from tests.support.faulty_control import LossyControl

from stratalog.clock import SystemClock
from stratalog.control.open import open_control_plane
from stratalog.node.broker import Broker
from stratalog.objects.faulty import Fault, FaultyStore, RandomFaults
from stratalog.objects.open import open_store
from stratalog.settings import (
    BlockSettings,
    BrokerSettings,
    FetchSettings,
    JanitorSettings,
    Settings,
    StorageSettings,
)

T = TypeVar("T")

STEP_S = 60.0
SLOW_S = 0.3
RETRY_MS = 1500
CHANCES = {Fault.UNAVAILABLE: 0.1, Fault.LOST_REPLY: 0.1, Fault.SLOW: 0.1}


class SwitchedFaults:
    """Faults by chance while active; in an outage, nothing is stored."""

    def __init__(self, seed: int) -> None:
        self.active = False
        self.outage = False
        self.counts: Counter[str] = Counter()
        self._chance = RandomFaults(seed, CHANCES)

    def next(self, operation: str, key: str) -> Fault | None:
        fault = self._chance.next(operation, key) if self.active else None
        if self.outage and operation == "put":
            fault = Fault.UNAVAILABLE
        if fault is not None:
            self.counts[f"{operation} {fault.name.lower()}"] += 1
        return fault


class ChaosBroker:
    """One broker, its store and its control plane."""

    def __init__(self, number: int, storage: StorageSettings, seed: int) -> None:
        self.settings = Settings(
            broker=BrokerSettings(listen="127.0.0.1:0", id=number, lease_ms=1000),
            block=BlockSettings(window_ms=10, retry_ms=RETRY_MS, max_bytes=4096),
            fetch=FetchSettings(poll_ms=200),
            janitor=JanitorSettings(
                interval_ms=500, grace_ms=0, backup_window_ms=0, orphan_age_ms=1000
            ),
            storage=storage,
        )
        self.faults = SwitchedFaults(seed)
        self.control: LossyControl | None = None
        self.broker: Broker | None = None
        self.troubles: Counter[str] = Counter()
        self._seed = seed

    async def start(self) -> None:
        storage = self.settings.storage
        clock = SystemClock()
        store = open_store(storage.objects, storage.object_options, clock=clock)
        self.control = LossyControl(await open_control_plane(storage.control), self._seed)
        self.broker = await Broker.start(
            self.settings,
            store=FaultyStore(store, self.faults, clock=clock, slow_seconds=SLOW_S),
            control=self.control,
        )

    async def stop(self) -> None:
        if self.broker is not None and self.control is not None:
            await self.broker.stop()
            self.troubles += self.control.troubles
        self.broker = None

    def go_wrong(self, active: bool) -> None:
        self.faults.active = active
        self.faults.outage = False
        if self.control is not None:
            self.control.active = active

    @property
    def address(self) -> str:
        assert self.broker is not None
        return f"{self.broker.address.host}:{self.broker.address.port}"


class Chaos:
    """Use as a context manager. The brokers live on a thread of their own."""

    def __init__(self, storage: StorageSettings, seed: int) -> None:
        self._random = Random(seed)
        self.brokers = [
            ChaosBroker(number, storage, self._random.getrandbits(32)) for number in range(2)
        ]
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chaos", daemon=True)

    def __enter__(self) -> "Chaos":
        self._thread.start()
        for broker in self.brokers:
            self._run(broker.start())
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for broker in self.brokers:
            self._run(broker.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STEP_S)
        self._loop.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    @property
    def troubles(self) -> Counter[str]:
        return sum((broker.troubles + broker.faults.counts for broker in self.brokers), Counter())

    def rage(self, seconds: float) -> None:
        """Let everything go wrong, now and then all puts, and once a broker goes and comes."""
        self._go_wrong(True)
        self._pause(seconds / 4)
        self._outage(seconds / 4)
        self._run(self._replace(self._random.choice(self.brokers)))
        self._pause(seconds / 4)
        self._outage(seconds / 4)

    def heal(self) -> None:
        self._go_wrong(False)

    def _go_wrong(self, active: bool) -> None:
        for broker in self.brokers:
            self._loop.call_soon_threadsafe(broker.go_wrong, active)

    def _outage(self, seconds: float) -> None:
        """One broker stores nothing for longer than its patience."""
        broker = self._random.choice(self.brokers)
        broker.faults.outage = True
        self._pause(max(seconds, 2 * RETRY_MS / 1000))
        broker.faults.outage = False

    async def _replace(self, broker: ChaosBroker) -> None:
        broker.go_wrong(False)
        await broker.stop()
        await broker.start()
        broker.go_wrong(True)

    def _pause(self, seconds: float) -> None:
        self._run(asyncio.sleep(seconds))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        done: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return done.result(STEP_S)
