"""A control plane that goes back while brokers run: a restore in place, or a late replica.

The broker notices at its next commit, before an offset is given out twice, and ends with an error.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import asyncpg
from tests.integration.broker_process import process
from tests.support.acks import Acks, GoBack, save_sqlite
from tests.support.servers import PostgresServer
from typer.testing import CliRunner

from stratalog.cli.main import app


def save_postgresql(dsn: str) -> GoBack:
    asyncio.run(_each_table(dsn, ["CREATE SCHEMA saved"], "CREATE TABLE saved.{0} AS TABLE {0}"))
    return lambda: asyncio.run(
        _each_table(dsn, [], "DELETE FROM {0}; INSERT INTO {0} SELECT * FROM saved.{0}")
    )


async def _each_table(dsn: str, first: list[str], statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction():
            for each in first:
                await connection.execute(each)
            tables = await connection.fetch(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
            )
            for (table,) in tables:
                await connection.execute(statement.format(table))
    finally:
        await connection.close()


def check_fenced(control: str, folder: Path, save: Callable[[], GoBack]) -> None:
    flags = ["--data", str(folder / "data"), "--control", control, "--no-pipeline"]
    with process([*flags, "--set", "block.window_ms=5ms"], folder) as broker:
        acks = Acks(broker.address)
        acks.send("saved")
        go_back = save()
        acks.send("acknowledged and forgotten")
        assert (acks.offsets, acks.errors) == ([0, 1], [])
        go_back()
        acks.send("must not get offset 1")
        assert acks.offsets == [0, 1]
        assert acks.errors
        code, said = broker.wait()
    assert code == 1
    assert "the control plane went back" in said
    runner = CliRunner()
    halted = runner.invoke(app, ["control", "status", "--json", *flags[:4]])
    assert "went back" in halted.stdout
    with process(flags, folder) as refused:
        code, said = refused.wait()
    assert code == 1
    assert "stratalog control accept" in said
    accepted = runner.invoke(app, ["control", "accept", "--yes", *flags[:4]])
    assert accepted.exit_code == 0, accepted.output
    with process(flags, folder) as broker:
        acks = Acks(broker.address)
        acks.send("after an operator decided")
        # The record of offset 1 was recovered, and maybe the ones that were refused behind it.
        [offset] = acks.offsets
        assert offset is not None
        assert offset >= 2


def test_a_broker_without_producers_notices_it_too(tmp_path: Path) -> None:
    database = tmp_path / "control.db"
    flags = ["--data", str(tmp_path / "data"), "--control", f"sqlite:{database}", "--no-pipeline"]
    with process([*flags, "--set", "broker.lease_ms=1s"], tmp_path) as broker:
        acks = Acks(broker.address)
        acks.send("saved")
        go_back = save_sqlite(database)
        acks.send("acknowledged and forgotten")
        go_back()
        code, said = broker.wait()
    assert code == 1
    assert "the control plane went back" in said


def test_a_running_broker_notices_that_sqlite_was_restored(tmp_path: Path) -> None:
    database = tmp_path / "control.db"
    check_fenced(f"sqlite:{database}", tmp_path, lambda: save_sqlite(database))


def test_a_running_broker_notices_that_postgresql_was_restored(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    dsn = postgres_server.create_database()
    check_fenced(dsn, tmp_path, lambda: save_postgresql(dsn))
