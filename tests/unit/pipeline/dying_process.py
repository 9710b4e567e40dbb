"""A process that dies at one of its calls, of the control plane or of the store.

From then on all of its calls die, as calls of a dead process have no effect.
"""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, TypeVar

from tests.support.ledgers import Call, ControlWrapper
from tests.unit.pipeline.failing_control import Crash

from stratalog.control.plane import ControlPlane
from stratalog.objects.store import Buffer, ObjectInfo, ObjectStore
from stratalog.objects.wrapped import WrappedStore

T = TypeVar("T")


class When(StrEnum):
    BEFORE = "before"
    """The call has no effect."""
    MIDWAY = "midway"
    """In the middle of an upload; elsewhere like before."""
    AFTER = "after"
    """The call has taken effect, and its answer is lost."""


class DyingProcess:
    """Dies at the `nth` call of the name `call`, or of any name."""

    def __init__(self, call: str | None, *, nth: int = 0, when: When = When.BEFORE) -> None:
        self._call = call
        self._left = nth
        self._when = when
        self._dead = False

    def control(self, inner: ControlPlane) -> ControlPlane:
        return _DyingControl(self, inner)

    def store(self, inner: ObjectStore) -> ObjectStore:
        return _DyingStore(self, inner)

    def due(self, name: str) -> When | None:
        """When in this call it dies, if it does."""
        if self._dead:
            return When.BEFORE
        if self._call not in (None, name):
            return None
        self._left -= 1
        return self._when if self._left == -1 else None

    def die(self, name: str) -> Crash:
        self._dead = True
        return Crash(name)

    async def around(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        when = self.due(name)
        if when in (When.BEFORE, When.MIDWAY):
            raise self.die(name)
        answer = await call()
        if when is When.AFTER or self._dead:
            raise self.die(name)
        return answer


class _DyingControl(ControlWrapper):
    def __init__(self, process: DyingProcess, inner: ControlPlane) -> None:
        super().__init__(inner)
        self._process = process

    async def around(self, name: str, call: Call) -> Any:
        return await self._process.around(name, call)


class _DyingStore(WrappedStore):
    def __init__(self, process: DyingProcess, inner: ObjectStore) -> None:
        super().__init__(inner)
        self._process = process

    async def put_stream(self, key: str, parts: AsyncIterable[Buffer]) -> int:
        when = self._process.due("put_stream")
        if when is When.BEFORE:
            raise self._process.die("put_stream")
        if when is When.MIDWAY:
            parts = self._broken_off(parts)
        size_bytes = await self._inner.put_stream(key, parts)
        if when is not None:
            raise self._process.die("put_stream")
        return size_bytes

    async def _broken_off(self, parts: AsyncIterable[Buffer]) -> AsyncIterator[Buffer]:
        async for part in parts:
            yield part
            break
        raise self._process.die("put_stream")

    async def list(
        self, prefix: str, *, start_after: str | None = None
    ) -> AsyncIterator[ObjectInfo]:
        when = self._process.due("list")
        if when in (When.BEFORE, When.MIDWAY):
            raise self._process.die("list")
        async for info in self._inner.list(prefix, start_after=start_after):
            yield info
            if when is When.AFTER:
                raise self._process.die("list")

    async def _around(self, operation: str, key: str, call: Callable[[], Awaitable[T]]) -> T:
        return await self._process.around(operation, call)


@contextmanager
def dying() -> Iterator[None]:
    """The process may die here, in one of its tasks or in several."""
    try:
        yield
    except* Crash:
        pass
