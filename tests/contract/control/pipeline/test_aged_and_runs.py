"""Facts for planning and for people: aged rows, orders, status, history."""

import pytest
from tests.contract.control.building import batch, block, change, commit, part
from tests.contract.control.pipeline_building import claim, expire, new_run, rows_in, split
from tests.contract.control.segment_building import finished

from stratalog.control.pipeline import pending, runs
from stratalog.control.pipeline.aged import CHUNK_ROWS
from stratalog.control.pipeline.errors import UnknownRunError
from stratalog.control.pipeline.model import AgedPartition, SplitOutcome, TierStatus
from stratalog.control.plane import ControlPlane
from stratalog.control.sql.database import Database
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.control.topics.model import Topic
from stratalog.ids import Offset, TopicPartition, new_topic_id

HOUR_MS = 3_600_000


async def age(
    database: Database, key: TopicPartition, *, before: int, by_ms: int = HOUR_MS
) -> None:
    """Let rows be older that end before an offset."""
    await change(
        database,
        "UPDATE batches SET committed_ms = committed_ms - $1, oldest_ms = oldest_ms - $1"
        " WHERE topic_id = $2 AND partition = $3 AND last_offset < $4",
        by_ms,
        *key,
        before,
    )


async def aged(plane: ControlPlane, topic: Topic, age_ms: int = HOUR_MS) -> list[AgedPartition]:
    return await plane.pipeline.aged_partitions({topic.id: age_ms})


async def status(plane: ControlPlane, topic: Topic, age_ms: int = HOUR_MS) -> TierStatus:
    [answer] = await plane.pipeline.tier_status({topic.id: age_ms})
    return answer


# Aged rows.


async def test_the_aged_rows_of_a_partition_are_those_before_the_first_young_one(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic, 1)
    for _ in range(4):
        await commit(plane, batch(part(topic, 0), 2), batch(key, 5), batch(part(topic, 2), 1))
    assert await aged(plane, topic) == []
    await age(database, key, before=15)
    [found] = await aged(plane, topic)
    assert found.topic_partition == key
    assert (found.first_offset, found.end_offset, found.remote_end) == (0, 15, 0)
    assert (found.rows, found.bytes, found.objects) == (3, 300, 3)
    assert (found.attempts, found.parked, found.failed_ms, found.done_ms) == (0, False, None, None)
    assert found.oldest_ms == (await rows_in(plane, key))[0].committed_ms
    assert len(await aged(plane, topic, age_ms=-1_000)) == 3


async def test_a_joined_row_has_aged_when_its_newest_batch_has_and_waits_since_its_oldest(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    await join_young_and_old(plane, database, key)
    assert await aged(plane, topic, age_ms=2 * HOUR_MS) == []
    [found] = await aged(plane, topic)
    [row] = await rows_in(plane, key)
    assert found.rows == 1
    assert found.oldest_ms == row.oldest_ms == row.committed_ms - HOUR_MS


async def join_young_and_old(plane: ControlPlane, database: Database, key: TopicPartition) -> None:
    """One row of two batches, of which one was committed two hours ago and one an hour later."""
    for _ in range(2):
        await commit(plane, batch(key, 5))
    await change(
        database, "UPDATE batches SET committed_ms = (SELECT MAX(committed_ms) FROM batches)"
    )
    await age(database, key, before=10)
    await age(database, key, before=5)
    file = split((await claim(plane, key), await rows_in(plane, key)))
    assert await plane.pipeline.commit_split(file) == [SplitOutcome.SWAPPED]


async def test_what_was_tiered_or_deleted_has_not_aged(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    for _ in range(4):
        await commit(plane, batch(key, 5))
    await age(database, key, before=20)
    await plane.segments.chain(await finished(plane, key, 0, 4))
    [found] = await aged(plane, topic)
    assert (found.first_offset, found.remote_end, found.rows) == (5, 5, 3)
    await plane.log.delete_records({key: Offset(12)})
    [found] = await aged(plane, topic)
    assert (found.first_offset, found.remote_end, found.rows) == (10, 10, 2)
    await plane.log.delete_records({key: Offset(20)})
    assert await aged(plane, topic) == []


@pytest.mark.parametrize(("last_stable", "end"), [(4, None), (5, 5), (14, 10), (15, 15)])
async def test_an_open_transaction_does_not_age(
    plane: ControlPlane, topic: Topic, database: Database, last_stable: int, end: int | None
) -> None:
    key = part(topic)
    for _ in range(3):
        await commit(plane, batch(key, 5))
    await age(database, key, before=15)
    await change(database, "UPDATE partitions SET last_stable = $1", last_stable)
    found = await aged(plane, topic)
    assert [each.end_offset for each in found] == ([] if end is None else [end])


async def test_only_partitions_that_write_to_blocks_and_topics_that_exist_age(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    for index in (0, 1):
        await commit(plane, batch(part(topic, index), 5))
        await age(database, part(topic, index), before=5)
    assert len(await aged(plane, topic)) == 2
    await change(
        database, "UPDATE partitions SET write_tier = 'local', block_end = 5 WHERE partition = 0"
    )
    assert [each.partition for each in await aged(plane, topic)] == [1]
    assert await plane.pipeline.aged_partitions({}) == []
    assert await plane.pipeline.aged_partitions({new_topic_id(): 0}) == []
    await plane.topics.delete(topic.id)
    assert await aged(plane, topic) == []


async def test_each_topic_has_its_own_age(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    other = await plane.topics.create("other", partition_count=1, configs={})
    for key in (part(topic), part(other)):
        await commit(plane, batch(key, 5))
        await age(database, key, before=5)
    found = await plane.pipeline.aged_partitions({topic.id: HOUR_MS, other.id: 2 * HOUR_MS})
    assert [each.topic_id for each in found] == [topic.id]


async def test_what_failed_before_is_told_and_claims_hide_nothing(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    await commit(plane, batch(key, 5))
    await age(database, key, before=5)
    await plane.pipeline.fail_claims({await claim(plane, key): "bad"}, max_attempts=2)
    token = await claim(plane, key)
    [found] = await aged(plane, topic)
    assert (found.attempts, found.parked) == (1, False)
    assert found.has_failed
    await plane.pipeline.fail_claims({token: "bad"}, max_attempts=2)
    [found] = await aged(plane, topic)
    assert (found.attempts, found.parked) == (2, True)


@pytest.mark.parametrize("more", [-1, 0, 1])
async def test_a_walk_counts_rows_and_objects_once_across_its_chunks(
    plane: ControlPlane, topic: Topic, database: Database, more: int
) -> None:
    key, count = part(topic), CHUNK_ROWS + more
    # Dead bytes between the batches keep them from becoming one row.
    await plane.log.commit_blocks(
        [block(*(batch(key, 1, size=10, gap=1) for _ in range(count - 1)))]
    )
    await commit(plane, batch(key, 1, size=10))
    await commit(plane, batch(key, 1, size=10))
    await age(database, key, before=count)
    [found] = await aged(plane, topic)
    assert (found.end_offset, found.rows, found.bytes) == (count, count, 10 * count)
    assert found.objects == 2


async def test_what_is_claimed_is_said_to_be_as_long_as_it_is(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    keys = [part(topic, 0), part(topic, 1)]
    await commit(plane, *(batch(key, 5) for key in keys))
    token = await claim(plane, keys[0])
    assert [each.claimed for each in await aged(plane, topic, age_ms=0)] == [True, False]
    await expire(database)
    assert [each.claimed for each in await aged(plane, topic, age_ms=0)] == [False, False]
    token = await claim(plane, keys[0])
    await plane.pipeline.release_claims([token])
    assert [each.claimed for each in await aged(plane, topic, age_ms=0)] == [False, False]


# Orders.


async def test_partitions_of_a_paused_topic_are_said_to_be_until_it_is_resumed(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    await commit(plane, batch(part(topic), 5))
    await age(database, part(topic), before=5)
    await plane.pipeline.pause(topic.id)
    paused_ms = (await status(plane, topic)).paused_since_ms
    await change(database, "UPDATE pipeline_topics SET paused_ms = paused_ms - 1000")
    await plane.pipeline.pause(topic.id)
    assert not await plane.pipeline.trigger(topic.id)
    [found] = await aged(plane, topic)
    assert (found.partition, found.paused, found.rows) == (0, True, 0)
    answer = await status(plane, topic)
    assert answer.paused_since_ms == (paused_ms or 0) - 1_000
    assert answer.eligible_rows == 1
    await plane.pipeline.resume(topic.id)
    [found] = await aged(plane, topic)
    assert (found.paused, found.rows) == (False, 1)
    assert await plane.pipeline.trigger(topic.id)
    assert (await status(plane, topic)).paused_since_ms is None


async def test_a_trigger_makes_old_what_was_there_before_it_and_nothing_else(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    await commit(plane, batch(key, 5))
    await plane.pipeline.trigger(topic.id)
    await commit(plane, batch(key, 5))
    # Both happened within the same few milliseconds.
    await change(database, "UPDATE batches SET committed_ms = committed_ms + 1000")
    await age(database, key, before=5, by_ms=1_000)
    [found] = await aged(plane, topic)
    assert found.end_offset == 5
    assert found.triggered
    answer = await status(plane, topic)
    assert answer.triggered_ms == found.triggered_ms
    assert (answer.eligible_rows, answer.pending_rows) == (1, 2)
    await plane.segments.chain(await finished(plane, key, 0, 4))
    assert await aged(plane, topic) == []
    assert (await status(plane, topic)).triggered_ms is None


async def test_a_trigger_stands_for_a_joined_row_of_which_a_batch_was_there_before_it(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    """As of a partition that could not be merged when it was triggered, but was split."""
    key = part(topic)
    await join_young_and_old(plane, database, key)
    [row] = await rows_in(plane, key)
    await plane.pipeline.trigger(topic.id)
    for triggered_ms, stands in ((row.oldest_commit_ms, True), (row.oldest_commit_ms - 1, False)):
        await change(database, "UPDATE pipeline_topics SET triggered_ms = $1", triggered_ms)
        [found] = await aged(plane, topic)
        assert found.triggered is stands
        assert ((await status(plane, topic)).triggered_ms is not None) is stands


async def test_orders_about_unknown_topics_are_refused(plane: ControlPlane, topic: Topic) -> None:
    await plane.topics.delete(topic.id)
    for order in (plane.pipeline.pause, plane.pipeline.resume, plane.pipeline.trigger):
        with pytest.raises(UnknownTopicError):
            await order(topic.id)


# Status.


async def test_the_status_of_a_topic_counts_all_that_is_not_converted(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    keys = [part(topic, index) for index in range(3)]
    for _ in range(4):
        await commit(plane, *(batch(key, 5) for key in keys[:2]))
    await plane.segments.chain(await finished(plane, keys[0], 0, 4))
    rows = await rows_in(plane, keys[1])
    await plane.pipeline.commit_split(split((await claim(plane, keys[1]), rows[:2])))
    await age(database, keys[1], before=15)
    answer = await status(plane, topic)
    assert answer.topic_id == topic.id
    assert answer.tiered_end == {0: 5, 1: 0, 2: 0}
    assert answer.block_start == {0: 5, 1: 0, 2: 0}
    assert answer.high_watermark == {0: 20, 1: 20, 2: 0}
    assert (answer.pending_rows, answer.pending_bytes) == (3 + 3, 300 + 400)
    assert (answer.eligible_rows, answer.eligible_bytes) == (2, 300)
    assert (answer.pending_split_files, answer.segments) == (1, 1)
    assert answer.oldest_ms == (await rows_in(plane, keys[1]))[0].oldest_commit_ms
    assert (answer.paused_since_ms, answer.triggered_ms, answer.parked) == (None, None, ())


async def test_a_split_does_not_make_the_lag_any_shorter(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    keys = [part(topic, 0), part(topic, 1)]
    for _ in range(3):
        await commit(plane, *(batch(key, 5) for key in keys))
    await change(database, "UPDATE batches SET committed_ms = 100 * (1 + partition) + base_offset")
    tokens = {key: await claim(plane, key) for key in keys}
    for first in (1, 0):
        assert (await status(plane, topic)).oldest_ms == 100
        parts = [(token, (await rows_in(plane, key))[first:]) for key, token in tokens.items()]
        assert await plane.pipeline.commit_split(split(*parts)) == [SplitOutcome.SWAPPED] * 2
    assert (await status(plane, topic)).oldest_ms == 100
    assert {row.committed_ms for row in await rows_in(plane, keys[0])} == {110}
    await plane.log.delete_records({keys[0]: Offset(15)})
    assert (await status(plane, topic)).oldest_ms == 200


@pytest.mark.parametrize("chunk_rows", [1, 2, 3, 5, 6, 7, 100])
async def test_the_status_counts_rows_and_split_files_once_however_they_are_walked(
    plane: ControlPlane,
    topic: Topic,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    chunk_rows: int,
) -> None:
    monkeypatch.setattr(pending, "CHUNK_ROWS", chunk_rows)
    monkeypatch.setattr(pending, "_GROUP", 2)
    keys = [part(topic, index) for index in range(3)]
    for _ in range(6):
        await commit(plane, *(batch(key, 5) for key in keys))
    tokens = [await claim(plane, key) for key in keys]
    rows = [await rows_in(plane, key) for key in keys]
    for i, j in ((1, 2), (3, 5)):
        file = split(*((token, each[i:j]) for token, each in zip(tokens, rows, strict=True)))
        await plane.pipeline.commit_split(file)
    await age(database, keys[2], before=15)
    answer = await status(plane, topic)
    assert (answer.pending_rows, answer.pending_bytes) == (3 * 5, 3 * 600)
    assert (answer.eligible_rows, answer.eligible_bytes) == (3, 300)
    assert answer.pending_split_files == 2
    assert answer.oldest_ms == (await rows_in(plane, keys[2]))[0].committed_ms


async def test_the_status_names_parked_partitions_with_their_error(
    plane: ControlPlane, topic: Topic
) -> None:
    key = part(topic, 2)
    await plane.pipeline.fail_claims(
        {await claim(plane, key): "object x is corrupt"}, max_attempts=1
    )
    [parked] = (await status(plane, topic)).parked
    assert parked[:3] == (key, 1, "object x is corrupt")
    assert parked.since_ms > 0


async def test_the_status_of_an_empty_topic_is_all_zero_and_of_a_deleted_one_none(
    plane: ControlPlane, topic: Topic
) -> None:
    others = [
        await plane.topics.create(f"t{number}", partition_count=1, configs={})
        for number in range(20)
    ]
    answers = await plane.pipeline.tier_status({each.id: 0 for each in (topic, *others)})
    assert [each.topic_id for each in answers] == sorted(each.id for each in (topic, *others))
    assert {(each.pending_rows, each.pending_bytes, each.oldest_ms) for each in answers} == {
        (0, 0, None)
    }
    await plane.topics.delete(topic.id)
    assert await plane.pipeline.tier_status({topic.id: 0}) == []


# The history.


async def test_runs_are_remembered_with_their_reports_the_newest_first(
    plane: ControlPlane, database: Database
) -> None:
    first = await plane.pipeline.begin_run("host-1")
    await change(database, "UPDATE runs SET started_ms = started_ms - 1000")
    second = await plane.pipeline.begin_run("host-2")
    assert (first.holder, first.finished_ms, first.report) == ("host-1", None, {})
    await plane.pipeline.save_run(first.run_id, {"bytes": 7, "stages": ["merge"]}, finished=False)
    assert [each.run_id for each in await plane.pipeline.runs(limit=9)] == [
        second.run_id,
        first.run_id,
    ]
    [_, running] = await plane.pipeline.runs(limit=9)
    assert (running.finished_ms, running.report) == (None, {"bytes": 7, "stages": ["merge"]})
    for _ in range(2):
        await plane.pipeline.save_run(first.run_id, {"bytes": 8}, finished=True)
    [newest] = await plane.pipeline.runs(limit=1)
    assert newest == second
    [_, done] = await plane.pipeline.runs(limit=9)
    assert done.finished_ms is not None
    assert (done.finished_ms > done.started_ms, done.report) == (True, {"bytes": 8})


async def test_an_unknown_run_cannot_be_saved(plane: ControlPlane) -> None:
    with pytest.raises(UnknownRunError):
        await plane.pipeline.save_run(new_run(), {}, finished=True)


async def test_the_oldest_runs_are_forgotten(
    plane: ControlPlane, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "KEPT_RUNS", 2)
    begun = []
    for _ in range(4):
        await change(database, "UPDATE runs SET started_ms = started_ms - 1000")
        begun.append(await plane.pipeline.begin_run("host"))
    assert [each.run_id for each in await plane.pipeline.runs(limit=9)] == [
        begun[3].run_id,
        begun[2].run_id,
    ]
