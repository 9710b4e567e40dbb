"""Disasters of a simulated cluster: faults that concern the whole of it for a while.

Some seeds have one. It is drawn from a source of its own, so that the seeds without one stay as
they are.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from stratalog.control.identity.model import StoreRole
from stratalog.control.plane import ControlPlane
from stratalog.ids import WriterTag
from stratalog.objects.store import ObjectStore
from stratalog.opening.marker import read_marker
from stratalog.settings import Settings
from stratalog.testing.checker.history import Restored, WentBack
from stratalog.testing.simulation import MemoryStore

if TYPE_CHECKING:
    from tests.simulation.world import World

_SEEDS = 0.4
"""The part of the seeds with a disaster."""
_BEGINS_S = (1.0, 5.0)
_HANG_S = (3.0, 4.0)
"""Longer than the brokers' `block.retry_ms`."""
_ELSEWHERE_S = (0.5, 2.0)
_EAGER_S = (2.0, 4.0)
_BACK_BEGINS_S = (0.5, 2.0)
_STEP_S = 0.1
_STEPS = 60
"""After so many steps the moment for a disaster has not come, and there is none."""
_QUIET_S = 0.5
"""Longer than an answer travels: a killed broker has been heard for the last time."""

HANG = "store hangs"
EMPTIED = "store emptied"
EAGER = "aggressive janitor"
CONTROL_BACK = "control plane goes back"
STORE_BACK = "store goes back"
DISASTERS = (HANG, EMPTIED, EAGER, CONTROL_BACK, STORE_BACK)
_ELSEWHERE = (EMPTIED, CONTROL_BACK, STORE_BACK)


class Disasters:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._random = Random(f"{world.seed} disasters")

    async def run(self) -> None:
        """Make the seed's disaster, if it has one, and repair it."""
        acts: Mapping[str, Callable[[], Awaitable[bool]]] = {
            HANG: self._hang,
            EMPTIED: self._empty,
            EAGER: self._make_eager,
            CONTROL_BACK: self._go_back,
            STORE_BACK: self._set_back,
        }
        world = self._world
        # The holders of leases do not look whose store they write to, as brokers and sinks do.
        kinds = [one for one in DISASTERS if not (world.has_leases and one in _ELSEWHERE)]
        name = draw_disaster(self._random, kinds)
        if name is not None and await acts[name]():
            world.counts[name] = 1

    async def _hang(self) -> bool:
        """The store takes requests, and does them only when it is over."""
        await self._pause(_BEGINS_S)
        self._world.around.network.hang("store")
        await self._pause(_HANG_S)
        self._world.around.network.let_go("store")
        return True

    async def _empty(self) -> bool:
        """All machines are restarted while an empty store stands in the place of theirs."""
        await self._pause(_BEGINS_S)
        # The first claim decides which store is the right one.
        if not _generation_in(self._world.database.raw.serialize()):
            return False
        await self._move_to(MemoryStore(self._world.clock), "an empty store")
        return True

    async def _set_back(self) -> bool:
        """All machines are restarted while the store is as it was before the newest claims."""
        store = self._world.store
        if not isinstance(store, MemoryStore):
            return False
        await self._pause(_BACK_BEGINS_S)
        copy = store.copy_of_now()
        if not await self._comes(lambda: self._has_forgotten_claim(copy)):
            return False
        await self._move_to(copy, "a store that was set back")
        return True

    async def _has_forgotten_claim(self, store: ObjectStore) -> bool:
        found = await read_marker(store)
        cluster = await ControlPlane(self._world.database, bytes).identity.cluster()
        return found is not None and found[0].claim not in cluster.claims_on(StoreRole.BLOCKS)

    async def _move_to(self, store: ObjectStore, text: str) -> None:
        world = self._world
        self._kill_all()
        await self._until_arrived("store")
        home = world.audited.go_to(store)
        self._start_all(may_end=True)
        await self._pause(_ELSEWHERE_S)
        self._blame_started("wrong-store", text)
        self._kill_all()
        await self._until_arrived("store")
        world.audited.go_to(home)
        self._start_all(may_end=False)

    async def _go_back(self) -> bool:
        """The control plane is as it was some time ago, under brokers that run or that start.

        They have committed since, and renewed their claim on the store.
        """
        world = self._world
        await self._pause(_BACK_BEGINS_S)
        copy = world.database.raw.serialize()
        commits, generation = _writers_in(copy), _generation_in(copy)
        if not await self._comes(lambda: self._can_tell(commits, generation)):
            return False
        tags = {one.announced.tag for one in world.brokers if one.announced is not None}
        world.clients.turn(WentBack())
        with world.audit.beside_older(newest := world.database.swap(copy)):
            if self._random.random() < 0.5:
                self._kill_all()
            self._start_all(may_end=True)
            await self._pause(_ELSEWHERE_S)
            self._blame_started("went-back", "an older control plane", unless=tags)
            older = world.database.raw.serialize()
            self._kill_all()
            await asyncio.sleep(_QUIET_S)
            await self._until_arrived("database")
        self._blame_commits(commits, _writers_in(older), tags)
        world.database.swap(newest)
        world.clients.turn(Restored())
        self._start_all(may_end=False)
        return True

    async def _can_tell(self, commits: Mapping[WriterTag, int], generation: int) -> bool:
        """Return True if all brokers, running or starting, can tell that it went back."""
        brokers = self._world.brokers
        # A broker that has passed its checks and is not announced yet cannot tell.
        if any(one.announced is None and not one.machine.process.is_dead for one in brokers):
            return False
        running = [one.announced for one in brokers if one.announced is not None]
        marker = await read_marker(self._world.store)
        return (
            marker is not None
            and marker[0].generation > generation
            and bool(running)
            and all(one.commits > commits.get(one.tag, 0) for one in running)
            and any(one.in_footers > commits.get(one.tag, 0) for one in running)
        )

    def _blame_started(
        self,
        violation: str,
        where: str,
        unless: "frozenset[WriterTag] | set[WriterTag]" = frozenset(),
    ) -> None:
        for broker in self._world.brokers:
            if broker.announced is not None and broker.announced.tag not in unless:
                name = broker.machine.name
                self._world.violations.append(f"{violation}: {name} started on {where}")

    def _blame_commits(
        self,
        before: Mapping[WriterTag, int],
        after: Mapping[WriterTag, int],
        tags: set[WriterTag],
    ) -> None:
        for tag in sorted(tags & after.keys()):
            if after[tag] > before.get(tag, 0):
                self._world.violations.append(
                    f"went-back: writer {tag:010x} committed to an older control plane"
                )

    async def _make_eager(self) -> bool:
        """All brokers are restarted with a janitor that waits for nothing."""
        await self._pause(_BEGINS_S)
        self._world.audit.grace_ms = self._world.clients.grace_ms = 0
        self._restart_brokers(_eager(self._world.around.settings))
        await self._pause(_EAGER_S)
        self._restart_brokers(self._world.around.settings)
        return True

    def _restart_brokers(self, settings: Settings) -> None:
        for broker in self._world.brokers:
            broker.settings = settings
            broker.machine.kill()
            broker.machine.start()

    def _kill_all(self) -> None:
        """Switch all machines off. None may start until the right moment: a machine that began to
        restart before would pass its checks, and then find another store in the place of its own.
        """
        for broker in self._world.brokers:
            broker.appender = broker.announced = None
        for machine in self._world.machines:
            machine.stays_down = True
            machine.kill()

    def _start_all(self, *, may_end: bool) -> None:
        for machine in self._world.machines:
            machine.stays_down = False
            machine.may_end = may_end
            machine.start()

    async def _until_arrived(self, target: str) -> None:
        """Wait until late requests of killed machines have reached the place they were sent to."""
        network = self._world.around.network
        machines = [machine.name for machine in self._world.machines]
        while network.is_under_way(machines, target):  # noqa: ASYNC110
            await asyncio.sleep(_STEP_S)

    async def _comes(self, moment: Callable[[], Awaitable[bool]]) -> bool:
        for _ in range(_STEPS):
            await asyncio.sleep(_STEP_S)
            if await moment():
                return True
        return False

    async def _pause(self, between_s: tuple[float, float]) -> None:
        await asyncio.sleep(self._random.uniform(*between_s))


def draw_disaster(random: Random, kinds: Sequence[str]) -> str | None:
    return random.choice(kinds) if random.random() < _SEEDS else None


def _writers_in(content: bytes) -> dict[WriterTag, int]:
    """Return the commits of all writers in a copy of the database."""
    with closing(sqlite3.connect(":memory:")) as copy:
        copy.deserialize(content)
        return {WriterTag(tag): n for tag, n in copy.execute("SELECT tag, commits FROM writers")}


def _generation_in(content: bytes) -> int:
    with closing(sqlite3.connect(":memory:")) as copy:
        copy.deserialize(content)
        [(generation,)] = copy.execute("SELECT generation FROM cluster").fetchall()
        return int(generation)


def _eager(settings: Settings) -> Settings:
    janitor = replace(
        settings.janitor, interval_ms=200, grace_ms=0, orphan_age_ms=0, unfinished_age_ms=0
    )
    return replace(settings, janitor=janitor)
