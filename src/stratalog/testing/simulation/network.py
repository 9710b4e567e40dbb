"""Calls over a faulty network, from a process to a database, a store or a broker.

The request travels for a while and takes effect; the reply travels back. Each may be lost, and a
request may arrive long after its caller gave up, or after the caller has died.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextvars import Context
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import NamedTuple, TypeVar

from stratalog.testing.simulation.process import Process

T = TypeVar("T")


class Fate(StrEnum):
    FINE = "fine"
    REFUSED = "refused"
    """The other side answers that it is not available."""
    LOST_REQUEST = "lost request"
    LOST_REPLY = "lost reply"
    SLOW = "slow"
    """The request travels long, and the caller is patient enough."""
    LATE = "late"
    """The caller gives up, and the request arrives afterwards."""


class Call(NamedTuple):
    """One call, for the trace of a run."""

    at_s: float
    process: str
    target: str
    operation: str
    fate: Fate


@dataclass
class Network:
    random: Random
    chances: dict[Fate, float] = field(default_factory=dict)
    """How often calls go wrong in each way. They are fine if this is empty."""
    slow_operations: dict[tuple[str, str], float] = field(default_factory=dict)
    """How often some calls are slow, beyond their other chances. A key has the beginning of the
    process's name and a part of the operation's."""
    delay_s: float = 0.004
    """The mean time that a request or a reply travels."""
    patience_s: float = 0.5
    """After this a caller without a reply gives up."""
    slowness_s: float = 0.5
    """A slow request travels up to so long."""
    lateness_s: float = 3.0
    """A late request arrives up to so long after its caller gave up."""
    damage: float = 0.0
    """How often the bytes of an answer arrive with a bit turned over."""
    damaged_answers: int = 0
    on_call: Callable[[Call], None] = lambda _: None
    _hanging: dict[str, asyncio.Event] = field(default_factory=dict)
    _under_way: Counter[tuple[str, str]] = field(default_factory=Counter)
    """The requests that have not arrived, by caller and target."""

    def hang(self, target: str) -> None:
        """Let calls to this target arrive only when it is let go. Patient callers wait."""
        self._hanging[target] = asyncio.Event()

    def let_go(self, target: str) -> None:
        self._hanging.pop(target).set()

    def is_under_way(self, callers: Iterable[str], target: str) -> bool:
        """Tell whether a request of one of these callers has not arrived yet."""
        return any(self._under_way[caller, target] for caller in callers)

    def heal(self) -> None:
        self.chances = {}
        self.slow_operations = {}
        self.damage = 0.0

    def is_damaged(self) -> bool:
        """Decide whether the bytes of the answer at hand are damaged."""
        damaged = self.damage > 0 and self.random.random() < self.damage
        self.damaged_answers += damaged
        return damaged

    def _fate(self, process: str, operation: str) -> Fate:
        drawn = self.random.random()
        for fate, chance in self.chances.items():
            if drawn < chance:
                return fate
            drawn -= chance
        for (caller, name), chance in self.slow_operations.items():
            if process.startswith(caller) and name in operation:
                return Fate.SLOW if drawn < chance else Fate.FINE
        return Fate.FINE

    async def call(
        self,
        process: Process,
        target: str,
        operation: str,
        effect: Callable[[], Awaitable[T]],
        *,
        refused: Callable[[str], Exception],
        unknown: Callable[[str], Exception],
    ) -> T:
        """Do `effect` at the other side, if the request arrives; fail if no reply comes back."""
        await process.passes()
        fate = self._fate(process.name, operation)
        loop = asyncio.get_running_loop()
        self.on_call(Call(loop.time(), process.name, target, operation, fate))
        if fate is Fate.REFUSED:
            await asyncio.sleep(self._travel_s())
            await process.passes()
            raise refused(f"{target} refused {operation}")
        reply: asyncio.Future[T] = loop.create_future()
        if fate is not Fate.LOST_REQUEST:
            # Outside of the caller's process: a request on its way outlives its caller.
            travel_s = self._travel_s(fate)
            way = (process.name, target)
            self._under_way[way] += 1
            loop.call_later(travel_s, self._arrive, way, effect, reply, context=Context())
        try:
            if fate in (Fate.FINE, Fate.SLOW):
                return await reply
            await asyncio.sleep(self.patience_s)
        finally:
            await process.passes()
        raise unknown(f"{target} did not answer {operation}")

    def _travel_s(self, fate: Fate = Fate.FINE) -> float:
        """Draw how long a request or a reply travels."""
        travel_s = self.random.expovariate(1 / self.delay_s)
        if fate is Fate.SLOW:
            return travel_s + self.random.random() * self.slowness_s
        if fate is Fate.LATE:
            return travel_s + self.patience_s + self.random.random() * self.lateness_s
        return travel_s

    def _arrive(
        self,
        way: tuple[str, str],
        effect: Callable[[], Awaitable[T]],
        reply: "asyncio.Future[T]",
    ) -> None:
        asyncio.get_running_loop().create_task(self._take_effect(way, effect, reply))

    async def _take_effect(
        self,
        way: tuple[str, str],
        effect: Callable[[], Awaitable[T]],
        reply: "asyncio.Future[T]",
    ) -> None:
        _, target = way
        if target in self._hanging:
            await self._hanging[target].wait()
        self._under_way[way] -= 1
        loop = asyncio.get_running_loop()
        try:
            answer = await effect()
        except Exception as error:
            loop.call_later(self._travel_s(), _fail, reply, error)
        else:
            loop.call_later(self._travel_s(), _answer, reply, answer)


def _answer(reply: "asyncio.Future[T]", answer: T) -> None:
    if not reply.done():
        reply.set_result(answer)


def _fail(reply: "asyncio.Future[T]", error: Exception) -> None:
    if not reply.done():
        reply.set_exception(error)
        # Retrieved, because a caller that gave up never does it.
        reply.exception()
