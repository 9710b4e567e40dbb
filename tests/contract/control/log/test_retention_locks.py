"""Retention on PostgreSQL: commits to the same partition pass it by, and merges are noticed."""

import asyncio

from tests.contract.control.building import batch, commit, offsets, part, rows_of, state_of
from tests.contract.control.postgres_locks import (
    PATIENCE_S,
    backends_wait,
    tables_locked_by,
    transaction,
    waiting_backend,
)
from tests.contract.control.tiers import assert_consistent, chained, finished, two_tiers

from stratalog.control.plane import ControlPlane
from stratalog.control.segments.model import ChainOutcome
from stratalog.ids import Offset

FUTURE_MS = 4_102_444_800_000
"""Of records that do not expire."""


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
    """A lease waits for removals of many rows, and a marking transaction waits for the lease.
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
        purging = asyncio.create_task(server.topics.purge_deleted(window_ms=0, max_rows=100))
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
