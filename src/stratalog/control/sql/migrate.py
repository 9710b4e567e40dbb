"""Brings a database to the newest schema that this version knows.

Migrations are numbered files, applied in order under a lock, so that any number of brokers may
start at once. A file runs on both databases; one with a database's name before its ending runs
there only, after it. In a database that is in use each has a transaction of its own: together they
would hold the locks of several busy tables, which commits take in another order, and end up in a
deadlock.

Migrations only ever add: tables, indexes, columns with a default. So a broker that is older than
the schema keeps working, and a schema that is newer than the broker is accepted as it is.
"""

import re
from collections.abc import Collection, Sequence
from importlib.resources import files
from typing import NamedTuple

from stratalog.control.sql.database import Connection, Database

_CREATE_TABLE = re.compile(r"^CREATE TABLE (\w+)", re.MULTILINE)


class Migration(NamedTuple):
    number: int
    name: str
    statements: tuple[str, ...]


def known_migrations(dialect: str) -> list[Migration]:
    folder = files("stratalog.control.sql") / "migrations"
    texts = {entry.name: entry.read_text("utf-8") for entry in folder.iterdir()
             if entry.name.endswith(".sql")}  # fmt: skip
    names = sorted(name.removesuffix(".sql") for name in texts if name.count(".") == 1)
    return [
        Migration(
            int(name[:4]),
            name,
            _statements(texts[f"{name}.sql"] + texts.get(f"{name}.{dialect}.sql", "")),
        )
        for name in names
    ]


async def is_current(database: Database) -> bool:
    """Return True if the schema has every migration of this version, and maybe more."""

    async def work(connection: Connection) -> bool:
        applied = {number for (number,) in await _applied(connection)}
        return all(one.number in applied for one in _migrations_of(database))

    return await database.read(work)


def known_numbers(database: Database) -> set[int]:
    return {one.number for one in _migrations_of(database)}


def known_tables(database: Database) -> set[str]:
    """Return the names of the tables that this version makes."""
    statements = (text for one in _migrations_of(database) for text in one.statements)
    found = (_CREATE_TABLE.search(text) for text in statements)
    return {match[1] for match in found if match is not None}


async def applied_migrations(connection: Connection) -> list[int]:
    """Return the numbers of the migrations that the schema has."""
    return sorted(number for (number,) in await _applied(connection))


async def migrate(database: Database, *, only: Collection[int] | None = None) -> None:
    """Apply the migrations that are missing; with `only`, these alone, for an older schema."""
    migrations = [one for one in _migrations_of(database) if only is None or one.number in only]
    # Without a statement that changes the schema: a broker need not have the right to one.
    if await database.read(lambda connection: _has_all(connection, migrations)):
        return

    async def apply_some(connection: Connection) -> bool:
        """All in an empty database, otherwise the next; whether any was missing."""
        await connection.lock("migrations")
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS schema_migrations ("
            " number integer PRIMARY KEY, name text NOT NULL, applied_ms bigint NOT NULL)"
        )
        applied = {number for (number,) in await _applied(connection)}
        missing = [one for one in migrations if one.number not in applied]
        for migration in missing[:1] if applied else missing:
            await _apply(connection, migration)
        return bool(missing)

    while await database.write(apply_some):
        pass


async def _has_all(connection: Connection, migrations: Sequence[Migration]) -> bool:
    if not await connection.fetch("SELECT 1 FROM {tables} WHERE t.name = 'schema_migrations'"):
        return False
    applied = {number for (number,) in await _applied(connection)}
    return all(one.number in applied for one in migrations)


def _migrations_of(database: Database) -> list[Migration]:
    dialect = database.url.partition(":")[0]
    return known_migrations("postgresql" if dialect.startswith("postgres") else dialect)


async def _applied(connection: Connection) -> list[tuple[int, ...]]:
    return await connection.fetch("SELECT number FROM schema_migrations")


async def _apply(connection: Connection, migration: Migration) -> None:
    for statement in migration.statements:
        await connection.execute(statement)
    await connection.execute(
        "INSERT INTO schema_migrations (number, name, applied_ms) VALUES ($1, $2, {now_ms})",
        migration.number,
        migration.name,
    )


def _statements(script: str) -> tuple[str, ...]:
    """Statements end with a semicolon at the end of a line."""
    parts = (part.strip() for part in script.split(";\n"))
    return tuple(part for part in parts if part)
