"""Disasters of a simulated cluster: faults that concern the whole of it for a while.

Some seeds have one. It is drawn from a source of its own, so that the seeds without one stay as
they are.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from stratalog.settings import Settings
from stratalog.testing.simulation import MemoryStore

if TYPE_CHECKING:
    from tests.simulation.world import World

_SEEDS = 0.25
"""The part of the seeds with a disaster."""
_BEGINS_S = (1.0, 5.0)
_HANG_S = (3.0, 4.0)
"""Longer than the brokers' `block.retry_ms`."""
_ELSEWHERE_S = (0.5, 2.0)
_EAGER_S = (2.0, 4.0)

_EMPTIED = "store emptied"
DISASTERS = ("store hangs", _EMPTIED, "aggressive janitor")


class Disasters:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._random = Random(f"{world.seed} disasters")

    async def run(self) -> None:
        """Make the seed's disaster, if it has one, and repair it."""
        if self._random.random() >= _SEEDS:
            return
        acts: Mapping[str, Callable[[], Awaitable[None]]] = {
            "store hangs": self._hang,
            _EMPTIED: self._empty,
            "aggressive janitor": self._make_eager,
        }
        # The holders of leases do not look whose store they write to, as brokers and sinks do.
        kinds = [one for one in DISASTERS if not (self._world.has_leases and one == _EMPTIED)]
        name = self._random.choice(kinds)
        self._world.counts[name] = 1
        await asyncio.sleep(self._random.uniform(*_BEGINS_S))
        await acts[name]()

    async def _hang(self) -> None:
        """The store takes requests, and does them only when it is over."""
        self._world.around.network.hang("store")
        await asyncio.sleep(self._random.uniform(*_HANG_S))
        self._world.around.network.let_go("store")

    async def _empty(self) -> None:
        """All machines are restarted while an empty store stands in the place of theirs."""
        self._kill_all()
        home = self._world.audited.go_to(MemoryStore(self._world.clock))
        for machine in self._world.machines:
            machine.may_end = True
            machine.start()
        await asyncio.sleep(self._random.uniform(*_ELSEWHERE_S))
        for broker in self._world.brokers:
            if broker.appender is not None:
                name = broker.machine.name
                self._world.violations.append(f"wrong-store: {name} started on an empty store")
        self._kill_all()
        self._world.audited.go_to(home)
        for machine in self._world.machines:
            machine.may_end = False
            machine.start()

    async def _make_eager(self) -> None:
        """All brokers are restarted with a janitor that waits for nothing."""
        self._world.audit.grace_ms = self._world.clients.grace_ms = 0
        self._restart_brokers(_eager(self._world.around.settings))
        await asyncio.sleep(self._random.uniform(*_EAGER_S))
        self._restart_brokers(self._world.around.settings)

    def _restart_brokers(self, settings: Settings) -> None:
        for broker in self._world.brokers:
            broker.settings = settings
            broker.machine.kill()
            broker.machine.start()

    def _kill_all(self) -> None:
        for broker in self._world.brokers:
            broker.appender = None
        for machine in self._world.machines:
            machine.kill()


def _eager(settings: Settings) -> Settings:
    janitor = replace(
        settings.janitor, interval_ms=200, grace_ms=0, orphan_age_ms=0, unfinished_age_ms=0
    )
    return replace(settings, janitor=janitor)
