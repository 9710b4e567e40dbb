"""Removing the records of segments and rows: DeleteRecords, retention, deleted topics."""

import asyncio
from contextlib import suppress

import pytest
from tests.contract.control.building import batch, change, commit, part, rows_of, span, state_of
from tests.contract.control.tiers import (
    SEGMENT_BYTES,
    assert_consistent,
    bases,
    chain,
    chained,
    doomed,
    finished,
    only_segments,
    two_tiers,
)

from stratalog.control.log.errors import OffsetOutOfRangeError
from stratalog.control.log.retention import RetentionOperations
from stratalog.control.log.trims import Trim
from stratalog.control.plane import ControlPlane
from stratalog.control.segments.errors import BoundaryMovedError
from stratalog.control.segments.model import SegmentState
from stratalog.control.sql.database import Database
from stratalog.control.topics.model import Topic
from stratalog.control.topics.purge import _forget
from stratalog.ids import NO_OFFSET, Offset, TopicPartition

# DeleteRecords.


@pytest.mark.parametrize(
    ("target", "boundary", "segments", "rows"),
    [
        (0, 60, [0, 20, 40], 4),
        (19, 60, [0, 20, 40], 4),
        (20, 60, [20, 40], 4),
        (21, 60, [20, 40], 4),
        (59, 60, [40], 4),
        (60, 60, [], 4),
        (61, 60, [], 4),
        (70, 70, [], 3),
        (100, 100, [], 0),
        (-1, 100, [], 0),
    ],
)
async def test_deleting_records_unchains_the_segments_below(
    plane: ControlPlane, topic: Topic, target: int, boundary: int, segments: list[int], rows: int
) -> None:
    key = part(topic)
    await two_tiers(plane, key)
    [deleted] = await plane.log.delete_records({key: Offset(target)})
    log_start = 100 if target == NO_OFFSET else target
    state = await state_of(plane, key)
    assert deleted.log_start == state.log_start == log_start
    assert (state.remote_end, state.block_start) == (boundary, boundary)
    assert await chained(plane, key) == segments
    assert len(await rows_of(plane, key)) == rows
    assert state.size_bytes == len(segments) * SEGMENT_BYTES + rows * 100
    gone = await doomed(plane)
    assert len(gone) == 3 - len(segments)
    assert {each.state for each in gone} <= {SegmentState.DELETE_STARTED}
    await assert_consistent(plane, key)


async def test_deleting_from_several_partitions_frees_what_each_of_them_had(
    plane: ControlPlane, topic: Topic
) -> None:
    for index in range(3):
        await two_tiers(plane, part(topic, index))
    await plane.log.delete_records(
        {part(topic, 2): Offset(45), part(topic, 0): Offset(5), part(topic, 1): Offset(80)}
    )
    sizes = [state.size_bytes for state in await plane.log.topic_partitions(topic.id)]
    assert sizes == [1150, 200, 650]
    for index in range(3):
        await assert_consistent(plane, part(topic, index))


async def test_a_refused_delete_keeps_the_segments(plane: ControlPlane, topic: Topic) -> None:
    await two_tiers(plane, part(topic))
    with pytest.raises(OffsetOutOfRangeError):
        await plane.log.delete_records({part(topic): Offset(50), part(topic, 1): Offset(1)})
    assert await chained(plane, part(topic)) == [0, 20, 40]
    assert await doomed(plane) == []


async def test_segments_of_somebody_else_are_forgotten_and_not_deleted(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    await only_segments(plane, database, part(topic))
    await plane.log.delete_records({part(topic): Offset(45)})
    assert await doomed(plane) == []
    assert [each.base_offset for each in await plane.segments.all(limit=10)] == [40]
    await assert_consistent(plane, part(topic))


@pytest.mark.parametrize("target", [60, -1])
async def test_a_partition_of_segments_alone_can_be_emptied(
    plane: ControlPlane, topic: Topic, database: Database, target: int
) -> None:
    await only_segments(plane, database, part(topic))
    await plane.log.delete_records({part(topic): Offset(target)})
    state = await state_of(plane, part(topic))
    assert (state.log_start, state.remote_end, state.block_start) == (60, 60, 60)
    assert (state.size_bytes, state.high_watermark) == (0, 60)
    await assert_consistent(plane, part(topic))


async def test_a_lease_keeps_the_segments_that_go_after_it_began(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    await two_tiers(plane, part(topic))
    await plane.log.delete_records({part(topic): Offset(20)})
    await change(database, "UPDATE segments SET changed_ms = changed_ms - 1000")
    lease = await plane.scans.take_lease("scan", duration_ms=60_000)
    await plane.log.delete_records({part(topic): Offset(40)})
    assert [each.base_offset for each in await doomed(plane)] == [0]
    await plane.scans.release_lease(lease.lease_id)
    assert [each.base_offset for each in await doomed(plane)] == [0, 20]


async def test_a_lease_keeps_the_segments_that_go_after_the_clock_was_set_back(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    await two_tiers(plane, part(topic))
    lease = await plane.scans.take_lease("scan", duration_ms=60_000)
    await change(database, "UPDATE leases SET started_ms = started_ms + 5000")
    await plane.log.delete_records({part(topic): Offset(20)})
    assert await plane.segments.doomed(grace_ms=-60_000, limit=10) == []
    await plane.scans.release_lease(lease.lease_id)
    assert len(await plane.segments.doomed(grace_ms=-60_000, limit=10)) == 1


async def test_deleters_writers_and_mergers_keep_a_partition_whole(
    plane: ControlPlane, other: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    for _ in range(3):
        await commit(plane, batch(key, 2))

    async def write() -> None:
        for _ in range(12):
            await commit(plane, batch(key, 2))

    async def merge() -> None:
        for _ in range(12):
            state = await state_of(other, key)
            if state.block_start < state.block_end:
                with suppress(BoundaryMovedError):
                    await chain(other, key, state.remote_end, state.remote_end + 2)

    async def delete(control: ControlPlane) -> None:
        for _ in range(8):
            state = await state_of(control, key)
            target = (state.log_start + state.high_watermark) // 2
            await control.log.delete_records({key: Offset(target)})

    async def retain() -> None:
        for _ in range(8):
            await other.log.enforce_retention(
                key, retention_ms=None, retention_bytes=900, max_rows=2
            )

    await asyncio.gather(write(), merge(), delete(plane), delete(other), retain())
    assert (await state_of(plane, key)).high_watermark == 30
    await assert_consistent(plane, key)


# Retention.


async def retain(
    plane: ControlPlane,
    key: TopicPartition,
    *,
    ms: int | None = None,
    size: int | None = None,
    max_rows: int = 100,
) -> int:
    return await plane.log.enforce_retention(
        key, retention_ms=ms, retention_bytes=size, max_rows=max_rows
    )


YOUNG = 9_000_000_000_000


@pytest.mark.parametrize(
    ("timestamps", "removed", "log_start"),
    [
        ((1_000, 1_000, YOUNG), 2, 40),
        ((1_000, YOUNG, 1_000), 1, 20),
        ((YOUNG, 1_000, 1_000), 0, 0),
        ((1_000, 1_000, 1_000), 7, 100),
        ((1_000, 1_000, -1), 2, 40),
    ],
)
async def test_retention_by_time_stops_at_the_first_young_segment(
    plane: ControlPlane, topic: Topic, timestamps: tuple[int, ...], removed: int, log_start: int
) -> None:
    """The rows behind the segments are old, and one young segment protects them all. One whose
    records have no time is as old as our knowledge of it."""
    key = part(topic)
    await two_tiers(plane, key, timestamps)
    assert await retain(plane, key, ms=60_000) == removed
    assert (await state_of(plane, key)).log_start == log_start
    assert await retain(plane, key, ms=60_000) == 0
    assert len(await doomed(plane)) == min(removed, 3)
    await assert_consistent(plane, key)


async def test_segments_without_a_time_expire_in_the_end(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    await two_tiers(plane, key, (-1, -1, YOUNG))
    await change(database, "UPDATE segments SET added_ms = added_ms - 100000")
    assert await retain(plane, key, ms=60_000) == 2


@pytest.mark.parametrize(
    ("limit", "segments", "rows"),
    [
        (1150, 3, 4),
        (901, 3, 4),
        (900, 2, 4),
        (650, 1, 4),
        (401, 1, 4),
        (400, 0, 4),
        (301, 0, 4),
        (300, 0, 3),
        (0, 0, 0),
    ],
)
async def test_retention_by_size_counts_both_tiers(
    plane: ControlPlane, topic: Topic, limit: int, segments: int, rows: int
) -> None:
    key = part(topic)
    await two_tiers(plane, key)
    assert await retain(plane, key, size=limit) == 7 - segments - rows
    assert len(await chained(plane, key)) == segments
    assert len(await rows_of(plane, key)) == rows
    assert (await state_of(plane, key)).size_bytes == segments * SEGMENT_BYTES + rows * 100
    await assert_consistent(plane, key)


async def test_retention_takes_no_more_segments_and_rows_than_asked(
    plane: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    await two_tiers(plane, key)
    starts: list[int] = []
    for _ in range(4):
        assert await retain(plane, key, ms=0, max_rows=2) == (2 if len(starts) < 3 else 1)
        await assert_consistent(plane, key)
        starts.append((await state_of(plane, key)).log_start)
    assert starts == [40, 70, 90, 100]
    assert await retain(plane, key, ms=0, max_rows=2) == 0


async def test_when_the_last_segment_expires_nothing_special_happens(
    plane: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    await two_tiers(plane, key)
    assert await retain(plane, key, size=400) == 3
    state = await state_of(plane, key)
    assert (state.log_start, state.remote_end, state.block_start) == (60, 60, 60)
    [found] = await plane.log.find_batches([span(key, 60, 1)])
    assert bases(found) == ([], [60])
    await chain(plane, key, 60, 80)
    [found] = await plane.log.find_batches([span(key, 60, 1)])
    assert bases(found) == ([60], [80])
    await assert_consistent(plane, key)


async def test_a_partition_of_segments_alone_expires_to_its_end(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    await only_segments(plane, database, key)
    assert await retain(plane, key, ms=0) == 3
    state = await state_of(plane, key)
    assert (state.log_start, state.high_watermark, state.size_bytes) == (60, 60, 0)
    assert await plane.segments.all(limit=10) == []
    await assert_consistent(plane, key)


async def test_segments_that_an_older_broker_left_behind_go_without_any_limit(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    await two_tiers(plane, key)
    await change(database, "UPDATE partitions SET log_start = 45 WHERE partition = 0")
    assert [await retain(plane, key, max_rows=1) for _ in range(3)] == [1, 1, 0]
    assert (await state_of(plane, key)).log_start == 45
    assert await chained(plane, key) == [40]
    await assert_consistent(plane, key)


async def test_rows_wait_for_what_is_missing_below_them(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    await two_tiers(plane, key)
    await change(database, "DELETE FROM segments")
    assert await retain(plane, key, ms=0) == 0
    assert len(await rows_of(plane, key)) == 4


async def test_a_retention_that_was_planned_before_a_segment_was_chained_changes_nothing(
    plane: ControlPlane, topic: Topic, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below the blocks, as after a migration whose last files are not tiered yet: the segment moves
    no boundary but `remote_end`, which the plan would set back."""
    key = part(topic)
    for _ in range(10):
        await commit(plane, batch(key, 10))
    await chain(plane, key, 0, 20)
    where = "WHERE topic_id = $1 AND partition = $2"
    await change(database, f"UPDATE partitions SET block_start = 40 {where}", *key)
    await change(database, f"UPDATE heads SET size_bytes = size_bytes - 200 {where}", *key)
    segment_id = await finished(plane, key, 20, 40)
    apply = RetentionOperations._apply

    async def overtaken(self: RetentionOperations, trim: Trim, max_rows: int) -> int:
        await plane.segments.chain(segment_id)
        return await apply(self, trim, max_rows)

    with monkeypatch.context() as patched:
        patched.setattr(RetentionOperations, "_apply", overtaken)
        await retain(plane, key, size=600)
    state = await state_of(plane, key)
    assert (state.log_start, state.remote_end, state.block_start) == (0, 40, 40)
    assert await chained(plane, key) == [0, 20]
    await assert_consistent(plane, key)
    # The next one finds it.
    assert await retain(plane, key, size=600) == 2
    state = await state_of(plane, key)
    assert (state.log_start, state.remote_end, state.block_start) == (40, 40, 40)
    assert await chained(plane, key) == []
    await assert_consistent(plane, key)


# Deleted topics.


async def test_purging_takes_the_segments_of_a_deleted_topic_in_chunks(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    kept = await plane.topics.create("kept", partition_count=1, configs={})
    await two_tiers(plane, part(kept))
    await two_tiers(plane, part(topic))
    await change(database, "UPDATE segments SET owned = false WHERE base_offset = 20")
    await finished(plane, part(topic), 60, 80)
    await plane.topics.delete(topic.id)
    assert [await plane.topics.purge_deleted(window_ms=0, max_rows=3) for _ in range(4)] == [
        3,
        3,
        2,
        0,
    ]
    assert [each.base_offset for each in await doomed(plane)] == [0, 40, 60]
    assert {each.topic_id for each in await doomed(plane)} == {topic.id}
    assert len(await plane.segments.all(limit=10)) == 6
    assert await topic_rows(database, topic) == 0
    assert await chained(plane, part(kept)) == [0, 20, 40]
    await assert_consistent(plane, part(kept))


async def test_a_topic_outlives_its_chained_segments(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    """As if one had been chained by a transaction that began before the topic was deleted."""
    await two_tiers(plane, part(topic))
    await plane.topics.delete(topic.id)
    await change(database, "DELETE FROM batches")
    await database.write(lambda connection: _forget(connection, topic.id))
    assert await topic_rows(database, topic) == 1
    assert await plane.topics.purge_deleted(window_ms=0, max_rows=100) == 3
    assert await topic_rows(database, topic) == 0


async def topic_rows(database: Database, topic: Topic) -> int:
    rows = await database.read(
        lambda connection: connection.fetch("SELECT 1 FROM topics WHERE topic_id = $1", topic.id)
    )
    return len(rows)
