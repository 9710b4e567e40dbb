"""Control planes for tests: a real one whose calls pass through the test, or one of fakes.

A call is named as it is written, "log.commit_blocks". A subclass of `ControlWrapper` answers a
call itself by a method of the name `log_commit_blocks`, or steps into every call by `around`.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from copy import copy
from inspect import iscoroutinefunction
from typing import Any, TypeAlias, TypeVar

from stratalog.control.ledger import Ledger
from stratalog.control.plane import ControlPlane
from stratalog.control.sql.database import Work

T = TypeVar("T")
Call: TypeAlias = Callable[[], Awaitable[Any]]


class ControlWrapper(ControlPlane):
    """Passes every call on that a subclass does not answer itself."""

    def __init__(self, inner: ControlPlane) -> None:
        vars(self).update(vars(inner))
        self.inner = inner
        for name, ledger in vars(inner).items():
            if isinstance(ledger, Ledger):
                setattr(self, name, self._intercepted(name, ledger))

    async def close(self) -> None:
        await self.inner.close()

    async def around(self, name: str, call: Call) -> Any:
        """Make the call. A subclass does something before it, after it, or instead of it."""
        return await call()

    def _intercepted(self, name: str, ledger: Ledger) -> Ledger:
        seen = copy(ledger)
        for method in dir(ledger):
            call = getattr(ledger, method)
            if not method.startswith("_") and iscoroutinefunction(call):
                setattr(seen, method, self._passing(f"{name}.{method}", call))
        return seen

    def _passing(self, name: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        async def passing(*args: Any, **kwargs: Any) -> Any:
            chosen = getattr(self, name.replace(".", "_"), call)
            return await self.around(name, lambda: chosen(*args, **kwargs))

        return passing


class NoDatabase:
    """Refuses every transaction: a fake has to answer every call that a test makes."""

    url = "none:"

    async def read(self, work: Work[T]) -> T:
        raise AssertionError("the fake does not answer this call")

    async def write(self, work: Work[T]) -> T:
        raise AssertionError("the fake does not answer this call")

    async def close(self) -> None: ...


class FakeControlPlane(ControlWrapper):
    """Has no database: a subclass answers the calls that its test makes."""

    def __init__(self) -> None:
        super().__init__(ControlPlane(NoDatabase(), os.urandom))


class ActingControl(ControlWrapper):
    """Does something of its own before the nth call of a name."""

    def __init__(
        self,
        inner: ControlPlane,
        before: str,
        action: Callable[[], Awaitable[Any]],
        *,
        nth: int = 1,
    ) -> None:
        super().__init__(inner)
        self.acted = asyncio.Event()
        self._before = before
        self._action = action
        self._remaining = nth

    async def around(self, name: str, call: Call) -> Any:
        if name == self._before:
            self._remaining -= 1
            if self._remaining == 0:
                self.acted.set()
                await self._action()
        return await call()


class DyingControl(ControlWrapper):
    """Dies at the nth call of a name: before the call has any effect, or after it had."""

    def __init__(
        self, inner: ControlPlane, method: str, error: type[Exception], *, nth: int = 1, after: bool
    ) -> None:
        super().__init__(inner)
        self._method = method
        self._error = error
        self._left = nth
        self._after = after

    async def around(self, name: str, call: Call) -> Any:
        if name != self._method:
            return await call()
        self._left -= 1
        if self._left:
            return await call()
        if self._after:
            await call()
        raise self._error
