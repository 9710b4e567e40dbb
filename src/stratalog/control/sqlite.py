"""SQLite as the control plane's database: one file, shared by the processes of one machine.

Connections live on threads of their own, so that no statement and no wait for another process's
lock holds up the event loop. One connection writes; `BEGIN IMMEDIATE` takes the file's only write
lock before anything is read, so a transaction never loses its place. The write-ahead log with
full synchronisation makes a commit durable before it is answered.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from stratalog.clock import Clock, SystemClock
from stratalog.control.database import Row, Rows, Work
from stratalog.control.dialect import SqliteDialect
from stratalog.control.plane import (
    CommitInDoubtError,
    ControlAccessError,
    ControlDamagedError,
    ControlUnavailableError,
)

T = TypeVar("T")

BUSY_TIMEOUT_MS = 10_000
READERS = 2
_OPEN_ATTEMPTS = 50
_OPEN_PAUSE_S = 0.05

_ACCESS_CODES = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)
_DAMAGE_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_PASSING_CODES = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_INTERRUPT,
)


class _Transaction:
    """Whether a transaction has begun, known to the connection's thread alone.

    Each has its own: statements of a transaction whose task was cancelled may still be on their
    way to the thread when the next one starts, and must not use up its beginning.
    """

    __slots__ = ("begin", "has_begun")

    def __init__(self, begin: str) -> None:
        self.begin = begin
        self.has_begun = False


class SqliteConnection:
    """One connection on one thread. Implements `Connection` while a transaction is open on it."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="control-sqlite")
        self._raw: sqlite3.Connection | None = None
        self._transaction = _Transaction("")

    async def open(self) -> None:
        # Switching a new file to the write-ahead log needs the file alone and does not wait for
        # it, whatever the busy timeout. Only starters of the same moment get in its way.
        for _ in range(_OPEN_ATTEMPTS - 1):
            try:
                self._raw = await self.call(lambda: _connect(self._path))
                return
            except ControlUnavailableError:
                await self._clock.sleep(_OPEN_PAUSE_S)
        self._raw = await self.call(lambda: _connect(self._path))

    async def close(self) -> None:
        if self._raw is not None:
            await self.call(self._raw.close)
        self._thread.shutdown(wait=False)

    async def call(self, action: Callable[[], T]) -> T:
        """Run `action` on the connection's thread."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, action)
        except sqlite3.Error as error:
            raise _translate(error, self._path) from error

    async def read(self, work: Work[T]) -> T:
        """Run `work` on one snapshot, which is taken by its first statement."""
        self._transaction = _Transaction("BEGIN")
        try:
            return await work(self)
        finally:
            # Not awaited: nobody needs to wait for the end of a snapshot, and a cancelled task
            # must leave, too. The thread takes its work in order, so that whoever comes next
            # finds the connection clean.
            self._thread.submit(self._rollback)

    async def write(self, work: Work[T]) -> T:
        self._transaction = _Transaction("BEGIN IMMEDIATE")
        try:
            result = await work(self)
            await self._commit()
        except BaseException:
            self._thread.submit(self._rollback)
            raise
        return result

    async def fetch(self, sql: str, *args: Any, rows: Rows | None = None) -> list[Row]:
        text, values = _prepare(sql, args, rows)
        transaction = self._transaction
        return await self.call(lambda: self._sql(transaction, text, values).fetchall())

    async def execute(self, sql: str, *args: Any, rows: Rows | None = None) -> int:
        text, values = _prepare(sql, args, rows)
        transaction = self._transaction
        return await self.call(lambda: self._count_changes(transaction, text, values))

    async def fetch_each(self, sql: str, rows: Rows) -> list[list[Row]]:
        text = SqliteDialect.render_each(sql, rows.shape)
        values = [SqliteDialect.arguments(row) for row in rows.values]
        transaction = self._transaction
        return await self.call(
            lambda: [self._sql(transaction, text, row).fetchall() for row in values]
        )

    async def lock(self, name: str, *, shared: bool = False) -> None:  # noqa: ARG002
        """Any name will do: a write transaction that has begun is alone with the file."""
        transaction = self._transaction
        await self.call(lambda: self._ensure_begun(transaction))

    async def _commit(self) -> None:
        transaction = self._transaction
        try:
            await asyncio.get_running_loop().run_in_executor(
                self._thread, lambda: self._sql(transaction, "COMMIT")
            )
        except sqlite3.Error as error:
            # After a failed sync the pages may or may not be on the disk.
            if _code(error) == sqlite3.SQLITE_IOERR:
                raise CommitInDoubtError(f"{self._path}: commit failed: {error}") from error
            raise _translate(error, self._path) from error

    def _sql(
        self, transaction: _Transaction, sql: str, values: list[Any] | tuple[()] = ()
    ) -> sqlite3.Cursor:
        """Run a statement. The first one of a transaction begins it, to save a change of thread."""
        return self._ensure_begun(transaction).execute(sql, values)

    def _ensure_begun(self, transaction: _Transaction) -> sqlite3.Connection:
        assert self._raw is not None, "the connection is not open"
        if not transaction.has_begun:
            self._raw.execute(transaction.begin)
            transaction.has_begun = True
        return self._raw

    def _count_changes(self, transaction: _Transaction, sql: str, values: list[Any]) -> int:
        # Not the cursor's rowcount, which does not know a statement that begins with WITH.
        assert self._raw is not None, "the connection is not open"
        before = self._raw.total_changes
        self._sql(transaction, sql, values)
        return self._raw.total_changes - before

    def _rollback(self) -> None:
        assert self._raw is not None, "the connection is not open"
        if self._raw.in_transaction:
            self._raw.execute("ROLLBACK")


class SqliteDatabase:
    """A writing connection and a few reading ones on one file."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._writer = SqliteConnection(path, clock)
        self._writing = asyncio.Lock()
        self._readers = [SqliteConnection(path, clock) for _ in range(READERS)]
        self._idle_readers: asyncio.LifoQueue[SqliteConnection] = asyncio.LifoQueue()

    @classmethod
    async def open(cls, url: str, clock: Clock | None = None) -> "SqliteDatabase":
        path = Path(url.removeprefix("sqlite:"))
        await asyncio.to_thread(_make_folder, path.parent)
        database = cls(path, clock or SystemClock())
        try:
            for connection in (database._writer, *database._readers):
                await connection.open()
        except BaseException:
            await database.close()
            raise
        for reader in database._readers:
            database._idle_readers.put_nowait(reader)
        return database

    @property
    def url(self) -> str:
        return f"sqlite:{self._path}"

    async def read(self, work: Work[T]) -> T:
        reader = await self._idle_readers.get()
        try:
            return await reader.read(work)
        finally:
            self._idle_readers.put_nowait(reader)

    async def write(self, work: Work[T]) -> T:
        async with self._writing:
            return await self._writer.write(work)

    async def close(self) -> None:
        for connection in (self._writer, *self._readers):
            await connection.close()


def _connect(path: Path) -> sqlite3.Connection:
    raw = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None, cached_statements=256
    )
    raw.create_function("from_hex", 1, _from_hex, deterministic=True)
    try:
        raw.execute("PRAGMA journal_mode = WAL").fetchone()
        raw.execute("PRAGMA synchronous = FULL")
    except sqlite3.Error:
        raw.close()
        raise
    return raw


def _from_hex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _prepare(sql: str, args: tuple[Any, ...], rows: Rows | None) -> tuple[str, list[Any]]:
    values = SqliteDialect.arguments(args)
    if rows is None:
        return SqliteDialect.render(sql, None, 0), values
    text = SqliteDialect.render(sql, rows.shape, len(args) + 1)
    return text, [*values, SqliteDialect.json(rows)]


def _code(error: sqlite3.Error) -> int:
    """The primary result code, without the extension in the upper bits."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _translate(error: sqlite3.Error, path: Path) -> Exception:
    code = _code(error)
    if code in _ACCESS_CODES:
        return ControlAccessError(f"{path}: {error}: check the path and its permissions")
    if code in _DAMAGE_CODES:
        return ControlDamagedError(f"{path}: {error}: restore it from a backup")
    if code in _PASSING_CODES:
        return ControlUnavailableError(f"{path}: {error}")
    return error


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ControlAccessError(f"{folder}: cannot be created: {error.strerror}") from error
