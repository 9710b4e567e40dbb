"""The simulated cluster's database: SQLite in memory, on one connection.

Every transaction runs in one step of the loop, so that there is never a second one beside it, and
the machine's disk has no part in a simulated crash. A cluster on a file has the same statements,
and the same code around them.
"""

import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import TypeVar

from stratalog.clock import Clock
from stratalog.control.sql.database import Work
from stratalog.control.sql.migrate import migrate
from stratalog.control.sql.sqlite import SqliteConnection
from stratalog.testing.simulation import NodeClock, run_simulated

T = TypeVar("T")

_IN_MEMORY = Path(":memory:")


class MemoryDatabase:
    """Implements `Database`."""

    url = "sqlite:memory"

    def __init__(self, clock: Clock) -> None:
        self._connection = SqliteConnection(_IN_MEMORY, clock)

    @classmethod
    async def open(cls, clock: Clock, content: bytes = b"") -> "MemoryDatabase":
        """Open a database with this content, which is the file of another."""
        database = cls(clock)
        await database._connection.open()
        if content:
            database.raw.deserialize(content)
        return database

    @property
    def raw(self) -> sqlite3.Connection:
        """The connection, for looks past every transaction."""
        assert self._connection._raw is not None
        return self._connection._raw

    def swap(self, content: bytes) -> bytes:
        """Let the database have this content, and return the content that it had."""
        before = self.raw.serialize()
        # SQLite may crash if a connection that has prepared statements is given another memory.
        with closing(sqlite3.connect(_IN_MEMORY)) as copy:
            copy.deserialize(content)
            copy.backup(self.raw)
        return before

    async def read(self, work: Work[T]) -> T:
        return await self._connection.read(work)

    async def write(self, work: Work[T]) -> T:
        return await self._connection.write(work)

    async def close(self) -> None:
        await self._connection.close()


@cache
def empty_control_plane() -> bytes:
    """The file of a control plane with its tables and nothing in them: made once a process."""

    async def make() -> bytes:
        database = await MemoryDatabase.open(NodeClock())
        await migrate(database)
        content = database.raw.serialize()
        await database.close()
        return content

    return run_simulated(make())
