"""A database in which something happens between an operation's look and its write."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from stratalog.control.sql.database import Database, Work

T = TypeVar("T")


class Between:
    def __init__(self, inner: Database, happens: Callable[[], Awaitable[object]]) -> None:
        """`happens` does so once, after the first look."""
        self._inner = inner
        self._happens = [happens]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def read(self, work: Work[T]) -> T:
        seen = await self._inner.read(work)
        while self._happens:
            await self._happens.pop()()
        return seen
