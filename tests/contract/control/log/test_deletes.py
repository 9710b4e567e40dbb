"""DeleteRecords and retention: boundaries, rows, sizes, objects."""

import asyncio

import pytest
from tests.contract.control.building import (
    batch,
    block,
    change,
    commit,
    part,
    rows_of,
    span,
    state_of,
)

from stratalog.control.log.errors import OffsetOutOfRangeError
from stratalog.control.plane import ControlPlane
from stratalog.control.sql.database import Database
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.control.topics.model import Topic
from stratalog.ids import NO_OFFSET, ObjectId, Offset, TopicPartition


async def five_rows(plane: ControlPlane, key: TopicPartition, timestamp: int = 1_000) -> None:
    """Offsets 0 to 49 in rows of ten records and 100 bytes, one object each."""
    for _ in range(5):
        await commit(plane, batch(key, 10, timestamp=timestamp))


async def marked(plane: ControlPlane) -> list[ObjectId]:
    return [each.object_id for each in await plane.objects.marked(grace_ms=0, limit=100)]


@pytest.mark.parametrize(
    ("target", "log_start", "block_start", "rows"),
    [
        (0, 0, 0, 5),
        (9, 9, 0, 5),
        (10, 10, 10, 4),
        (11, 11, 10, 4),
        (49, 49, 40, 1),
        (50, 50, 50, 0),
    ],
)
async def test_deleting_records_moves_the_boundaries_to_the_first_row_that_remains(
    plane: ControlPlane, topic: Topic, target: int, log_start: int, block_start: int, rows: int
) -> None:
    key = part(topic)
    await five_rows(plane, key)
    [deleted] = await plane.log.delete_records({key: Offset(target)})
    assert deleted.log_start == log_start
    state = await state_of(plane, key)
    assert (state.log_start, state.block_start, state.remote_end) == (
        log_start,
        block_start,
        block_start,
    )
    assert (state.block_end, state.high_watermark) == (50, 50)
    assert state.size_bytes == rows * 100
    assert len(await rows_of(plane, key)) == rows
    assert len(await marked(plane)) == 5 - rows


async def test_minus_one_deletes_everything_there_is(plane: ControlPlane, topic: Topic) -> None:
    await five_rows(plane, part(topic))
    [deleted] = await plane.log.delete_records({part(topic): NO_OFFSET})
    assert deleted.log_start == 50
    [answer] = await commit(plane, batch(part(topic)))
    assert (answer.base_offset, answer.log_start) == (50, 50)
    assert await rows_of(plane, part(topic)) == [(50, 50)]


async def test_deleting_below_the_start_changes_nothing(plane: ControlPlane, topic: Topic) -> None:
    await five_rows(plane, part(topic))
    await plane.log.delete_records({part(topic): Offset(20)})
    before = await state_of(plane, part(topic))
    [deleted] = await plane.log.delete_records({part(topic): Offset(10)})
    assert deleted.log_start == 20
    assert await state_of(plane, part(topic)) == before


@pytest.mark.parametrize("offset", [51, -2])
async def test_one_wrong_target_changes_nothing(
    plane: ControlPlane, topic: Topic, offset: int
) -> None:
    await five_rows(plane, part(topic))
    await five_rows(plane, part(topic, 1))
    with pytest.raises(OffsetOutOfRangeError):
        await plane.log.delete_records({part(topic): Offset(20), part(topic, 1): Offset(offset)})
    with pytest.raises(UnknownTopicError):
        await plane.log.delete_records({part(topic): Offset(20), part(topic, 9): Offset(0)})
    assert (await state_of(plane, part(topic))).log_start == 0


async def test_several_partitions_are_deleted_from_at_once(
    plane: ControlPlane, topic: Topic
) -> None:
    for index in range(3):
        await five_rows(plane, part(topic, index))
    deleted = await plane.log.delete_records(
        {part(topic, 2): Offset(5), part(topic, 0): Offset(10), part(topic, 1): Offset(0)}
    )
    assert [(each.partition, each.log_start) for each in deleted] == [(2, 5), (0, 10), (1, 0)]
    sizes = [state.size_bytes for state in await plane.log.topic_partitions(topic.id)]
    assert sizes == [400, 500, 500]


async def test_an_object_is_marked_with_its_last_row(plane: ControlPlane, topic: Topic) -> None:
    shared = block(batch(part(topic)), batch(part(topic, 1)))
    await plane.log.commit_blocks([shared])
    await plane.log.delete_records({part(topic): Offset(1)})
    assert await marked(plane) == []
    await plane.log.delete_records({part(topic, 1): Offset(1)})
    assert await marked(plane) == [shared.object_id]


async def test_two_removers_of_the_last_rows_do_not_both_miss_the_object(
    plane: ControlPlane, other: ControlPlane, topic: Topic
) -> None:
    blocks = [block(batch(part(topic, 0)), batch(part(topic, 1))) for _ in range(20)]
    for number, each in enumerate(blocks, 1):
        await plane.log.commit_blocks([each])
        await asyncio.gather(
            plane.log.delete_records({part(topic, 0): Offset(number)}),
            other.log.delete_records({part(topic, 1): Offset(number)}),
        )
    assert sorted(await marked(plane)) == sorted(each.object_id for each in blocks)


async def test_deleters_and_writers_of_one_partition_keep_its_size_right(
    plane: ControlPlane, other: ControlPlane, topic: Topic
) -> None:
    key = part(topic)

    async def write() -> None:
        for _ in range(15):
            await commit(plane, batch(key, 1, size=10))

    async def delete(control: ControlPlane) -> None:
        for _ in range(8):
            await control.log.delete_records({key: NO_OFFSET})

    async def retain() -> None:
        for _ in range(8):
            await other.log.enforce_retention(
                key, retention_ms=None, retention_bytes=20, max_rows=3
            )

    await asyncio.gather(write(), delete(plane), delete(other), retain())
    state = await state_of(plane, key)
    rows = await plane.log.all_coordinates(key, limit=100)
    assert state.high_watermark == 15
    assert state.size_bytes == sum(row.byte_size for row in rows)
    assert [row.base_offset for row in rows] == list(range(state.log_start, 15))


async def test_rows_that_a_crash_left_behind_are_not_served_and_go_with_retention(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    await five_rows(plane, key)
    # A crash between the two halves of a deletion: the boundaries moved, the rows stayed.
    await change(
        database,
        "UPDATE partitions SET log_start = 30, block_start = 30, remote_end = 30"
        " WHERE partition = 0",
    )
    await change(database, "UPDATE heads SET size_bytes = 200 WHERE partition = 0")
    found = await plane.log.find_batches([span(key, 10), span(key, 30)])
    assert [[row.base_offset for row in each.rows] for each in found] == [[], [30, 40]]
    [newest] = await plane.log.find_newest([key])
    assert newest is not None
    assert newest.base_offset == 30
    removed = [await retain(plane, key, max_rows=2) for _ in range(3)]
    assert removed == [2, 1, 0]
    assert await rows_of(plane, key) == [(30, 39), (40, 49)]
    assert len(await marked(plane)) == 3
    assert (await state_of(plane, key)).size_bytes == 200


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


async def test_retention_without_limits_keeps_everything(plane: ControlPlane, topic: Topic) -> None:
    await five_rows(plane, part(topic))
    assert await retain(plane, part(topic)) == 0
    assert await retain(plane, part(topic, 9), ms=0) == 0
    assert len(await rows_of(plane, part(topic))) == 5


async def test_retention_by_time_stops_at_the_first_young_row(
    plane: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    [answer] = await commit(plane, batch(key, timestamp=1_000))
    now_ms = answer.append_time_ms
    await commit(plane, batch(key, timestamp=2_000))
    await commit(plane, batch(key, timestamp=now_ms + 100_000))
    await commit(plane, batch(key, timestamp=3_000))
    assert await retain(plane, key, ms=60_000) == 2
    assert await rows_of(plane, key) == [(2, 2), (3, 3)]
    state = await state_of(plane, key)
    assert (state.log_start, state.block_start, state.remote_end) == (2, 2, 2)
    assert state.size_bytes == 200
    assert await retain(plane, key, ms=60_000) == 0


async def test_records_without_a_time_are_as_old_as_their_commit(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    await commit(plane, batch(key, timestamp=-1))
    assert await retain(plane, key, ms=60_000) == 0
    await change(database, "UPDATE batches SET committed_ms = committed_ms - 100000")
    assert await retain(plane, key, ms=60_000) == 1


@pytest.mark.parametrize(("limit", "left"), [(500, 5), (401, 5), (400, 4), (399, 4), (0, 0)])
async def test_retention_by_size_never_leaves_less_than_the_limit(
    plane: ControlPlane, topic: Topic, limit: int, left: int
) -> None:
    await five_rows(plane, part(topic))
    assert await retain(plane, part(topic), size=limit) == 5 - left
    state = await state_of(plane, part(topic))
    assert state.size_bytes == left * 100
    assert state.log_start == 50 - left * 10


async def test_old_rows_behind_young_ones_that_are_too_many_go_with_them(
    plane: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    [answer] = await commit(plane, batch(key, timestamp=1_000))
    await commit(plane, batch(key, timestamp=answer.append_time_ms + 100_000))
    await commit(plane, batch(key, timestamp=2_000))
    await commit(plane, batch(key, timestamp=answer.append_time_ms + 100_000))
    assert await retain(plane, key, ms=60_000, size=200) == 3
    assert await rows_of(plane, key) == [(3, 3)]


async def test_retention_takes_no_more_rows_than_asked(plane: ControlPlane, topic: Topic) -> None:
    await five_rows(plane, part(topic))
    removed = [await retain(plane, part(topic), ms=1_000, max_rows=2) for _ in range(4)]
    assert removed == [2, 2, 1, 0]
    assert (await state_of(plane, part(topic))).log_start == 50
    assert len(await marked(plane)) == 5


async def test_retention_leaves_blocks_alone_while_older_tiers_hold_data(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    await five_rows(plane, key)
    await change(
        database,
        "UPDATE partitions SET block_start = 10, remote_end = 10 WHERE partition = 0",
    )
    assert await retain(plane, key, ms=1_000) == 1  # The row below the block range is a leftover.
    assert (await state_of(plane, key)).log_start == 0
    [deleted] = await plane.log.delete_records({key: Offset(5)})
    state = await state_of(plane, key)
    assert (deleted.log_start, state.remote_end, state.block_start) == (5, 10, 10)


async def test_offsets_sizes_and_times_beyond_32_bits_are_not_cut(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key, first, size = part(topic), 2**31 - 15, 3 * 2**30
    await change(
        database,
        "UPDATE partitions SET log_start = $1, block_start = $1, remote_end = $1"
        " WHERE partition = 0",
        first,
    )
    await change(database, "UPDATE heads SET high_watermark = $1 WHERE partition = 0", first)
    for _ in range(5):
        await commit(plane, batch(key, 10, size=size))
    for kept in (2**63 - 1, 2**42):  # For ever, as some write it; and since before 1970.
        assert await retain(plane, key, ms=kept) == 0
    assert await retain(plane, key, size=4 * size + 1) == 0
    assert await retain(plane, key, size=3 * size) == 2
    state = await state_of(plane, key)
    assert (state.log_start, state.size_bytes) == (first + 20, 3 * size)
    [deleted] = await plane.log.delete_records({key: Offset(first + 35)})
    assert deleted.log_start == first + 35
    assert await rows_of(plane, key) == [(first + start, first + start + 9) for start in (30, 40)]
    assert len(await marked(plane)) == 3
