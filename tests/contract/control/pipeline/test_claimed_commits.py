"""Commits under a claim: they take effect only while the claim is held."""

import asyncio

import asyncpg
import pytest
from tests.contract.control.building import batch, commit, part, state_of
from tests.contract.control.pipeline_building import (
    claim,
    claim_all,
    expire,
    new_run,
    rows_in,
    split,
)
from tests.contract.control.postgres_locks import (
    PATIENCE_S,
    backends_wait,
    transaction,
    waiting_backend,
)
from tests.contract.control.segment_building import chain_of, finished
from tests.contract.control.tiers import assert_consistent

from stratalog.control.pipeline.errors import ClaimLostError
from stratalog.control.pipeline.model import SplitOutcome
from stratalog.control.plane import ControlPlane
from stratalog.control.segments.errors import BoundaryMovedError
from stratalog.control.segments.model import ChainOutcome
from stratalog.control.sql.database import Database
from stratalog.control.topics.model import Topic
from stratalog.ids import Offset


async def expire_claims(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute("UPDATE claims SET expires_ms = 1 WHERE token IS NOT NULL")
    await connection.close()


# Commits under a claim.


async def test_a_segment_is_chained_under_a_claim(plane: ControlPlane, topic: Topic) -> None:
    key = part(topic)
    await commit(plane, batch(key, 5))
    segment_id = await finished(plane, key, 0, 4)
    token = await claim(plane, key)
    assert await plane.segments.chain(segment_id, claim=token) is ChainOutcome.CHAINED
    await plane.pipeline.release_claims([token])
    # An unknown outcome is looked up in this way, also after the claim is lost.
    assert await plane.segments.chain(segment_id, claim=token) is ChainOutcome.CHAINED


@pytest.mark.parametrize("end", ["expired", "released", "another partition's"])
async def test_nothing_is_chained_without_the_claim(
    plane: ControlPlane, topic: Topic, database: Database, end: str
) -> None:
    key = part(topic)
    await commit(plane, batch(key, 5))
    segment_id = await finished(plane, key, 0, 4)
    token = await claim(plane, part(topic, 1) if end.startswith("another") else key)
    if end == "expired":
        await expire(database)
    if end == "released":
        await plane.pipeline.release_claims([token])
    with pytest.raises(ClaimLostError, match="partition 0"):
        await plane.segments.chain(segment_id, claim=token)
    assert await chain_of(plane, key) == []
    assert (await state_of(plane, key)).block_start == 0


async def test_the_commits_of_an_owner_who_wakes_up_late_fail_and_the_new_owners_succeed(
    plane: ControlPlane, other: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    for _ in range(4):
        await commit(plane, batch(key, 5))
    rows = await rows_in(plane, key)
    late = await claim(plane, key)
    late_segment, late_split = await finished(plane, key, 0, 9), split((late, rows[2:]))
    await expire(database)
    token = await claim(other, key)
    new_segment = await finished(other, key, 0, 9)
    for _ in range(2):
        with pytest.raises(ClaimLostError):
            await plane.segments.chain(late_segment, claim=late)
        assert await plane.pipeline.commit_split(late_split) == [SplitOutcome.CLAIM_LOST]
        # The second time, with the boundaries and the rows moved by the new owner.
        assert await other.segments.chain(new_segment, claim=token) is ChainOutcome.CHAINED
    assert await other.pipeline.commit_split(split((token, rows[2:]))) == [SplitOutcome.SWAPPED]
    assert await plane.pipeline.commit_split(late_split) == [SplitOutcome.CLAIM_LOST]
    assert await chain_of(plane, key) == [(0, 9)]
    assert [row.base_offset for row in await rows_in(plane, key)] == [10]
    await assert_consistent(plane, key)


async def test_what_was_deleted_in_mid_merge_is_overtaken_under_a_claim_too(
    plane: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    for _ in range(2):
        await commit(plane, batch(key, 5))
    token = await claim(plane, key)
    first, second = await finished(plane, key, 0, 4), await finished(plane, key, 5, 9)
    await plane.log.delete_records({key: Offset(5)})
    assert await plane.segments.chain(first, claim=token) is ChainOutcome.OVERTAKEN
    assert await plane.segments.chain(second, claim=token) is ChainOutcome.CHAINED
    assert await chain_of(plane, key) == [(5, 9)]
    await assert_consistent(plane, key)


async def test_the_end_of_a_topic_ends_its_claims(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    await commit(plane, batch(key, 5))
    rows, token = await rows_in(plane, key), await claim(plane, key)
    segment_id = await finished(plane, key, 0, 4)
    await plane.pipeline.pause(topic.id)
    await plane.topics.delete(topic.id)
    assert await plane.pipeline.commit_split(split((token, rows))) == [SplitOutcome.ROWS_CHANGED]
    assert await plane.segments.chain(segment_id, claim=token) is ChainOutcome.OVERTAKEN
    while await plane.topics.purge_deleted(window_ms=0, max_rows=100):
        pass
    left = await database.read(
        lambda connection: connection.fetch(
            "SELECT 'claims' FROM claims UNION SELECT 'orders' FROM pipeline_topics"
            " UNION SELECT 'rows' FROM batches"
        )
    )
    assert left == []
    assert await plane.pipeline.commit_split(split((token, rows))) == [SplitOutcome.CLAIM_LOST]
    assert {each.kind for each in await plane.objects.all(limit=10)} == {"block"}


# Locks, on PostgreSQL.


async def test_a_claim_under_which_somebody_commits_is_passed_by(
    server: ControlPlane, control_dsn: str
) -> None:
    """Also if it has expired meanwhile: the commit has checked it, and will be there first."""
    topic = await server.topics.create("orders", partition_count=2, configs={})
    keys = [part(topic, 0), part(topic, 1)]
    await claim_all(server, new_run(), *keys)
    await expire_claims(control_dsn)
    async with transaction(control_dsn) as committing:
        await committing.execute("SELECT 1 FROM claims WHERE partition = 0 FOR UPDATE")
        claims = await asyncio.wait_for(claim_all(server, new_run(), *keys), PATIENCE_S)
        assert [each.partition for each in claims] == [keys[1]]
    claims = await claim_all(server, new_run(), *keys)
    assert [each.partition for each in claims] == [keys[0]]


@pytest.mark.parametrize("commit_of", ["segment", "split"])
async def test_a_commit_holds_its_claim_until_its_end(
    server: ControlPlane, control_dsn: str, commit_of: str
) -> None:
    """The commit is held up after its check, by a lock on something that it changes last."""
    topic = await server.topics.create("orders", partition_count=1, configs={})
    key = part(topic)
    await commit(server, batch(key, 5))
    rows, token = await rows_in(server, key), await claim(server, key)
    segment_id = await finished(server, key, 0, 4)
    file = split((token, rows))
    async with transaction(control_dsn) as holder:
        if commit_of == "segment":
            await holder.execute("SELECT 1 FROM segments FOR UPDATE")
            task: asyncio.Task[object] = asyncio.create_task(
                server.segments.chain(segment_id, claim=token)
            )
        else:
            await holder.execute("SELECT 1 FROM batches FOR UPDATE")
            task = asyncio.create_task(server.pipeline.commit_split(file))
        await waiting_backend(holder)
        other = await asyncpg.connect(control_dsn)
        with pytest.raises(asyncpg.LockNotAvailableError):
            await other.execute("SELECT 1 FROM claims FOR UPDATE NOWAIT")
        await other.close()
    assert await asyncio.wait_for(task, PATIENCE_S) in (
        ChainOutcome.CHAINED,
        [SplitOutcome.SWAPPED],
    )


async def test_a_split_that_meets_the_purge_of_its_topic_changes_nothing(
    server: ControlPlane, control_dsn: str
) -> None:
    """The topic is deleted between the look at the rows and their removal. The parts of others,
    in the same transaction, are swapped all the same."""
    doomed = await server.topics.create("doomed", partition_count=1, configs={})
    others = await server.topics.create("others", partition_count=3, configs={})
    keys = [part(doomed), *(part(others, index) for index in range(3))]
    for _ in range(2):
        await commit(server, *(batch(key, 5) for key in keys))
    file = split(*[(await claim(server, key), await rows_in(server, key)) for key in keys])
    purging = await asyncpg.connect(control_dsn)
    async with purging.transaction():
        await purging.execute(
            "DELETE FROM batches WHERE last_offset = 4 AND topic_id = $1", doomed.id
        )
        swapping = asyncio.create_task(server.pipeline.commit_split(file))
        await waiting_backend(purging)
    await purging.close()
    outcomes = await asyncio.wait_for(swapping, PATIENCE_S)
    assert outcomes == [SplitOutcome.ROWS_CHANGED, *[SplitOutcome.SWAPPED] * 3]
    assert [row.base_offset for row in await rows_in(server, keys[0])] == [5]
    assert [len(await rows_in(server, key)) for key in keys[1:]] == [1, 1, 1]


async def test_a_merge_that_waits_while_its_claim_is_taken_over_fails(
    server: ControlPlane, control_dsn: str
) -> None:
    """It waits for the head, and has planned with a claim that it held then."""
    topic = await server.topics.create("orders", partition_count=1, configs={})
    key = part(topic)
    await commit(server, batch(key, 5))
    token, segment_id = await claim(server, key), await finished(server, key, 0, 4)
    file = split((token, await rows_in(server, key)))
    async with transaction(control_dsn) as committing:
        await committing.execute("SELECT 1 FROM heads FOR UPDATE")
        chaining = asyncio.create_task(server.segments.chain(segment_id, claim=token))
        await waiting_backend(committing)
        swapping = asyncio.create_task(server.pipeline.commit_split(file))
        await expire_claims(control_dsn)
        taken = await claim(server, key)
    with pytest.raises(ClaimLostError):
        await asyncio.wait_for(chaining, PATIENCE_S)
    assert await asyncio.wait_for(swapping, PATIENCE_S) == [SplitOutcome.CLAIM_LOST]
    assert await server.segments.chain(segment_id, claim=taken) is ChainOutcome.CHAINED


async def test_a_merge_that_waits_while_its_topic_is_deleted_chains_nothing(
    server: ControlPlane, control_dsn: str
) -> None:
    """It waits for the head, with a plan that was right when it was made."""
    topic = await server.topics.create("orders", partition_count=1, configs={})
    key = part(topic)
    await commit(server, batch(key, 5))
    token, segment_id = await claim(server, key), await finished(server, key, 0, 4)
    async with transaction(control_dsn) as holder:
        await holder.execute("SELECT 1 FROM heads FOR UPDATE")
        chaining = asyncio.create_task(server.segments.chain(segment_id, claim=token))
        await waiting_backend(holder)
        await server.topics.delete(topic.id)
    assert await asyncio.wait_for(chaining, PATIENCE_S) is ChainOutcome.OVERTAKEN
    [segment] = await server.segments.doomed(grace_ms=0, limit=10)
    assert segment.segment_id == segment_id


async def test_a_merge_that_waits_while_its_records_are_deleted_chains_nothing(
    server: ControlPlane, control_dsn: str
) -> None:
    topic = await server.topics.create("orders", partition_count=1, configs={})
    key = part(topic)
    for _ in range(2):
        await commit(server, batch(key, 5))
    token, segment_id = await claim(server, key), await finished(server, key, 0, 4)
    async with transaction(control_dsn) as holder:
        await holder.execute("SELECT 1 FROM heads FOR UPDATE")
        deleting = asyncio.create_task(server.log.delete_records({key: Offset(5)}))
        await backends_wait(holder, 1)
        chaining = asyncio.create_task(server.segments.chain(segment_id, claim=token))
        await backends_wait(holder, 2)
    await deleting
    assert await asyncio.wait_for(chaining, PATIENCE_S) is ChainOutcome.OVERTAKEN
    assert await chain_of(server, key) == []
    assert (await state_of(server, key)).block_start == 5
    await assert_consistent(server, key)


async def test_two_runs_with_deletes_between_them_leave_every_partition_whole(
    plane: ControlPlane, other: ControlPlane, database: Database
) -> None:
    """Both merge and split the same partitions, with claims that expire under their hands."""
    topic = await plane.topics.create("busy", partition_count=4, configs={})
    keys = [part(topic, index) for index in range(4)]
    for _ in range(8):
        await commit(plane, *(batch(key, 5) for key in keys))

    outcomes: set[object] = set()

    async def work(each: ControlPlane, number: int) -> None:
        for claimed in await claim_all(each, new_run(), *keys, max_attempts=1_000):
            key = claimed.partition
            state = await state_of(each, key)
            rows = [row for row in await rows_in(each, key) if row.base_offset >= state.block_start]
            if number % 2:
                outcomes.update(await each.pipeline.commit_split(split((claimed.token, rows[1:3]))))
            else:
                segment_id = await finished(each, key, rows[0].base_offset, rows[0].last_offset)
                try:
                    outcomes.add(await each.segments.chain(segment_id, claim=claimed.token))
                except (ClaimLostError, BoundaryMovedError) as error:
                    outcomes.add(type(error))
                    await each.segments.delete([segment_id])

    async def disturb() -> None:
        for number, key in enumerate(keys):
            await commit(plane, batch(key, 5))
            await expire(database)
            await plane.log.delete_records({key: Offset(4 * number)})

    for number in range(60):
        disturbing = [disturb()] if number % 3 else []
        await expire(database)
        await commit(plane, *(batch(key, 5) for key in keys))
        await asyncio.gather(work(plane, number), work(other, number + 1), *disturbing)
        for key in keys:
            await assert_consistent(plane, key)
        if number > 5 and {SplitOutcome.SWAPPED, ChainOutcome.CHAINED, ClaimLostError} <= outcomes:
            return
    pytest.fail(f"of all that may happen only this did: {outcomes}")
