"""Locks of PostgreSQL, held and waited for by tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

PATIENCE_S = 30.0


@asynccontextmanager
async def transaction(dsn: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """One that stays open until the end of the block, and changes nothing."""
    connection = await asyncpg.connect(dsn)
    running = connection.transaction()
    await running.start()
    try:
        yield connection
    finally:
        await running.rollback()
        await connection.close()


async def waiting_backend(connection: "asyncpg.Connection[asyncpg.Record]") -> int:
    """The process that waits for a lock of this connection, as soon as there is one."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await connection.fetch(
                "SELECT pid FROM pg_stat_activity WHERE pg_backend_pid() = ANY"
                " (pg_blocking_pids(pid))"
            )
            if found:
                return int(found[0][0])
            await asyncio.sleep(0.01)


async def backends_wait(connection: "asyncpg.Connection[asyncpg.Record]", count: int) -> None:
    """Until so many processes wait for a lock, of whomever."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            await connection.execute("SELECT pg_stat_clear_snapshot()")
            waiting = await connection.fetchval(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            if waiting == count:
                return
            await asyncio.sleep(0.01)


async def tables_locked_by(connection: "asyncpg.Connection[asyncpg.Record]", pid: int) -> set[str]:
    """The tables of which a process has locked or changed rows, or may."""
    rows = await connection.fetch(
        "SELECT DISTINCT relation::regclass::text FROM pg_locks WHERE pid = $1 AND granted"
        " AND locktype = 'relation' AND mode IN ('RowShareLock', 'RowExclusiveLock')",
        pid,
    )
    return {row[0] for row in rows}
