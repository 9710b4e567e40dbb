"""A control plane that goes back under brokers that run, and comes back: as in a fail-over to a
standby that was behind, which is noticed and taken back.

Each change is one transaction, so that brokers see one state and then another. It notes the state
that it replaces in the same transaction: no commit is lost between the two.
"""

import asyncio
import io
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import asyncpg

_BUSY_S = 30.0
_LOCK_S = 120.0
"""A broker that is stopped in the middle of a transaction keeps its locks for some seconds."""
_LOCK_RETRY_S = 0.01
_TABLES = """
    SELECT table_name FROM information_schema.tables
    WHERE table_schema = 'public' AND table_type = 'BASE TABLE' ORDER BY table_name
"""

Rows = dict[str, bytes]
"""The rows of all tables of PostgreSQL, in its own text format."""


class ControlCopy(Protocol):
    async def take(self) -> None:
        """Copy the control plane as it is now."""
        ...

    async def go_back(self) -> None:
        """Let the control plane be as it was when the copy was taken."""
        ...

    async def restore(self) -> None:
        """Let the control plane be as it was before it went back."""
        ...


def copy_of(control_url: str, folder: Path) -> ControlCopy:
    if control_url.startswith("sqlite:"):
        return SqliteCopy(Path(control_url.removeprefix("sqlite:")), folder)
    return PostgresCopy(control_url)


class SqliteCopy:
    """The copies are files."""

    def __init__(self, database: Path, folder: Path) -> None:
        self._database = database
        self._earlier = folder / "earlier.db"
        self._newest = folder / "newest.db"

    async def take(self) -> None:
        await asyncio.to_thread(self._take)

    def _take(self) -> None:
        with closing(self._opened()) as live:
            _back_up(live, self._earlier)

    async def go_back(self) -> None:
        await asyncio.to_thread(self._put, self._earlier, self._newest)

    async def restore(self) -> None:
        await asyncio.to_thread(self._put, self._newest, self._earlier)

    def _put(self, copy: Path, replaced: Path) -> None:
        with closing(self._opened()) as live:
            live.execute("ATTACH ? AS copy", (f"{copy}",))
            live.execute("BEGIN IMMEDIATE")
            # A connection that writes cannot be copied. Another one sees the same state.
            with closing(self._opened()) as other:
                _back_up(other, replaced)
            tables = live.execute("SELECT name FROM copy.sqlite_master WHERE type = 'table'")
            for (table,) in tables.fetchall():
                live.execute(f"DELETE FROM main.{table}")
                live.execute(f"INSERT INTO main.{table} SELECT * FROM copy.{table}")
            live.execute("COMMIT")

    def _opened(self) -> sqlite3.Connection:
        return sqlite3.connect(self._database, timeout=_BUSY_S, isolation_level=None)


def _back_up(live: sqlite3.Connection, file: Path) -> None:
    file.unlink(missing_ok=True)
    with closing(sqlite3.connect(file)) as copy:
        live.backup(copy)


class PostgresCopy:
    """The copies are in memory."""

    def __init__(self, dsn: str) -> None:
        self._dsn = urlsplit(dsn)._replace(scheme="postgresql").geturl()
        self._earlier: Rows = {}
        self._newest: Rows = {}

    async def take(self) -> None:
        connection = await asyncpg.connect(self._dsn)
        try:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                self._earlier = await _rows_of(connection)
        finally:
            await connection.close()

    async def go_back(self) -> None:
        self._newest = await self._put(self._earlier)

    async def restore(self) -> None:
        await self._put(self._newest)

    async def _put(self, rows: Rows) -> Rows:
        """Replace the rows, and return the ones that were there."""
        connection = await asyncpg.connect(self._dsn)
        try:
            async with asyncio.timeout(_LOCK_S):
                while True:
                    try:
                        return await _replaced(connection, rows)
                    except asyncpg.LockNotAvailableError:
                        await asyncio.sleep(_LOCK_RETRY_S)
        finally:
            await connection.close()


async def _replaced(connection: "asyncpg.Connection[asyncpg.Record]", rows: Rows) -> Rows:
    """Lock all tables or none: brokers lock them in an order of their own, and one that waits for
    some while it holds others would be in a deadlock with them, again and again."""
    async with connection.transaction():
        await connection.execute(f"LOCK TABLE {', '.join(rows)} IN ACCESS EXCLUSIVE MODE NOWAIT")
        replaced = await _rows_of(connection)
        await connection.execute(f"TRUNCATE {', '.join(rows)}")
        for table, data in rows.items():
            await connection.copy_to_table(table, source=io.BytesIO(data))
    return replaced


async def _rows_of(connection: "asyncpg.Connection[asyncpg.Record]") -> Rows:
    found: Rows = {}
    for (table,) in await connection.fetch(_TABLES):
        rows = io.BytesIO()
        await connection.copy_from_table(table, output=rows)
        found[table] = rows.getvalue()
    return found
