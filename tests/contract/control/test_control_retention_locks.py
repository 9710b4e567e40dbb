"""Retention on PostgreSQL: commits to the same partition pass it by, and merges are noticed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest
from tests.contract.control.building import batch, commit, offsets, part, rows_of, state_of
from tests.contract.control.conftest import empty
from tests.contract.control.tiers import assert_consistent, chained, finished, two_tiers

from stratalog.control.open import open_control_plane
from stratalog.control.plane import ControlPlane
from stratalog.control.segments.model import ChainOutcome
from stratalog.ids import Offset

PATIENCE_S = 30.0
FUTURE_MS = 4_102_444_800_000
"""Of records that do not expire."""


@pytest.fixture
async def server(control_dsn: str) -> AsyncIterator[ControlPlane]:
    await empty(control_dsn)
    plane = await open_control_plane(control_dsn)
    yield plane
    await plane.close()


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


async def test_a_commit_is_not_blocked_by_a_retention_that_is_removing_rows(
    server: ControlPlane, control_dsn: str
) -> None:
    """Retention is held up in the middle of its work, by a lock on one of the objects whose
    last row it has removed. The commit goes through while it stands there."""
    topic = await server.topics.create("orders", partition_count=1, configs={})
    key = part(topic)
    for _ in range(20):
        await commit(server, batch(key, 10, timestamp=1_000))
    async with transaction(control_dsn) as holder:
        locked = await holder.fetch("SELECT object_id FROM objects FOR UPDATE")
        assert len(locked) == 20
        retention = asyncio.create_task(
            server.log.enforce_retention(key, retention_ms=0, retention_bytes=None, max_rows=100)
        )
        pid = await waiting_backend(holder)
        tables = await tables_locked_by(holder, pid)
        assert "batches" in tables, "retention is not where this test wants it"
        assert not tables & {"heads", "partitions", "producers"}
        assert (await state_of(server, key)).log_start == 200
        answers = await asyncio.wait_for(
            commit(server, batch(key, 5, timestamp=FUTURE_MS, producer=7, sequence=0)), PATIENCE_S
        )
        assert offsets(answers) == [200]
        assert not retention.done()
    assert await asyncio.wait_for(retention, PATIENCE_S) == 20
    assert await rows_of(server, key) == [(200, 204)]
    state = await state_of(server, key)
    assert (state.size_bytes, state.high_watermark) == (100, 205)


async def test_a_retention_that_waits_for_a_commit_lets_other_partitions_commit(
    server: ControlPlane, control_dsn: str
) -> None:
    """Moving the start takes the head for a moment, so it waits for a commit that has it. It
    must hold nothing meanwhile that others need."""
    topic = await server.topics.create("orders", partition_count=2, configs={})
    for index in range(2):
        await commit(server, batch(part(topic, index), 10, timestamp=1_000))
    async with transaction(control_dsn) as committing:
        await committing.fetch("SELECT 1 FROM heads WHERE partition = 0 FOR UPDATE")
        retention = asyncio.create_task(
            server.log.enforce_retention(
                part(topic), retention_ms=0, retention_bytes=None, max_rows=100
            )
        )
        await waiting_backend(committing)
        answers = await asyncio.wait_for(commit(server, batch(part(topic, 1), 5)), PATIENCE_S)
        assert offsets(answers) == [10]
        assert not retention.done()
    assert await asyncio.wait_for(retention, PATIENCE_S) == 1


async def test_a_retention_of_segments_that_waits_for_a_lease_holds_no_head(
    server: ControlPlane, control_dsn: str
) -> None:
    """A lease waits for removals of many rows, and whoever marks something waits for the lease.
    Commits do not."""
    topic = await server.topics.create("orders", partition_count=1, configs={})
    key = part(topic)
    await two_tiers(server, key)
    async with transaction(control_dsn) as leasing:
        await leasing.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended('stratalog:leases', 0))"
        )
        retention = asyncio.create_task(
            server.log.enforce_retention(key, retention_ms=None, retention_bytes=400, max_rows=100)
        )
        pid = await waiting_backend(leasing)
        assert not await tables_locked_by(leasing, pid) & {"heads", "partitions", "segments"}
        answers = await asyncio.wait_for(commit(server, batch(key, 5, size=50)), PATIENCE_S)
        assert offsets(answers) == [100]
        assert not retention.done()
        assert await chained(server, key) == [0, 20, 40]
    assert await asyncio.wait_for(retention, PATIENCE_S) == 3
    await assert_consistent(server, key)


async def test_a_purge_that_waits_for_a_lease_holds_no_segment(
    server: ControlPlane, control_dsn: str
) -> None:
    """A trim of the same topic has its place in front of the lease, and then wants segments."""
    topic = await server.topics.create("orders", partition_count=1, configs={})
    await two_tiers(server, part(topic))
    await server.topics.delete(topic.id)
    async with transaction(control_dsn) as leasing:
        await leasing.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended('stratalog:leases', 0))"
        )
        # Rows go first, and stand there with their objects.
        await leasing.execute("DELETE FROM batches")
        purging = asyncio.create_task(server.topics.purge_deleted(max_rows=100))
        pid = await waiting_backend(leasing)
        assert "segments" not in await tables_locked_by(leasing, pid)
    assert await asyncio.wait_for(purging, PATIENCE_S)


async def test_a_delete_that_was_planned_before_a_segment_was_chained_is_planned_again(
    server: ControlPlane, control_dsn: str
) -> None:
    """The segment overtakes a delete that waits for the head with a plan to keep its rows."""
    topic = await server.topics.create("orders", partition_count=1, configs={})
    key = part(topic)
    await two_tiers(server, key)
    segment_id = await finished(server, key, 60, 80)
    async with transaction(control_dsn) as committing:
        await committing.fetch("SELECT 1 FROM heads FOR UPDATE")
        chaining = asyncio.create_task(server.segments.chain(segment_id))
        await backends_wait(committing, 1)
        deleting = asyncio.create_task(server.log.delete_records({key: Offset(80)}))
        await backends_wait(committing, 2)
    assert await asyncio.wait_for(chaining, PATIENCE_S) is ChainOutcome.CHAINED
    [deleted] = await asyncio.wait_for(deleting, PATIENCE_S)
    assert deleted.log_start == 80
    assert await chained(server, key) == []
    assert (await state_of(server, key)).size_bytes == 200
    await assert_consistent(server, key)
