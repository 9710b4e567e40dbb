"""A broker that stops inside a transaction, as a suspended machine does, on PostgreSQL."""

import asyncio

import pytest
from tests.contract.control.building import batch, commit, part, state_of

from stratalog.control.errors import ControlUnavailableError
from stratalog.control.open import open_control_plane, open_database
from stratalog.control.sql import postgres
from stratalog.control.sql.database import Connection

SHORT_MS = 300


async def test_a_broker_that_stops_inside_a_transaction_does_not_hold_the_heads(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane = await open_control_plane(postgres_dsn)
    topic = await plane.topics.create("events", partition_count=1, configs={})
    monkeypatch.setattr(postgres, "IDLE_IN_TRANSACTION_MS", SHORT_MS)
    stopping = await open_database(postgres_dsn)
    holds, others_are_done = asyncio.Event(), asyncio.Event()

    async def stop(connection: Connection) -> None:
        await connection.execute("UPDATE heads SET high_watermark = 77")
        holds.set()
        await others_are_done.wait()
        await connection.fetch("SELECT 1")

    stopped = asyncio.create_task(stopping.write(stop))
    await holds.wait()
    await asyncio.wait_for(commit(plane, batch(part(topic), 3)), 10)
    others_are_done.set()
    with pytest.raises(ControlUnavailableError):
        await stopped
    assert (await state_of(plane, part(topic))).high_watermark == 3
    assert await stopping.read(lambda c: c.fetch("SELECT 1")) == [(1,)]
    await stopping.close()
    await plane.close()


async def test_a_long_statement_does_not_count_as_a_stop(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "IDLE_IN_TRANSACTION_MS", SHORT_MS)
    database = await open_database(postgres_dsn)

    async def work(connection: Connection) -> int:
        for _ in range(2):
            await connection.fetch(f"SELECT pg_sleep({3 * SHORT_MS / 1000})")
        return await connection.execute("CREATE TABLE t (x integer)")

    await database.write(work)
    assert await database.read(lambda c: c.fetch("SELECT count(*) FROM t")) == [(0,)]
    await database.close()


async def test_the_server_notices_a_broker_that_is_gone_without_a_word(postgres_dsn: str) -> None:
    database = await open_database(postgres_dsn)
    names = (
        "idle_in_transaction_session_timeout",
        "tcp_keepalives_idle",
        "tcp_keepalives_interval",
        "tcp_keepalives_count",
    )
    rows = await database.read(
        lambda c: c.fetch("SELECT " + ", ".join(f"current_setting('{name}')" for name in names))
    )
    assert rows == [("15s", "10", "5", "4")]
    assert postgres.IDLE_IN_TRANSACTION_MS < postgres.COMMAND_TIMEOUT_S * 1000
    await database.close()
