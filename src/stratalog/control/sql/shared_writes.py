"""Small writes that wait for each other anyway, made in one transaction.

A run of the pipeline finishes many segments at the same time, with a few writes each. A transaction
of its own for each of them would be as many syncs of the disk, and would keep brokers waiting for
a database that has one writer. So the writes that came while a transaction was under way share the
next one.

A write that is refused does not fail the others: they are then made one by one. The same happens
if the outcome of the commit is unknown. Only if the database itself is unavailable do all fail.
"""

import asyncio
from dataclasses import dataclass
from typing import Any, TypeVar

from stratalog.control.sql.database import Connection, Database, Work
from stratalog.errors import RetriableError

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _Write:
    key: Any
    work: Work[Any]
    done: bool = False
    result: Any = None
    error: Exception | None = None


class SharedWrites:
    """Writes must be repeatable: the writes of a transaction are repeated if one was refused."""

    def __init__(self, database: Database, *, most: int = 16) -> None:
        """`most` go together: the first of them holds its locks until the last one is done."""
        self._database = database
        self._most = most
        self._waiting: list[_Write] = []
        self._writing = asyncio.Lock()

    async def write(self, key: Any, work: Work[T]) -> T:
        """Run `work` in a transaction that is durable when this returns. The writes of one
        transaction run in the order of their keys, which is the order of their locks."""
        own = _Write(key, work)
        self._waiting.append(own)
        try:
            async with self._writing:
                while not own.done:
                    await self._write_waiting()
        finally:
            self._waiting = [write for write in self._waiting if write is not own]
        if own.error is not None:
            raise own.error
        result: T = own.result
        return result

    async def _write_waiting(self) -> None:
        writes = sorted(self._waiting[: self._most], key=lambda write: write.key)

        async def all_of_them(connection: Connection) -> list[Any]:
            return [await write.work(connection) for write in writes]

        try:
            results = await self._database.write(all_of_them)
        except RetriableError as error:
            # Asking again for each would only take longer.
            self._end(writes, [error] * len(writes))
        except Exception:
            for write in writes:
                self._end([write], [await self._written(write)])
        else:
            for write, result in zip(writes, results, strict=True):
                write.result = result
            self._end(writes, [None] * len(writes))

    async def _written(self, write: _Write) -> Exception | None:
        try:
            write.result = await self._database.write(write.work)
        except Exception as error:
            return error
        return None

    def _end(self, writes: list[_Write], errors: list[Any]) -> None:
        for write, error in zip(writes, errors, strict=True):
            write.done, write.error = True, error
        self._waiting = [write for write in self._waiting if not write.done]
