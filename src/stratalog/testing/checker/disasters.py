"""Disasters: the faults that need more than a signal or a proxy.

Each lasts for a while, concerns all brokers, and leaves nothing behind.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

from stratalog.opening.cluster import opened_control
from stratalog.settings import Settings, StorageSettings
from stratalog.testing.checker.control_copy import copy_of
from stratalog.testing.checker.faults import Fault, Kind
from stratalog.testing.checker.history import Event, Note, Restored, WentBack
from stratalog.testing.checker.hostile import HostileClient
from stratalog.testing.checker.processes import BrokerProcess
from stratalog.testing.checker.proxy import Weather

_EAGER_SHARED = (
    "janitor.grace_ms",
    "janitor.orphan_age_ms",
    "janitor.unfinished_age_ms",
    "janitor.backup_window_ms",
)
_EAGER = ("janitor.interval_ms=200ms", *(f"{name}=0" for name in _EAGER_SHARED))
_ODD = (
    *_EAGER,
    "janitor.retention_window_ms=0",
    "topic.retention.bytes=0",
    "groups.offsets_retention_ms=1ms",
)
_HOSTILE_CLIENTS = 3
_FENCED_S = 40.0
"""A broker whose database does not answer for a while notices late that it went back, and a broker
stops in an orderly way."""


class Disasters:
    def __init__(
        self,
        brokers: Sequence[BrokerProcess],
        *,
        storage: StorageSettings,
        folder: Path,
        topic: str,
        random: Random,
        note: Callable[[Event], None],
    ) -> None:
        self.mistakes: list[str] = []
        """Acts of brokers that no history of clients would tell."""
        self._brokers = brokers
        self._storage = storage
        self._copy = copy_of(storage.control, folder)
        self._topic = topic
        self._random = random
        self._note = note

    async def make(self, fault: Fault) -> None:
        """Make a disaster, wait for its end, and repair it."""
        acts: Mapping[Kind, Callable[[float], Awaitable[None]]] = {
            Kind.HANG: self._hang,
            Kind.EMPTIED: self._empty,
            Kind.EAGER: self._make_eager,
            Kind.ODD: self._make_odd,
            Kind.BACK: self._go_back,
            Kind.HOSTILE: self._attack,
        }
        await acts[fault.kind](fault.seconds)

    async def _hang(self, seconds: float) -> None:
        links = [broker.links.objects for broker in self._brokers]
        proxies = [proxy for proxy in links if proxy is not None]
        for proxy in proxies:
            proxy.hold(Weather.STALLED)
        await asyncio.sleep(seconds)
        for proxy in proxies:
            proxy.release()

    async def _empty(self, seconds: float) -> None:
        """Start the brokers again where nothing was ever stored: they must refuse."""
        elsewhere = f"storage.objects={self._storage.objects}-elsewhere"
        async with AsyncExitStack() as stack:
            for broker in self._brokers:
                await stack.enter_async_context(broker.lock)
                broker.kill()
                broker.meanwhile = [elsewhere]
            try:
                async with asyncio.timeout(seconds):
                    await asyncio.gather(*(self._start_elsewhere(one) for one in self._brokers))
            except TimeoutError:
                pass  # Some broker waits for its database, which another fault took away.
            await asyncio.gather(*(broker.restart() for broker in self._brokers))

    async def _start_elsewhere(self, broker: BrokerProcess) -> None:
        while not await broker.starts():
            pass
        self._blame(f"broker {broker.number} started on an empty store")

    async def _make_eager(self, seconds: float) -> None:
        async with self._eager_cluster():
            await self._restart(self._brokers, _EAGER)
            await asyncio.sleep(seconds)
        await self._restart(self._brokers, ())

    @asynccontextmanager
    async def _eager_cluster(self) -> AsyncIterator[None]:
        """The cluster has these values, too: a janitor deletes nothing by values of its own."""
        async with opened_control(Settings(storage=self._storage)) as control:
            before = (await control.settings.now()).settings
            for name in _EAGER_SHARED:
                await control.settings.change(name, "0", by="checker")
            yield
            for name in _EAGER_SHARED:
                await control.settings.change(name, before[name].value, by="checker")

    async def _make_odd(self, seconds: float) -> None:
        """Give one broker other settings, and leave the cluster's as they are."""
        broker = self._random.choice(self._brokers)
        await self._restart([broker], _ODD)
        await asyncio.sleep(seconds)
        await self._restart([broker], ())

    async def _restart(self, brokers: Sequence[BrokerProcess], meanwhile: Sequence[str]) -> None:
        for broker in brokers:
            async with broker.lock:
                await broker.restart(meanwhile)

    async def _go_back(self, seconds: float) -> None:
        """Let clients write for a while, and forget it. All brokers must end by themselves."""
        await self._copy.take()
        await asyncio.sleep(seconds)
        async with AsyncExitStack() as stack:
            for broker in self._brokers:
                await stack.enter_async_context(broker.lock)
                broker.note_crash()
                broker.expected_dead = True
            self._note(WentBack())
            await self._copy.go_back()
            for broker in self._brokers:
                if not await broker.ended(_FENCED_S):
                    self._blame(f"broker {broker.number} went on with an older control plane")
                    broker.kill()
            await self._copy.restore()
            await asyncio.gather(*(broker.start() for broker in self._brokers))
            self._note(Restored())

    async def _attack(self, seconds: float) -> None:
        addresses = [broker.links.clients.address for broker in self._brokers]
        seed = self._random.getrandbits(64)
        clients = [
            HostileClient(addresses, self._topic, Random(seed + number))
            for number in range(_HOSTILE_CLIENTS)
        ]
        tasks = [asyncio.create_task(client.run()) for client in clients]
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        sent = sum((client.sent for client in clients), start=Counter[str]())
        self._note(Note(what=f"attacks: {dict(sent)}"))

    def _blame(self, mistake: str) -> None:
        self._note(Note(what=mistake))
        self.mistakes.append(mistake)
