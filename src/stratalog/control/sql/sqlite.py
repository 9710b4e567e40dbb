"""SQLite as the control plane's database: one file, shared by the processes of one machine.

Connections live on threads of their own, so that no transaction and no wait for another process's
lock holds up the event loop. One connection writes; `BEGIN IMMEDIATE` takes the file's only write
lock before anything is read, so a transaction never loses its place. The write-ahead log with
full synchronisation makes a commit durable before it is answered.
"""

import asyncio
import os
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.control.errors import (
    CommitInDoubtError,
    ControlAccessError,
    ControlDamagedError,
    ControlUnavailableError,
)
from stratalog.control.sql.database import Row, Rows, Work
from stratalog.control.sql.dialect import SqliteDialect
from stratalog.objects.durable_files import make_private_folder
from stratalog.retry import Backoff, retry

T = TypeVar("T")
_Action: TypeAlias = Callable[[sqlite3.Connection], None]

BUSY_TIMEOUT_MS = 10_000
_BUSY_PAUSE_MS = 1
READERS = 2
_OPEN_ATTEMPTS = 50
_OPEN_BACKOFF = Backoff(first_s=0.05, longest_s=0.05)

_making = threading.Lock()
"""Held while a file is made, so that no thread locks a file that another is about to close."""

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


class _Caller:
    """The caller of a transaction, which may have stopped waiting for it."""

    __slots__ = ("is_gone",)

    def __init__(self) -> None:
        self.is_gone = False

    def check(self) -> None:
        """End the work if its caller is gone, as it would end on the event loop."""
        if self.is_gone:
            raise asyncio.CancelledError


class _Statements:
    """The open transaction of a connection, on whose thread alone it is used.

    No statement ever waits for the event loop, so neither does the transaction.
    """

    def __init__(self, raw: sqlite3.Connection, path: Path, caller: _Caller) -> None:
        self._raw = raw
        self._path = path
        self._caller = caller

    async def fetch(self, sql: str, *args: Any, rows: Rows | None = None) -> list[Row]:
        return self._run(*_prepare(sql, args, rows)).fetchall()

    async def execute(self, sql: str, *args: Any, rows: Rows | None = None) -> int:
        # Not the cursor's rowcount, which does not know a statement that begins with WITH.
        before = self._raw.total_changes
        self._run(*_prepare(sql, args, rows))
        return self._raw.total_changes - before

    async def fetch_each(self, sql: str, rows: Rows) -> list[list[Row]]:
        text = SqliteDialect.render_each(sql, rows.shape)
        return [self._run(text, SqliteDialect.arguments(row)).fetchall() for row in rows.values]

    async def execute_each(self, sql: str, rows: Rows) -> None:
        self._caller.check()
        text = SqliteDialect.render_row(sql, rows.shape)
        try:
            self._raw.executemany(text, SqliteDialect.values(rows))
        except sqlite3.Error as error:
            raise _translate(error, self._path) from error

    async def lock(self, name: str, *, shared: bool = False) -> None:
        """Any name will do: a write transaction is alone with the file."""

    def _run(self, sql: str, values: list[Any]) -> sqlite3.Cursor:
        self._caller.check()
        try:
            return self._raw.execute(sql, values)
        except sqlite3.Error as error:
            raise _translate(error, self._path) from error


class SqliteConnection:
    """One connection on one thread, on which whole transactions run.

    If statements went to the thread one by one, a busy event loop would hold the file's write lock
    between them, and all processes would wait for it.
    """

    def __init__(self, path: Path, clock: Clock, *, patience_ms: int = BUSY_TIMEOUT_MS) -> None:
        """`patience_ms`: how long a statement waits for locks by itself."""
        self._path = path
        self._clock = clock
        self._patience_ms = patience_ms
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="control-sqlite")
        self._raw: sqlite3.Connection | None = None

    async def open(self) -> None:
        # Switching a new file to the write-ahead log needs the file alone and does not wait for
        # it, whatever the busy timeout. Only starters of the same moment get in its way.
        self._raw = await retry(
            lambda: self._call(self._connect),
            clock=self._clock,
            failures=ControlUnavailableError,
            backoff=_OPEN_BACKOFF,
            attempts=_OPEN_ATTEMPTS,
        )

    async def close(self) -> None:
        if self._raw is not None:
            await self._call(self._raw.close)
        self._thread.shutdown(wait=False)

    async def read(self, work: Work[T]) -> T:
        """Run `work` on one snapshot, which is taken by its first statement."""
        return await self._transact("BEGIN", work, lambda _: None)

    async def write(self, work: Work[T]) -> T:
        return await self._transact("BEGIN IMMEDIATE", work, self._commit)

    async def _transact(self, begin: str, work: Work[T], end: _Action) -> T:
        caller = _Caller()
        try:
            return await self._call(lambda: self._run(begin, work, end, caller))
        except asyncio.CancelledError:
            caller.is_gone = True
            raise

    async def _call(self, action: Callable[[], T]) -> T:
        """Run `action` on the connection's thread."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, action)
        except sqlite3.Error as error:
            raise _translate(error, self._path) from error

    # On the connection's thread.

    def _connect(self) -> sqlite3.Connection:
        return _connect(self._path, self._clock, self._patience_ms)

    def _run(self, begin: str, work: Work[T], end: _Action, caller: _Caller) -> T:
        raw = self._raw
        assert raw is not None, "the connection is not open"
        _begin(raw, begin, caller, self._clock)
        try:
            result = _result_of(work(_Statements(raw, self._path, caller)))
            caller.check()
            end(raw)
            return result
        finally:
            if raw.in_transaction:
                with suppress(sqlite3.Error):
                    raw.execute("ROLLBACK")

    def _commit(self, raw: sqlite3.Connection) -> None:
        try:
            raw.execute("COMMIT")
        except sqlite3.Error as error:
            # After a failed sync the pages may or may not be on the disk.
            if _code(error) == sqlite3.SQLITE_IOERR:
                raise CommitInDoubtError(f"{self._path}: commit failed: {error}") from error
            raise


def _begin(raw: sqlite3.Connection, statement: str, caller: _Caller, clock: Clock) -> None:
    """Wait for the write lock, if the statement wants it, and look every millisecond whether it is
    free. SQLite by itself looks ever more rarely, ten times a second in the end, and finds it free
    only by chance beside a process that writes one transaction after the other.
    """
    deadline_s = clock.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        caller.check()
        try:
            raw.execute(statement)
            return
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_BUSY or clock.monotonic() > deadline_s:
                raise


def _result_of(work: Awaitable[T]) -> T:
    """Run work that waits for nothing but statements, which in turn have nothing to wait for."""
    steps = work.__await__()
    try:
        next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
    raise TypeError("a transaction waits for something else than its statements")


class SqliteDatabase:
    """A writing connection and a few reading ones on one file."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._writer = SqliteConnection(path, clock, patience_ms=_BUSY_PAUSE_MS)
        self._writing = asyncio.Lock()
        self._readers = [SqliteConnection(path, clock) for _ in range(READERS)]
        self._idle_readers: asyncio.LifoQueue[SqliteConnection] = asyncio.LifoQueue()

    @classmethod
    async def open(cls, url: str, clock: Clock = SYSTEM_CLOCK) -> "SqliteDatabase":
        """Open the file. `clock` is the database's clock: the time of `{now_ms}` and of waits."""
        path = Path(url.removeprefix("sqlite:"))
        await asyncio.to_thread(_make_folder, path.parent.absolute())
        await asyncio.to_thread(_make_file, path)
        database = cls(path, clock)
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


def _make_file(path: Path) -> None:
    """Create a missing file that only its owner may read. SQLite makes it readable for everyone,
    and gives the files beside it the permissions of this one.

    A file that is there is not opened. Closing it would release the locks of all connections that
    this process has to it, and another process would delete the log that they write to.
    """
    with _making, suppress(OSError):  # SQLite names the reason better.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _connect(path: Path, clock: Clock, patience_ms: int) -> sqlite3.Connection:
    raw = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None, cached_statements=256
    )
    raw.create_function("from_hex", 1, _from_hex, deterministic=True)
    # Deterministic, in SQLite's sense: the same throughout a statement, which asks for it once.
    raw.create_function("now_ms", 0, clock.now_ms, deterministic=True)
    try:
        raw.execute("PRAGMA journal_mode = WAL").fetchone()
        raw.execute("PRAGMA synchronous = FULL")
        raw.execute(f"PRAGMA busy_timeout = {patience_ms}")
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
        make_private_folder(folder)
    except OSError as error:
        raise ControlAccessError(f"{folder}: cannot be created: {error.strerror}") from error
