"""PostgreSQL as the control plane's database.

A connection that breaks before COMMIT was sent changed nothing; one that breaks while COMMIT is
under way leaves doubt, and says so. Losers of a deadlock or a serialisation conflict are run again
here, because callers cannot distinguish them from other failures.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast
from urllib.parse import urlsplit, urlunsplit

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.control.errors import CommitInDoubtError, ControlAccessError, ControlUnavailableError
from stratalog.control.sql.database import Row, Rows, Work
from stratalog.control.sql.dialect import PostgresDialect
from stratalog.retry import Backoff, retry

T = TypeVar("T")

MAX_CONNECTIONS = 10
"""Unless the settings say otherwise."""
CONNECT_TIMEOUT_S = 10
COMMAND_TIMEOUT_S = 30
ATTEMPTS = 5
IDLE_IN_TRANSACTION_MS = 15_000
"""A transaction awaits its statements only, so the server waits for the next one no longer than the
event loop is busy, and a long statement does not count. Below `COMMAND_TIMEOUT_S`, so that another
broker, which waits for the heads of a stopped one, gets them before its own statement times out."""
# A peer that is gone without a word is noticed after 10 + 4 * 5 = 30 s, the time of a statement.
_KEEPALIVE_IDLE_S = 10
_KEEPALIVE_INTERVAL_S = 5
_KEEPALIVE_COUNT = 4
_BACKOFF = Backoff(first_s=0.01)

# An idle connection that the server has closed gives the client's internal error.
_BROKEN = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
_CONFLICT = asyncpg.TransactionRollbackError
_PASSING = (
    asyncpg.InsufficientResourcesError,
    asyncpg.OperatorInterventionError,
    asyncpg.ObjectNotInPrerequisiteStateError,
    asyncpg.PostgresSystemError,
    asyncpg.ReadOnlySQLTransactionError,
    # Also at COMMIT: the server ends a transaction only before it has read that.
    asyncpg.IdleInTransactionSessionTimeoutError,
)
_REFUSED = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
)
# The server may have been stopped between writing the commit record and answering.
_STOPPED_WHILE_COMMITTING = asyncpg.OperatorInterventionError


# Generic in the stubs only.
if TYPE_CHECKING:
    _Base: TypeAlias = asyncpg.Connection[asyncpg.Record]
    _Raw: TypeAlias = PoolConnectionProxy[asyncpg.Record]
else:
    _Base = asyncpg.Connection


class _Session(_Base):
    def get_reset_query(self) -> str:
        """Nothing to reset: transactions here leave no session state, and a trip is saved."""
        return ""


class _NotBegunError(Exception):
    """The connection was dead before the transaction began: another may be alive."""


class PostgresConnection:
    """One open transaction. Implements `Connection`."""

    def __init__(self, raw: "_Raw") -> None:
        self._raw = raw

    async def fetch(self, sql: str, *args: Any, rows: Rows | None = None) -> list[Row]:
        text, values = _prepare(sql, args, rows)
        # A record unpacks and indexes like the tuple that it is typed as.
        return cast(list[Row], await self._raw.fetch(text, *values))

    async def execute(self, sql: str, *args: Any, rows: Rows | None = None) -> int:
        text, values = _prepare(sql, args, rows)
        status = await self._raw.execute(text, *values)
        count = status.rpartition(" ")[2]
        return int(count) if count.isdigit() else 0

    async def fetch_each(self, sql: str, rows: Rows) -> list[list[Row]]:
        text = PostgresDialect.render_each(sql, rows.shape)
        answers: list[list[Row]] = [[] for _ in rows.values]
        for source_row, *row in await self._raw.fetch(text, *PostgresDialect.columns(rows)):
            answers[source_row - 1].append(tuple(row))
        return answers

    async def execute_each(self, sql: str, rows: Rows) -> None:
        await self.execute(sql, rows=rows)

    async def lock(self, name: str, *, shared: bool = False) -> None:
        function = "pg_advisory_xact_lock_shared" if shared else "pg_advisory_xact_lock"
        await self._raw.execute(f"SELECT {function}(hashtextextended($1, 0))", f"stratalog:{name}")


class PostgresDatabase:
    def __init__(self, pool: "asyncpg.Pool[asyncpg.Record]", url: str, clock: Clock) -> None:
        self._pool = pool
        self._url = url
        self._clock = clock

    @classmethod
    async def open(
        cls, url: str, clock: Clock = SYSTEM_CLOCK, *, connections: int = MAX_CONNECTIONS
    ) -> "PostgresDatabase":
        shown = _without_secrets(url)
        try:
            pool = await asyncpg.create_pool(
                url,
                min_size=1,
                max_size=connections,
                timeout=CONNECT_TIMEOUT_S,
                command_timeout=COMMAND_TIMEOUT_S,
                connection_class=_Session,
                server_settings=_server_settings(),
            )
        except (asyncpg.PostgresError, *_BROKEN) as error:
            raise _translate(error, shown) from error
        except ValueError as error:
            raise ControlAccessError(f"{shown}: not a PostgreSQL address") from error
        return cls(pool, shown, clock)

    @property
    def url(self) -> str:
        return self._url

    async def read(self, work: Work[T]) -> T:
        try:
            return await self._repeat("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", work)
        except CommitInDoubtError as error:
            # Nothing was written, so nothing is in doubt, and the read may be repeated.
            raise ControlUnavailableError(str(error)) from error

    async def write(self, work: Work[T]) -> T:
        return await self._repeat("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", work)

    async def close(self) -> None:
        try:
            await asyncio.wait_for(self._pool.close(), CONNECT_TIMEOUT_S)
        except TimeoutError:
            self._pool.terminate()

    async def _repeat(self, begin: str, work: Work[T]) -> T:
        try:
            return await retry(
                lambda: self._run(begin, work),
                clock=self._clock,
                failures=(_CONFLICT, _NotBegunError),
                backoff=_BACKOFF,
                attempts=ATTEMPTS,
            )
        except _NotBegunError as error:
            raise ControlUnavailableError(f"{self._url}: {error}") from error
        except _CONFLICT as error:
            raise ControlUnavailableError(f"{self._url}: lost {ATTEMPTS} conflicts") from error

    async def _run(self, begin: str, work: Work[T]) -> T:
        async with self._session() as raw:
            await _begin(raw, begin)
            try:
                result = await work(PostgresConnection(raw))
            except _CONFLICT:
                await _roll_back(raw)
                raise
            except (asyncpg.PostgresError, *_BROKEN) as error:
                await _roll_back(raw)
                raise _translate(error, self._url) from error
            except BaseException:
                await _roll_back(raw)
                raise
            await self._commit(raw)
            return result

    @asynccontextmanager
    async def _session(self) -> "AsyncIterator[_Raw]":
        try:
            raw = await self._pool.acquire(timeout=CONNECT_TIMEOUT_S)
        except (asyncpg.PostgresError, *_BROKEN) as error:
            raise _translate(error, self._url) from error
        try:
            yield raw
        finally:
            with suppress(asyncpg.PostgresError, *_BROKEN):
                await self._pool.release(raw, timeout=CONNECT_TIMEOUT_S)

    async def _commit(self, raw: "_Raw") -> None:
        try:
            status = await raw.execute("COMMIT")
        except _CONFLICT:
            raise
        except (_STOPPED_WHILE_COMMITTING, *_BROKEN) as error:
            raise CommitInDoubtError(f"{self._url}: {_say(error)} while committing") from error
        except asyncpg.PostgresError as error:
            raise _translate(error, self._url) from error
        if status != "COMMIT":
            raise ControlUnavailableError(f"{self._url}: the transaction was rolled back")


def _server_settings() -> dict[str, str]:
    """Settings of every session, which win over the defaults of server, database and role."""
    return {
        "application_name": "stratalog",
        "synchronous_commit": "on",
        "jit": "off",
        "idle_in_transaction_session_timeout": f"{IDLE_IN_TRANSACTION_MS}",
        "tcp_keepalives_idle": f"{_KEEPALIVE_IDLE_S}",
        "tcp_keepalives_interval": f"{_KEEPALIVE_INTERVAL_S}",
        "tcp_keepalives_count": f"{_KEEPALIVE_COUNT}",
    }


async def _begin(raw: "_Raw", begin: str) -> None:
    try:
        await raw.execute(begin)
    except (asyncpg.PostgresError, *_BROKEN) as error:
        # The pool may have taken a broken connection back already.
        with suppress(asyncpg.InterfaceError):
            raw.terminate()
        raise _NotBegunError(_say(error)) from error


async def _roll_back(raw: "_Raw") -> None:
    # Without a connection the server rolls back by itself.
    with suppress(asyncpg.PostgresError, *_BROKEN):
        await raw.execute("ROLLBACK")


def _prepare(sql: str, args: tuple[Any, ...], rows: Rows | None) -> tuple[str, list[Any]]:
    if rows is None:
        return PostgresDialect.render(sql, None, 0), list(args)
    text = PostgresDialect.render(sql, rows.shape, len(args) + 1)
    return text, [*args, *PostgresDialect.columns(rows)]


def _translate(error: Exception, url: str) -> Exception:
    if isinstance(error, _REFUSED):
        return ControlAccessError(f"{url}: {_say(error)}")
    if isinstance(error, (*_BROKEN, *_PASSING)):
        return ControlUnavailableError(f"{url}: {_say(error)}")
    return error


def _say(error: Exception) -> str:
    return str(error) or type(error).__name__


def _without_secrets(url: str) -> str:
    """Scheme, user, hosts and database. A password can hide in the query, so that goes too."""
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    netloc = f"{user.partition(':')[0]}{at}{hosts}"
    return urlunsplit((parts.scheme, netloc, parts.path, "", ""))
