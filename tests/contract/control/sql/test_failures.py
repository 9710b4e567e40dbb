"""The errors that a caller gets when the database fails: certain, or in doubt."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.contract.control.building import batch, block, commit, part, state_of

from stratalog.control.errors import CommitInDoubtError, ControlAccessError, ControlUnavailableError
from stratalog.control.open import open_control_plane, open_database
from stratalog.control.plane import ControlPlane
from stratalog.control.scans.model import SinkOutcome
from stratalog.control.sql import postgres, sqlite
from stratalog.control.sql.database import Connection, Rows, shape
from stratalog.retry import Backoff


class Cut(Enum):
    """When the proxy loses the connection."""

    NEVER = 0
    BEFORE_COMMIT = 1
    """The server never hears of it."""
    AFTER_COMMIT = 2
    """The server commits, and its answer is lost."""


class Proxy:
    """A way to PostgreSQL that can be cut around a COMMIT."""

    def __init__(self, dsn: str) -> None:
        self.cut = Cut.NEVER
        self._target = urlsplit(dsn)
        self._pumps: set[asyncio.Task[None]] = set()

    def dsn(self, port: int) -> str:
        netloc = f"{self._target.username}@127.0.0.1:{port}"
        return self._target._replace(netloc=netloc).geturl()

    async def serve(
        self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter
    ) -> None:
        server_in, server_out = await asyncio.open_connection(
            self._target.hostname, self._target.port
        )
        answers = asyncio.create_task(_pump(server_in, client_out))
        self._pumps.add(answers)
        while data := await client_in.read(1 << 16):
            commits = b"COMMIT\0" in data
            if commits and self.cut is Cut.BEFORE_COMMIT:
                break
            if commits and self.cut is Cut.AFTER_COMMIT:
                answers.cancel()
                await asyncio.wait([answers])
                server_out.write(data)
                await server_in.read(1 << 16)
                break
            server_out.write(data)
        for writer in (server_out, client_out):
            writer.transport.abort()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(1 << 16):
        sink.write(data)
    sink.close()


@asynccontextmanager
async def through_proxy(dsn: str) -> AsyncIterator[tuple[Proxy, ControlPlane]]:
    proxy = Proxy(dsn)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    plane = await open_control_plane(proxy.dsn(server.sockets[0].getsockname()[1]))
    try:
        yield proxy, plane
    finally:
        await plane.close()
        server.close()


@pytest.mark.parametrize("cut", [Cut.BEFORE_COMMIT, Cut.AFTER_COMMIT])
async def test_a_connection_lost_while_committing_leaves_doubt_that_can_be_resolved(
    postgres_dsn: str, cut: Cut
) -> None:
    async with through_proxy(postgres_dsn) as (proxy, plane):
        topic = await plane.topics.create("events", partition_count=1, configs={})
        blocks = [block(batch(part(topic), 3))]
        proxy.cut = cut
        with pytest.raises(CommitInDoubtError):
            await plane.log.commit_blocks(blocks)
        proxy.cut = Cut.NEVER
        answers = await plane.log.resolve_commit(blocks)
        state = await state_of(plane, part(topic))
        if cut is Cut.AFTER_COMMIT:
            assert answers is not None
            assert answers[0][0].base_offset == 0
            assert state.high_watermark == 3
        else:
            assert answers is None
            assert state.high_watermark == 0


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("cut", [Cut.BEFORE_COMMIT, Cut.AFTER_COMMIT])
async def test_a_sink_in_doubt_repeats_its_batch(postgres_dsn: str, cut: Cut, anew: bool) -> None:
    """With the same objects, or with others: it takes effect exactly once."""
    async with through_proxy(postgres_dsn) as (proxy, plane):
        topic = await plane.topics.create("events", partition_count=1, configs={})
        blocks = [block(batch(part(topic), 3))]
        proxy.cut = cut
        with pytest.raises(CommitInDoubtError):
            await plane.scans.commit_sink("s", 0, blocks)
        proxy.cut = Cut.NEVER
        if anew:
            blocks = [block(batch(part(topic), 3))]
        happened = cut is Cut.AFTER_COMMIT
        expected = SinkOutcome.REPEATED if happened else SinkOutcome.COMMITTED
        assert await plane.scans.commit_sink("s", 0, blocks) is expected
        assert await plane.scans.commit_sink("s", 0, blocks) is SinkOutcome.REPEATED
        assert (await state_of(plane, part(topic))).high_watermark == 3


async def test_a_connection_lost_before_the_commit_changed_nothing(postgres_dsn: str) -> None:
    database = await open_database(postgres_dsn)

    async def work(connection: Connection) -> None:
        await connection.execute("CREATE TABLE half_done (x integer)")
        await connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    with pytest.raises(ControlUnavailableError):
        await database.write(work)
    found = await database.read(
        lambda connection: connection.fetch("SELECT to_regclass('half_done')::text")
    )
    assert found[0][0] is None
    await database.close()


async def test_the_loser_of_a_deadlock_is_run_again(postgres_dsn: str) -> None:
    database = await open_database(postgres_dsn)
    await database.write(lambda c: c.execute("CREATE TABLE t (x integer PRIMARY KEY, n integer)"))
    await database.write(lambda c: c.execute("INSERT INTO t VALUES (1, 0), (2, 0)"))
    both = asyncio.Barrier(2)
    runs = 0

    async def add(first: int, second: int) -> None:
        met = False

        async def work(connection: Connection) -> None:
            nonlocal met, runs
            runs += 1
            await connection.execute("UPDATE t SET n = n + 1 WHERE x = $1", first)
            if not met:
                met = True
                await both.wait()
            await connection.execute("UPDATE t SET n = n + 1 WHERE x = $1", second)

        await database.write(work)

    await asyncio.gather(add(1, 2), add(2, 1))
    rows = await database.read(lambda c: c.fetch("SELECT n FROM t"))
    assert [row[0] for row in rows] == [2, 2]
    assert runs == 3
    await database.close()


async def test_conflicts_without_end_are_given_up(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_BACKOFF", Backoff(first_s=0.0))
    database = await open_database(postgres_dsn)
    runs = 0

    async def work(connection: Connection) -> None:
        nonlocal runs
        runs += 1
        await connection.execute(
            "DO $do$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '40001'; END $do$"
        )

    with pytest.raises(ControlUnavailableError):
        await database.write(work)
    assert runs == postgres.ATTEMPTS
    await database.close()


@pytest.mark.parametrize("code", ["53100", "53300", "57014", "25006"])
async def test_trouble_of_the_server_is_unavailable(postgres_dsn: str, code: str) -> None:
    database = await open_database(postgres_dsn)
    with pytest.raises(ControlUnavailableError):
        await database.write(
            lambda c: c.execute(
                f"DO $do$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{code}'; END $do$"
            )
        )
    await database.close()


async def test_a_database_that_does_not_exist_is_named(postgres_dsn: str) -> None:
    with pytest.raises(ControlAccessError, match="nowhere"):
        await open_control_plane(urlsplit(postgres_dsn)._replace(path="/nowhere").geturl())


async def test_an_address_shows_no_password(postgres_dsn: str) -> None:
    with_password = postgres_dsn.replace("@", ":hunter2@") + "?password=hunter3"
    plane = await open_control_plane(with_password)
    assert plane.url == postgres_dsn
    await plane.close()


async def test_a_lock_of_another_process_holds_up_writers_but_not_the_loop(
    tmp_path: Path,
) -> None:
    plane = await open_control_plane(f"sqlite:{tmp_path}/control.db")
    stranger = sqlite3.connect(tmp_path / "control.db", isolation_level=None)
    stranger.execute("BEGIN IMMEDIATE")
    writing = asyncio.create_task(plane.topics.create("late", partition_count=1, configs={}))
    for _ in range(20):
        assert await plane.topics.all() == []
    assert not writing.done()
    stranger.execute("COMMIT")
    stranger.close()
    assert (await writing).name == "late"
    await plane.close()


async def test_a_lock_that_is_never_given_back_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_MS", 50)
    plane = await open_control_plane(f"sqlite:{tmp_path}/control.db")
    stranger = sqlite3.connect(tmp_path / "control.db", isolation_level=None)
    stranger.execute("BEGIN IMMEDIATE")
    with pytest.raises(ControlUnavailableError):
        await plane.topics.create("never", partition_count=1, configs={})
    stranger.execute("ROLLBACK")
    stranger.close()
    assert (await plane.topics.create("now", partition_count=1, configs={})).name == "now"
    await plane.close()


async def test_work_that_is_cancelled_while_it_waits_for_the_lock_leaves_the_next_whole(
    tmp_path: Path,
) -> None:
    """The one that comes after it begins a transaction of its own, however the threads take
    turns: the changes before its failure must not stay."""
    database = await open_database(f"sqlite:{tmp_path}/control.db")
    await database.write(lambda c: c.execute("CREATE TABLE t (x integer)"))
    stranger = sqlite3.connect(tmp_path / "control.db", isolation_level=None)
    stranger.execute("BEGIN IMMEDIATE")

    async def fail(connection: Connection) -> None:
        await connection.execute("INSERT INTO t VALUES (1)")
        raise ZeroDivisionError

    waiting = asyncio.create_task(database.write(lambda c: c.execute("INSERT INTO t VALUES (0)")))
    await asyncio.sleep(0.05)  # Nothing tells that the other thread waits for the lock.
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    failing = asyncio.create_task(database.write(fail))
    await asyncio.sleep(0)
    stranger.execute("ROLLBACK")
    stranger.close()
    with pytest.raises(ZeroDivisionError):
        await failing
    assert await database.read(lambda c: c.fetch("SELECT x FROM t")) == []
    await database.close()


async def test_a_full_disk_is_unavailable_until_there_is_room(tmp_path: Path) -> None:
    database = await open_database(f"sqlite:{tmp_path}/full.db")
    rows = Rows(shape(x="text"), [("x" * 1000,)] * 500)
    await database.write(lambda c: c.execute("CREATE TABLE t (x text)"))
    await database.write(lambda c: c.fetch("PRAGMA max_page_count = 10"))
    with pytest.raises(ControlUnavailableError, match="full"):
        await database.write(lambda c: c.execute("INSERT INTO t SELECT x FROM {rows}", rows=rows))
    assert await database.read(lambda c: c.fetch("SELECT count(*) FROM t")) == [(0,)]
    await database.write(lambda c: c.fetch("PRAGMA max_page_count = 100000"))
    await database.write(lambda c: c.execute("INSERT INTO t SELECT x FROM {rows}", rows=rows))
    assert await database.read(lambda c: c.fetch("SELECT count(*) FROM t")) == [(500,)]
    await database.close()


async def test_connections_that_died_while_idle_are_replaced_unnoticed(postgres_dsn: str) -> None:
    plane = await open_control_plane(postgres_dsn)
    killer = await open_database(postgres_dsn)
    topic = await plane.topics.create("events", partition_count=1, configs={})
    await killer.write(
        lambda c: c.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    )
    assert len(await commit(plane, batch(part(topic)))) == 1
    await plane.close()
    await killer.close()
