"""The settings that an acknowledgement rests on.

A killed process would not show that one is weaker, because the operating system keeps the pages.
"""

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.contract.control.building import batch, block, commit, part, state_of

from stratalog.control.errors import CommitInDoubtError, ControlUnavailableError
from stratalog.control.open import open_control_plane, open_database, open_existing
from stratalog.control.sql import postgres, sqlite
from stratalog.control.sql.database import Connection, Database

FULL = 2
CONNECT = sqlite3.connect


class WatchedConnection(sqlite3.Connection):
    """Notes the settings in force whenever a transaction begins."""

    seen: list[tuple["WatchedConnection", str, int]]

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if sql.startswith("BEGIN"):
            (journal,) = super().execute("PRAGMA journal_mode").fetchone()
            (synchronous,) = super().execute("PRAGMA synchronous").fetchone()
            self.seen.append((self, journal, synchronous))
        return super().execute(sql, *values)


class FailingConnection(sqlite3.Connection):
    """Fails its commits with `code`, before or after the pages have reached the disk."""

    code: int | None = None
    reaches_disk = False

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if sql != "COMMIT" or self.code is None:
            return super().execute(sql, *values)
        if self.reaches_disk:
            super().execute(sql)
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = self.code
        raise error


def connect_with(monkeypatch: pytest.MonkeyPatch, factory: type[sqlite3.Connection]) -> None:
    def connect(*args: Any, **options: Any) -> sqlite3.Connection:
        return CONNECT(*args, **options, factory=factory)

    monkeypatch.setattr(sqlite3, "connect", connect)


async def use_all_connections(database: Database, count: int) -> list[tuple[int, str]]:
    """Have `count` transactions open at once, and return the process and the setting of each."""
    all_open = asyncio.Barrier(count)

    async def work(connection: Connection) -> tuple[int, str]:
        await all_open.wait()
        (row,) = await connection.fetch(
            "SELECT pg_backend_pid(), current_setting('synchronous_commit')"
        )
        pid, synchronous = row
        return pid, synchronous

    kinds = [database.read if index % 2 else database.write for index in range(count)]
    return await asyncio.gather(*(kind(work) for kind in kinds))


async def test_every_transaction_of_sqlite_has_the_write_ahead_log_and_full_synchronisation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WatchedConnection, "seen", [], raising=False)
    connect_with(monkeypatch, WatchedConnection)
    url = f"sqlite:{tmp_path}/control.db"
    plane = await open_control_plane(url)
    other = await open_existing(url)
    topic = await plane.topics.create("events", partition_count=1, configs={})
    await commit(plane, batch(part(topic)))
    await commit(other, batch(part(topic)))
    for opened in (plane, other):
        # At once, so that no reader is left out.
        await asyncio.gather(*(state_of(opened, part(topic)) for _ in range(20)))
        await opened.close()
    seen = WatchedConnection.seen
    assert {(journal, synchronous) for _, journal, synchronous in seen} == {("wal", FULL)}
    assert len({id(connection) for connection, *_ in seen}) == 2 * (1 + sqlite.READERS)


async def test_a_file_that_is_opened_again_keeps_its_log_while_another_process_comes_and_goes(
    tmp_path: Path,
) -> None:
    """Without the locks of this process, the other one would delete the log as the last user."""
    url = f"sqlite:{tmp_path}/control.db"
    plane = await open_control_plane(url)
    topic = await plane.topics.create("events", partition_count=1, configs={})
    await (await open_existing(url)).close()
    visit = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT * FROM topics')"
    await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", visit, str(tmp_path / "control.db")], check=True
    )
    await commit(plane, batch(part(topic)))
    other = await open_existing(url)
    assert (await state_of(other, part(topic))).high_watermark == 1
    await other.close()
    await plane.close()


@pytest.mark.parametrize("reaches_disk", [False, True])
@pytest.mark.parametrize(
    "code", [sqlite3.SQLITE_IOERR, sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_WRITE]
)
async def test_an_io_error_at_the_commit_of_sqlite_leaves_doubt_that_can_be_resolved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, reaches_disk: bool
) -> None:
    connect_with(monkeypatch, FailingConnection)
    plane = await open_control_plane(f"sqlite:{tmp_path}/control.db")
    topic = await plane.topics.create("events", partition_count=1, configs={})
    blocks = [block(batch(part(topic), 3))]
    monkeypatch.setattr(FailingConnection, "reaches_disk", reaches_disk)
    monkeypatch.setattr(FailingConnection, "code", code)
    with pytest.raises(CommitInDoubtError, match=r"control\.db: commit failed"):
        await plane.log.commit_blocks(blocks)
    monkeypatch.setattr(FailingConnection, "code", None)
    answers = await plane.log.resolve_commit(blocks)
    assert (answers is not None) == reaches_disk
    assert (await state_of(plane, part(topic))).high_watermark == (3 if reaches_disk else 0)
    await plane.close()


async def test_a_full_disk_at_the_commit_of_sqlite_leaves_no_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect_with(monkeypatch, FailingConnection)
    plane = await open_control_plane(f"sqlite:{tmp_path}/control.db")
    topic = await plane.topics.create("events", partition_count=1, configs={})
    monkeypatch.setattr(FailingConnection, "code", sqlite3.SQLITE_FULL)
    with pytest.raises(ControlUnavailableError):
        await plane.log.commit_blocks([block(batch(part(topic), 3))])
    monkeypatch.setattr(FailingConnection, "code", None)
    assert (await state_of(plane, part(topic))).high_watermark == 0
    await plane.close()


@pytest.mark.parametrize("weakened_by", ["nobody", "database", "role", "address", "options"])
async def test_every_connection_to_postgresql_waits_for_its_commits_whatever_the_defaults(
    postgres_dsn: str, weakened_by: str
) -> None:
    name = postgres_dsn.rpartition("/")[2]
    weakened = {
        "database": f"ALTER DATABASE {name} SET synchronous_commit = off",
        "role": f"ALTER ROLE postgres IN DATABASE {name} SET synchronous_commit = off",
    }
    if statement := weakened.get(weakened_by):
        admin = await asyncpg.connect(postgres_dsn)
        await admin.execute(statement)
        await admin.close()
        stranger = await asyncpg.connect(postgres_dsn)
        assert await stranger.fetchval("SHOW synchronous_commit") == "off"
        await stranger.close()
    queries = {
        "address": "?synchronous_commit=off",
        "options": "?options=-c%20synchronous_commit%3Doff",
    }
    database = await open_database(postgres_dsn + queries.get(weakened_by, ""))
    said = await use_all_connections(database, postgres.MAX_CONNECTIONS)
    await database.close()
    assert len({pid for pid, _ in said}) == postgres.MAX_CONNECTIONS
    assert {synchronous for _, synchronous in said} == {"on"}
