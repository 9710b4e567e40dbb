"""A cluster for restore drills, on either database."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from tests.unit.pipeline.lab import Lab

from stratalog.backup.create import BackupSource, create_backup
from stratalog.backup.manifest import BackupManifest
from stratalog.checks.remote_tier import RemoteTier, beside_blocks
from stratalog.control.open import open_database
from stratalog.control.sql.database import Database
from stratalog.control.sql.dump import TableColumns, dump
from stratalog.segment.key_ring import KeyRing
from stratalog.settings import DAY_MS


def silent(stage: str, done: int, total: int | None) -> None:
    """Report no progress."""


async def back_up(lab: Lab) -> BackupManifest:
    source = BackupSource(
        database=lab.control.database, objects_url=lab.store.url, window_ms=DAY_MS
    )
    return await create_backup(source, lab.store, progress=silent)


def tier_of(lab: Lab) -> RemoteTier:
    return RemoteTier(stores=beside_blocks(lab.store), keys=KeyRing())


@asynccontextmanager
async def opened_database(url: str) -> AsyncIterator[Database]:
    database = await open_database(url)
    try:
        yield database
    finally:
        await database.close()


class Lines:
    """Keeps the rows of a dump in memory."""

    def __init__(self) -> None:
        self.tables: dict[str, list[bytes]] = {}

    def begin(self) -> None:
        self.tables = {}

    def table(self, table: TableColumns) -> None:
        self._rows = self.tables.setdefault(table.name, [])

    def rows(self, lines: Iterable[bytes]) -> None:
        self._rows += lines


async def contents(database: Database) -> dict[str, list[bytes]]:
    """Return all rows of a database, table by table."""
    lines = Lines()
    await dump(database, lines)
    return lines.tables
