"""A control plane that fails or dies at one of its calls, and notes the calls."""

import asyncio
from collections import defaultdict
from typing import Any

from tests.support.ledgers import Call, ControlWrapper

from stratalog.control.plane import ControlPlane


class Crash(BaseException):
    """The process ends here: nothing catches it, and nothing that comes after has any effect."""


class FailingControl(ControlWrapper):
    """A control plane that can be made to fail at one of its calls, and notes its calls.

    `crash_at` is a method and whether it has taken effect. After a crash every call crashes, as
    calls of a dead process have no effect.
    """

    def __init__(self, inner: ControlPlane) -> None:
        super().__init__(inner)
        self.crash_at: tuple[str, str] | None = None
        self.errors: dict[str, Exception] = {}
        """Raised once, by the next call of a method, which then has no effect."""
        self.calls: list[str] = []
        self.answered: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._dead = False

    async def around(self, name: str, call: Call) -> Any:
        self.calls.append(name)
        if self._dead or self.crash_at == (name, "before"):
            self._dead = True
            raise Crash(name)
        if name in self.errors:
            raise self.errors.pop(name)
        answer = await call()
        if self.crash_at == (name, "after"):
            self._dead = True
            raise Crash(name)
        self.answered[name].set()
        return answer
