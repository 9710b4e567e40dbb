"""Calls over a faulty network, from a process to a database, a store or a broker.

The request travels for a while and takes effect; the reply travels back. Each may be lost, and a
request may arrive long after its caller gave up, or after the caller has died.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import TypeVar

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


@dataclass(frozen=True, slots=True)
class Call:
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

    def hang(self, target: str) -> None:
        """Let calls to this target arrive only when it is let go. Patient callers wait."""
        self._hanging[target] = asyncio.Event()

    def let_go(self, target: str) -> None:
        self._hanging.pop(target).set()

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
        slow = (
            chance
            for (caller, name), chance in self.slow_operations.items()
            if process.startswith(caller) and name in operation
        )
        return Fate.SLOW if drawn < next(slow, 0.0) else Fate.FINE

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
            await self._travel()
            await process.passes()
            raise refused(f"{target} refused {operation}")
        # Outside of the caller's process: a request on its way outlives its caller.
        arriving = loop.create_task(self._arrive(target, fate, effect), context=Context())
        try:
            if fate in (Fate.FINE, Fate.SLOW):
                answer = await asyncio.shield(arriving)
                await self._travel()
                return answer
            await asyncio.sleep(self.patience_s)
        finally:
            arriving.add_done_callback(_retrieve)
            await process.passes()
        raise unknown(f"{target} did not answer {operation}")

    async def _arrive(self, target: str, fate: Fate, effect: Callable[[], Awaitable[T]]) -> T:
        if fate is Fate.LOST_REQUEST:
            raise asyncio.CancelledError
        await self._travel()
        if fate is Fate.SLOW:
            await asyncio.sleep(self.random.random() * self.slowness_s)
        elif fate is Fate.LATE:
            await asyncio.sleep(self.patience_s + self.random.random() * self.lateness_s)
        if target in self._hanging:
            await self._hanging[target].wait()
        return await effect()

    async def _travel(self) -> None:
        await asyncio.sleep(self.random.expovariate(1 / self.delay_s))


def _retrieve(task: "asyncio.Task[object]") -> None:
    """Take note of an error that reaches no caller, so that asyncio does not report it."""
    if not task.cancelled():
        task.exception()
