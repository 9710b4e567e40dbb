"""Finding rows: by offset, by time, the newest."""

from dataclasses import replace

import pytest
from tests.contract.control.building import batch, block, change, commit, part, span

from stratalog.batch.header import TimestampType
from stratalog.control.log import reads
from stratalog.control.log.ledger import LogLedger
from stratalog.control.log.model import Coordinates, TimeQuery
from stratalog.control.log.reads import FIRST_LOOK_ROWS, MAX_SPAN_ROWS
from stratalog.control.plane import ControlPlane
from stratalog.control.sql.database import Connection, Database, Row, Rows, T, Work
from stratalog.control.topics.model import Topic
from stratalog.ids import (
    LeaderEpoch,
    Offset,
    PartitionIndex,
    TopicPartition,
    new_topic_id,
    system_entropy,
)


def bases(rows: object) -> list[int]:
    return [row.base_offset for row in rows]  # type: ignore[attr-defined]


async def test_rows_begin_with_the_one_that_holds_the_offset(
    plane: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    await commit(plane, *(batch(key, 10, gap=1) for _ in range(4)))
    found = await plane.log.find_batches([span(key, offset) for offset in (0, 9, 10, 39)])
    assert [bases(each.rows) for each in found] == [
        [0, 10, 20, 30],
        [0, 10, 20, 30],
        [10, 20, 30],
        [30],
    ]


async def test_outside_the_partition_there_are_no_rows_but_the_boundaries(
    plane: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    await commit(plane, *(batch(key, 10, gap=1) for _ in range(2)))
    await plane.log.delete_records({key: Offset(5)})
    found = await plane.log.find_batches([span(key, offset) for offset in (-1, 4, 5, 19, 20, 21)])
    assert [bases(each.rows) for each in found] == [[], [], [0, 10], [10], [], []]
    for each in found:
        assert each.state is not None
        assert (each.state.log_start, each.state.high_watermark) == (5, 20)


async def test_partitions_have_moved_if_their_readers_would_see_other_boundaries(
    plane: ControlPlane, topic: Topic
) -> None:
    gone = await plane.topics.create("gone", partition_count=1, configs={})
    keys = [part(topic), part(topic, 1), part(topic, 2), part(gone)]
    await commit(plane, *(batch(key, 10) for key in keys))
    known = list((await plane.log.partitions(keys)).values())
    assert await plane.log.moved(known) == []
    assert await plane.log.moved([]) == []
    await commit(plane, batch(keys[0], 1))
    await plane.log.delete_records({keys[1]: Offset(5)})
    await plane.topics.delete(gone.id)
    assert sorted(await plane.log.moved(known)) == sorted([keys[0], keys[1], keys[3]])
    behind = [replace(one, leader_epoch=LeaderEpoch(one.leader_epoch + 1)) for one in known]
    assert keys[2] in await plane.log.moved(behind)
    went_back = [replace(one, high_watermark=Offset(77)) for one in known]
    assert keys[2] in await plane.log.moved(went_back)


async def test_unknown_and_deleted_partitions_have_no_state(
    plane: ControlPlane, topic: Topic
) -> None:
    gone = await plane.topics.create("gone", partition_count=1, configs={})
    await commit(plane, batch(part(gone)))
    await plane.topics.delete(gone.id)
    stranger = TopicPartition(new_topic_id(), PartitionIndex(0))
    found = await plane.log.find_batches(
        [span(k, 0) for k in (part(gone), stranger, part(topic, 7))]
    )
    assert [(each.state, list(each.rows)) for each in found] == [(None, [])] * 3
    assert await plane.log.find_batches([]) == []


async def test_the_row_that_crosses_the_budget_is_the_last(
    plane: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    await commit(plane, *(batch(key, size=100, gap=1) for _ in range(5)))
    budgets = (0, 1, 100, 101, 200, 500, 501)
    found = await plane.log.find_batches([span(key, 0, max_bytes) for max_bytes in budgets])
    assert [len(each.rows) for each in found] == [1, 1, 1, 2, 2, 5, 5]


async def test_spans_of_one_call_are_answered_in_their_order(
    plane: ControlPlane, topic: Topic
) -> None:
    await commit(plane, batch(part(topic, 0)), batch(part(topic, 1), 2), batch(part(topic, 2), 3))
    wanted = [span(part(topic, i), 0) for i in (2, 0, 1, 2)]
    found = await plane.log.find_batches(wanted)
    assert [each.rows[0].last_offset for each in found] == [2, 0, 1, 2]


async def test_hungry_spans_get_more_than_the_first_look(plane: ControlPlane, topic: Topic) -> None:
    key = part(topic)
    count = FIRST_LOOK_ROWS * 2 + 1
    await commit(plane, *(batch(key, size=10, gap=1) for _ in range(count)))
    spans = [span(key, 0), span(key, 0, 10 * FIRST_LOOK_ROWS), span(key, 5, 10 * 10), span(key, 15)]
    found = await plane.log.find_batches(spans)
    assert bases(found[0].rows) == list(range(count))
    assert bases(found[1].rows) == list(range(FIRST_LOOK_ROWS))
    assert bases(found[2].rows) == list(range(5, 15))
    assert bases(found[3].rows) == list(range(15, count))


async def test_an_answer_about_tiny_rows_is_bounded(plane: ControlPlane, topic: Topic) -> None:
    key = part(topic)
    await commit(plane, *(batch(key, size=1, gap=1) for _ in range(MAX_SPAN_ROWS + 5)))
    [found] = await plane.log.find_batches([span(key, 0)])
    assert bases(found.rows) == list(range(MAX_SPAN_ROWS))


class CountingConnection:
    """A connection that counts the lookups and the rows of `fetch_each`."""

    def __init__(self, inner: Connection) -> None:
        self.inner = inner
        self.lookups: list[int] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    async def fetch_each(self, sql: str, rows: Rows) -> list[list[Row]]:
        answers = await self.inner.fetch_each(sql, rows)
        self.lookups.append(sum(map(len, answers)))
        return answers


class CountingDatabase:
    def __init__(self, inner: Database) -> None:
        self.inner = inner
        self.lookups: list[int] = []

    async def read(self, work: Work[T]) -> T:
        async def counted(connection: Connection) -> T:
            counting = CountingConnection(connection)
            try:
                return await work(counting)  # type: ignore[arg-type]
            finally:
                self.lookups += counting.lookups

        return await self.inner.read(counted)


async def test_a_call_about_many_thin_partitions_is_bounded_as_a_whole(
    plane: ControlPlane, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that is far behind on all of them gets some rows of each, in two lookups."""
    monkeypatch.setattr(reads, "MAX_CALL_ROWS", 600)
    thin = await plane.topics.create("thin", partition_count=40, configs={})
    for _ in range(30):
        await commit(plane, *(batch(part(thin, i), size=10, gap=1) for i in range(40)))
    counting = CountingDatabase(database)
    log = LogLedger(counting, system_entropy)  # type: ignore[arg-type]
    spans = [span(part(thin, i), 0, 2**31 - 1) for i in range(40)]
    found = await log.find_batches(spans, max_bytes=2**24)
    assert len(counting.lookups) == 2
    assert 300 <= sum(counting.lookups) <= 600
    for each in found:
        assert bases(each.rows) == list(range(len(each.rows)))
        assert len(each.rows) > FIRST_LOOK_ROWS
    repeated = await log.find_batches(spans * 20, max_bytes=2**24)
    assert sum(len(each.rows) for each in repeated) == 800


async def test_spans_get_more_rows_only_as_far_as_they_fit_the_answer(
    plane: ControlPlane, database: Database, topic: Topic
) -> None:
    for _ in range(30):
        await commit(plane, *(batch(part(topic, i), size=10, gap=1) for i in range(3)))
    counting = CountingDatabase(database)
    log = LogLedger(counting, system_entropy)  # type: ignore[arg-type]
    spans = [span(part(topic, i), 0, 1000) for i in range(3)]
    first_look_bytes = 3 * FIRST_LOOK_ROWS * 10
    found = await log.find_batches(spans, max_bytes=first_look_bytes)
    assert [len(each.rows) for each in found] == [FIRST_LOOK_ROWS] * 3
    assert len(counting.lookups) == 1
    found = await log.find_batches(spans, max_bytes=first_look_bytes + 30)
    assert [len(each.rows) for each in found] == [FIRST_LOOK_ROWS + 1] * 3


async def test_rows_tell_everything_about_themselves(plane: ControlPlane, topic: Topic) -> None:
    key = part(topic, 1)
    made = block(batch(part(topic), size=77), batch(key, 3, size=50, timestamp=99))
    [[_, answer]] = await plane.log.commit_blocks([made])
    [found] = await plane.log.find_batches([span(key, 0)])
    assert list(found.rows) == [
        Coordinates(
            topic_id=topic.id,
            partition=PartitionIndex(1),
            base_offset=Offset(0),
            last_offset=Offset(2),
            object_id=made.object_id,
            object_key=made.key,
            byte_offset=77,
            byte_size=50,
            max_timestamp=99,
            timestamp_type=TimestampType.CREATE_TIME,
            committed_ms=answer.append_time_ms,
            leader_epoch=answer.leader_epoch,
            stamped=False,
        )
    ]


async def test_a_hole_is_never_skipped(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    await commit(plane, *(batch(key, gap=1) for _ in range(3)))
    await change(database, "DELETE FROM batches WHERE last_offset = 1")
    found = await plane.log.find_batches([span(key, 1), span(key, 2)])
    assert [bases(each.rows) for each in found] == [[], [2]]


async def test_offsets_outside_the_block_range_have_no_rows(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    await commit(plane, *(batch(key, gap=1) for _ in range(4)))
    await change(
        database,
        "UPDATE partitions SET block_start = 1, remote_end = 1, block_end = 3, write_tier = 'local'"
        " WHERE partition = 0",
    )
    found = await plane.log.find_batches([span(key, offset, 1) for offset in range(4)])
    assert [bases(each.rows) for each in found] == [[], [1], [2], []]


def at(key: TopicPartition, timestamp: int) -> TimeQuery:
    return TimeQuery(topic_id=key.topic_id, partition=key.partition, timestamp=timestamp)


async def test_find_by_time_gives_the_first_row_that_is_not_older(
    plane: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    await commit(plane, *(batch(key, gap=1, timestamp=t) for t in (10, 30, 20, 40)))
    found = await plane.log.find_by_time([at(key, t) for t in (0, 10, 11, 30, 31, 40, 41)])
    assert [row and row.base_offset for row in found] == [0, 0, 1, 1, 3, 3, None]
    assert await plane.log.find_by_time([at(part(topic, 1), 0), at(part(topic, 8), 0)]) == [
        None,
        None,
    ]


async def test_find_newest_gives_the_first_row_with_the_greatest_time(
    plane: ControlPlane, topic: Topic
) -> None:
    await commit(plane, *(batch(part(topic), gap=1, timestamp=t) for t in (10, 40, 20, 40)))
    found = await plane.log.find_newest([part(topic, 1), part(topic), part(topic, 8)])
    assert [row and row.base_offset for row in found] == [None, 1, None]


async def test_deleted_records_are_not_found_by_time(plane: ControlPlane, topic: Topic) -> None:
    key = part(topic)
    await commit(plane, *(batch(key, gap=1, timestamp=t) for t in (50, 10, 20)))
    await plane.log.delete_records({key: Offset(1)})
    found = await plane.log.find_by_time([at(key, 5), at(key, 30)])
    assert [row and row.base_offset for row in found] == [1, None]
    assert [row and row.base_offset for row in await plane.log.find_newest([key])] == [2]


async def test_all_coordinates_come_in_pages(plane: ControlPlane, topic: Topic) -> None:
    key = part(topic)
    await commit(plane, *(batch(key, 2, gap=1) for _ in range(5)))
    first = await plane.log.all_coordinates(key, limit=2)
    rest = await plane.log.all_coordinates(key, after=first[-1].last_offset, limit=10)
    assert bases(first) == [0, 2]
    assert bases(rest) == [4, 6, 8]
