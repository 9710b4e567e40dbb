"""`commit_blocks`: offsets, rows, times and who sees them."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.contract.control.building import (
    batch,
    block,
    change,
    commit,
    offsets,
    outcomes,
    part,
    rows_of,
    span,
    state_of,
)

from stratalog.batch.header import TimestampType
from stratalog.control.log.commit_plan import MAX_ROW_BYTES
from stratalog.control.log.model import BlockToCommit, CommitAnswer, CommitOutcome
from stratalog.control.plane import ControlPlane
from stratalog.control.sql.database import Database
from stratalog.control.topics.model import Topic
from stratalog.ids import NO_OFFSET, PartitionIndex, TopicPartition, new_topic_id

ACCEPTED = CommitOutcome.ACCEPTED


async def test_commit_assigns_dense_offsets(plane: ControlPlane, topic: Topic) -> None:
    first = await commit(plane, batch(part(topic), 3), batch(part(topic), 2), batch(part(topic, 1)))
    second = await commit(plane, batch(part(topic), 4))
    assert outcomes(first) == [ACCEPTED] * 3
    assert offsets(first) == [0, 3, 0]
    assert offsets(second) == [5]
    assert await rows_of(plane, part(topic)) == [(0, 4), (5, 8)]


async def test_commit_moves_the_head_and_nothing_else(plane: ControlPlane, topic: Topic) -> None:
    [answer] = await commit(plane, batch(part(topic), 3, size=700))
    state = await state_of(plane, part(topic))
    assert (state.log_start, state.remote_end, state.block_start) == (0, 0, 0)
    assert (state.block_end, state.high_watermark, state.last_stable) == (3, 3, 3)
    assert state.size_bytes == 700
    assert state.last_commit_ms == answer.append_time_ms > 0
    assert (await state_of(plane, part(topic, 1))).high_watermark == 0


async def test_commit_coalesces_adjoining_batches(plane: ControlPlane, topic: Topic) -> None:
    key = part(topic)
    await commit(
        plane,
        batch(key, 1, timestamp=5),
        batch(key, 2, timestamp=9),
        batch(key, 3, timestamp=7),
    )
    [row] = await plane.log.all_coordinates(key, limit=10)
    assert (row.base_offset, row.last_offset) == (0, 5)
    assert (row.byte_offset, row.byte_size) == (0, 300)
    assert row.max_timestamp == 9
    assert row.stamped is False


async def test_commit_parts_rows_at_a_byte_gap(plane: ControlPlane, topic: Topic) -> None:
    await commit(plane, batch(part(topic)), batch(part(topic), gap=1))
    assert await rows_of(plane, part(topic)) == [(0, 0), (1, 1)]


async def test_commit_parts_rows_of_different_timestamp_types(
    plane: ControlPlane, topic: Topic
) -> None:
    append_time = TimestampType.LOG_APPEND_TIME
    await commit(plane, batch(part(topic)), batch(part(topic), timestamp_type=append_time))
    assert await rows_of(plane, part(topic)) == [(0, 0), (1, 1)]


@pytest.mark.parametrize(("over", "rows"), [(0, [(0, 1)]), (1, [(0, 0), (1, 1)])])
async def test_commit_fills_a_row_up_to_its_limit(
    plane: ControlPlane, topic: Topic, over: int, rows: list[tuple[int, int]]
) -> None:
    half = MAX_ROW_BYTES // 2
    await commit(plane, batch(part(topic), size=half), batch(part(topic), size=half + over))
    assert await rows_of(plane, part(topic)) == rows


async def test_a_batch_above_the_limit_is_a_row_of_its_own(
    plane: ControlPlane, topic: Topic
) -> None:
    await commit(
        plane, batch(part(topic)), batch(part(topic), size=MAX_ROW_BYTES + 1), batch(part(topic))
    )
    assert await rows_of(plane, part(topic)) == [(0, 0), (1, 1), (2, 2)]


async def test_commit_stamps_append_time_with_its_own_time(
    plane: ControlPlane, topic: Topic
) -> None:
    [answer] = await commit(
        plane,
        batch(part(topic), timestamp=5, timestamp_type=TimestampType.LOG_APPEND_TIME),
    )
    [row] = await plane.log.all_coordinates(part(topic), limit=10)
    assert row.max_timestamp == row.committed_ms == answer.append_time_ms


async def test_commit_time_never_goes_back(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    future_ms = 9_000_000_000_000
    await change(database, "UPDATE heads SET last_commit_ms = $1 WHERE partition = 0", future_ms)
    behind, usual = await commit(plane, batch(part(topic)), batch(part(topic, 1)))
    assert behind.append_time_ms == future_ms
    assert usual.append_time_ms < future_ms
    [row] = await plane.log.all_coordinates(part(topic), limit=10)
    assert row.committed_ms == future_ms


async def test_commit_answers_with_epoch_and_log_start(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    await commit(plane, batch(part(topic), 5))
    await plane.log.delete_records(
        {part(topic): (await state_of(plane, part(topic))).high_watermark}
    )
    await change(database, "UPDATE heads SET leader_epoch = 7")
    [answer] = await commit(plane, batch(part(topic)))
    assert (answer.base_offset, answer.log_start, answer.leader_epoch) == (5, 5, 7)
    [row] = await plane.log.all_coordinates(part(topic), limit=10)
    assert row.leader_epoch == 7


async def test_commit_refuses_unknown_partitions_and_takes_the_rest(
    plane: ControlPlane, topic: Topic
) -> None:
    stranger = TopicPartition(new_topic_id(), PartitionIndex(0))
    answers = await commit(plane, batch(part(topic)), batch(part(topic, 3)), batch(stranger))
    unknown = CommitOutcome.UNKNOWN_PARTITION
    assert outcomes(answers) == [ACCEPTED, unknown, unknown]
    assert offsets(answers) == [0, NO_OFFSET, NO_OFFSET]


async def test_commit_refuses_a_deleted_topic(plane: ControlPlane, topic: Topic) -> None:
    await plane.topics.delete(topic.id)
    assert outcomes(await commit(plane, batch(part(topic)))) == [CommitOutcome.UNKNOWN_PARTITION]


async def test_commit_refuses_a_partition_that_writes_elsewhere(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    await change(database, "UPDATE partitions SET write_tier = 'local' WHERE partition = 1")
    answers = await commit(plane, batch(part(topic)), batch(part(topic, 1)))
    assert outcomes(answers) == [ACCEPTED, CommitOutcome.WRONG_TIER]
    assert (await state_of(plane, part(topic, 1))).high_watermark == 0


async def test_an_object_of_which_nothing_was_accepted_is_marked_at_once(
    plane: ControlPlane, topic: Topic
) -> None:
    dead, alive = block(batch(part(topic, 9))), block(batch(part(topic)))
    await plane.log.commit_blocks([dead, alive])
    marked = await plane.objects.marked(grace_ms=0, limit=10)
    assert [each.object_id for each in marked] == [dead.object_id]


async def test_many_blocks_commit_in_one_call_in_their_order(
    plane: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    answers = await plane.log.commit_blocks(
        [block(batch(key, 2), batch(key)), block(batch(key, 3))]
    )
    assert [offsets(each) for each in answers] == [[0, 2], [3]]
    rows = await plane.log.all_coordinates(key, limit=10)
    assert [(row.base_offset, row.last_offset, row.byte_offset) for row in rows] == [
        (0, 2, 0),
        (3, 5, 0),
    ]


async def test_a_block_without_batches_is_committed_and_marked(plane: ControlPlane) -> None:
    assert await plane.log.commit_blocks([block()]) == [[]]
    assert len(await plane.objects.marked(grace_ms=0, limit=10)) == 1


async def test_concurrent_commits_stay_dense_and_do_not_deadlock(
    plane: ControlPlane, other: ControlPlane, topic: Topic
) -> None:
    keys = [part(topic, index) for index in range(3)]

    async def writer(control: ControlPlane, order: Sequence[TopicPartition]) -> list[BlockToCommit]:
        done = []
        for _ in range(8):
            each = block(*(batch(key, 3) for key in order for _ in range(2)))
            assert outcomes((await control.log.commit_blocks([each]))[0]) == [ACCEPTED] * 6
            done.append(each)
        return done

    await asyncio.gather(
        writer(plane, keys),
        writer(plane, keys[::-1]),
        writer(other, keys),
        writer(other, keys[::-1]),
    )
    for key in keys:
        rows = await plane.log.all_coordinates(key, limit=1000)
        assert [row.base_offset for row in rows] == [i * 6 for i in range(32)]
        assert [row.committed_ms for row in rows] == sorted(row.committed_ms for row in rows)
        state = await state_of(plane, key)
        assert (state.high_watermark, state.size_bytes) == (192, 6400)


async def test_a_partition_with_damaged_boundaries_does_not_refuse_the_batches_of_others(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    await change(database, "UPDATE partitions SET log_start = 99 WHERE partition = 1")
    answers = await commit(plane, batch(part(topic), 3), batch(part(topic, 1)))
    assert outcomes(answers) == [ACCEPTED] * 2


async def test_readers_never_see_a_head_without_its_rows(
    plane: ControlPlane, other: ControlPlane, topic: Topic
) -> None:
    done = asyncio.Event()

    async def write() -> None:
        for _ in range(20):
            await commit(other, batch(part(topic), 2))
        done.set()

    async def read() -> None:
        while not done.is_set():
            [found] = await plane.log.find_batches([span(part(topic), 0)])
            assert found.state is not None
            ends = [row.last_offset + 1 for row in found.rows] or [0]
            assert ends[-1] == found.state.high_watermark

    await asyncio.gather(write(), read())


async def test_a_repeated_commit_is_answered_from_the_first(
    plane: ControlPlane, topic: Topic
) -> None:
    blocks = [
        block(batch(part(topic), 3), batch(part(topic, 9))),
        block(batch(part(topic, 1), producer=4, sequence=0)),
    ]
    first = await plane.log.commit_blocks(blocks)
    await commit(plane, batch(part(topic)))
    assert await plane.log.commit_blocks(blocks) == first
    assert (await state_of(plane, part(topic))).high_watermark == 4
    assert (await state_of(plane, part(topic, 1))).high_watermark == 1


async def test_the_same_commit_racing_with_itself_takes_effect_once(
    plane: ControlPlane, other: ControlPlane, topic: Topic
) -> None:
    blocks = [block(batch(part(topic), 3))]
    answers: list[list[list[CommitAnswer]]] = await asyncio.gather(
        *(control.log.commit_blocks(blocks) for control in (plane, other, plane, other))
    )
    assert all(each == answers[0] for each in answers)
    assert await rows_of(plane, part(topic)) == [(0, 2)]
