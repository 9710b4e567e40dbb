"""The door to a database: transactions and statements, the same for PostgreSQL and SQLite.

SQL is written once, in the part of the language that both speak. Parameters are `$1`, `$2`, ...;
where the two differ, there is a token in braces that the dialect fills in (see `dialect.py`):

- `{rows}`: a table `r` made of the rows that were passed with the statement
- `{now_ms}`: the database's clock in milliseconds
- `{tables}`: a table `t` of the names of all tables
- `{columns}`: a table `c` of the columns of all tables, for backups
- `{for_update}`, `{for_update_of <table>}`, `{for_update_skip_locked}`: row locks

Tables have no aliases but `r`; a subquery is named after the table whose rows it gives.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar
from uuid import UUID

T = TypeVar("T")
Row: TypeAlias = tuple[Any, ...]


class Shape(NamedTuple):
    """Names and PostgreSQL types of the columns of a row source."""

    names: tuple[str, ...]
    types: tuple[str, ...]


class Rows(NamedTuple):
    """Many rows that travel with one statement."""

    shape: Shape
    values: Sequence[Sequence[Any]]


def shape(**columns: str) -> Shape:
    return Shape(tuple(columns), tuple(columns.values()))


def as_uuid(value: Any) -> UUID:
    """Read a UUID column. SQLite keeps UUIDs as text, which sorts in the same order."""
    return value if isinstance(value, UUID) else parse_uuid(value)


@lru_cache(maxsize=65536)
def parse_uuid(text: str) -> UUID:
    """Parse the text of a UUID.

    Parsing is the dearest part of a row, and the rows of a block name the same ids.
    """
    return UUID(text)


class Connection(Protocol):
    """One open transaction."""

    async def fetch(self, sql: str, *args: Any, rows: Rows | None = None) -> list[Row]: ...

    async def execute(self, sql: str, *args: Any, rows: Rows | None = None) -> int:
        """Run a statement and return how many rows it changed."""

    async def fetch_each(self, sql: str, rows: Rows) -> list[list[Row]]:
        """Run a query for each of the rows, whose columns it sees as `r.<name>`.

        One round trip. The answers are in the order of the rows.
        """

    async def execute_each(self, sql: str, rows: Rows) -> None:
        """Run an insert of all columns of the rows, or an update from them, with no other argument.

        The effect is that of `execute`, as long as no two of the rows meet. SQLite takes the rows
        one by one, in half the time in which it reads them as a table.
        """

    async def lock(self, name: str, *, shared: bool = False) -> None:
        """Wait for a named lock, and hold it until the transaction ends."""


Work: TypeAlias = Callable[[Connection], Awaitable[T]]
"""The body of a transaction. It awaits only its connection, and may run on another thread."""


class Database(Protocol):
    @property
    def url(self) -> str:
        """The address without any secret in it."""

    async def read(self, work: Work[T]) -> T:
        """Run `work` on one snapshot."""

    async def write(self, work: Work[T]) -> T:
        """Run `work` in one transaction that is durable when this returns.

        Work that lost to a concurrent transaction is run again from its start, so it must have
        no effect outside the transaction. Raises `ControlUnavailableError` if nothing was changed
        for certain, and `CommitInDoubtError` if the outcome is unknown.
        """

    async def close(self) -> None: ...
