"""Finding the records of segments and rows, as one partition."""

import asyncio
from typing import Any

import pytest
from tests.contract.control.building import batch, change, commit, part, span
from tests.contract.control.tiers import (
    bases,
    chain,
    end_of,
    finished,
    two_tiers,
)

from stratalog.control.log.model import TimeQuery
from stratalog.control.log.reads import MAX_SPAN_SEGMENTS, _find
from stratalog.control.plane import ControlPlane
from stratalog.control.segments.model import Segment
from stratalog.control.sql.database import Connection, Database, Row, Rows
from stratalog.control.topics.model import Topic
from stratalog.ids import Offset, TopicPartition

# Reading by offset.


@pytest.mark.parametrize(
    ("offset", "segments", "rows"),
    [
        (0, [0, 20, 40], [60, 70, 80, 90]),
        (19, [0, 20, 40], [60, 70, 80, 90]),
        (20, [20, 40], [60, 70, 80, 90]),
        (59, [40], [60, 70, 80, 90]),
        (60, [], [60, 70, 80, 90]),
        (99, [], [90]),
        (100, [], []),
        (-1, [], []),
    ],
)
async def test_an_answer_crosses_from_segments_to_rows(
    plane: ControlPlane, topic: Topic, offset: int, segments: list[int], rows: list[int]
) -> None:
    await two_tiers(plane, part(topic))
    [found] = await plane.log.find_batches([span(part(topic), offset)])
    assert bases(found) == (segments, rows)


@pytest.mark.parametrize(
    ("offset", "max_bytes", "segments", "rows"),
    [
        (0, 0, [0, 20], []),
        (0, 250, [0, 20], []),
        (0, 251, [0, 20, 40], []),
        (0, 500, [0, 20, 40], []),
        (0, 501, [0, 20, 40], [60]),
        (0, 601, [0, 20, 40], [60, 70]),
        (45, 0, [40], [60]),
        (45, 100, [40], [60]),
        (45, 101, [40], [60, 70]),
    ],
)
async def test_what_comes_after_the_first_segment_is_within_the_budget(
    plane: ControlPlane,
    topic: Topic,
    offset: int,
    max_bytes: int,
    segments: list[int],
    rows: list[int],
) -> None:
    await two_tiers(plane, part(topic))
    [found] = await plane.log.find_batches([span(part(topic), offset, max_bytes)])
    assert bases(found) == (segments, rows)


async def test_spans_of_both_tiers_are_answered_in_their_order(
    plane: ControlPlane, topic: Topic
) -> None:
    await two_tiers(plane, part(topic))
    await commit(plane, batch(part(topic, 1)))
    wanted = [
        span(part(topic, 1), 0),
        span(part(topic), 45, 1),
        span(part(topic, 7), 0),
        span(part(topic), 60, 1),
        span(part(topic), 5, 1),
    ]
    found = await plane.log.find_batches(wanted)
    assert [bases(each) for each in found] == [
        ([], [0]),
        ([40], [60]),
        ([], []),
        ([], [60]),
        ([0, 20], []),
    ]


async def test_an_answer_about_tiny_segments_is_bounded(plane: ControlPlane, topic: Topic) -> None:
    key, count = part(topic), MAX_SPAN_SEGMENTS + 2
    await commit(plane, *(batch(key, gap=1) for _ in range(count + 1)))
    for base in range(count):
        await chain(plane, key, base, base + 1)
    found = await plane.log.find_batches([span(key, offset) for offset in (0, 1, 2)])
    assert [bases(each) for each in found] == [
        (list(range(MAX_SPAN_SEGMENTS)), []),
        (list(range(1, MAX_SPAN_SEGMENTS + 1)), []),
        (list(range(2, count)), [count]),
    ]


async def test_a_hole_between_segments_is_never_skipped(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    await two_tiers(plane, part(topic))
    await change(database, "DELETE FROM segments WHERE base_offset = 20")
    found = await plane.log.find_batches([span(part(topic), offset) for offset in (5, 25, 45)])
    assert [bases(each) for each in found] == [
        ([0], []),
        ([], []),
        ([40], [60, 70, 80, 90]),
    ]


async def test_a_hole_at_the_end_of_the_segments_is_never_skipped(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    await two_tiers(plane, part(topic))
    await change(database, "DELETE FROM segments WHERE base_offset = 40")
    found = await plane.log.find_batches([span(part(topic), offset) for offset in (5, 45)])
    assert [bases(each) for each in found] == [([0, 20], []), ([], [])]


async def test_rows_do_not_follow_segments_that_end_before_them(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    """As while local files still hold the records between the two."""
    await two_tiers(plane, part(topic))
    await change(database, "DELETE FROM segments WHERE base_offset = 40")
    await change(database, "UPDATE partitions SET remote_end = 40 WHERE partition = 0")
    found = await plane.log.find_batches([span(part(topic), offset) for offset in (5, 40, 59, 60)])
    assert [bases(each) for each in found] == [
        ([0, 20], []),
        ([], []),
        ([], []),
        ([], [60, 70, 80, 90]),
    ]


async def test_segments_that_are_not_chained_are_not_found(
    plane: ControlPlane, topic: Topic
) -> None:
    await two_tiers(plane, part(topic))
    await finished(plane, part(topic), 60, 80, timestamp=9_000)
    [found] = await plane.log.find_batches([span(part(topic), 65)])
    assert bases(found) == ([], [60, 70, 80, 90])
    [newest] = await plane.log.find_newest([part(topic)])
    assert newest is not None
    assert newest.max_timestamp == 1_000


async def test_a_found_segment_tells_everything_about_itself(
    plane: ControlPlane, topic: Topic
) -> None:
    await two_tiers(plane, part(topic))
    [found] = await plane.log.find_batches([span(part(topic), 25)])
    assert list(found.segments) == await plane.segments.chained(
        part(topic), after=Offset(24), limit=10
    )


async def test_readers_see_every_offset_while_segments_replace_rows(
    plane: ControlPlane, other: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    for _ in range(15):
        await commit(plane, batch(key, 2))
    done = asyncio.Event()

    async def convert() -> None:
        for base in range(0, 30, 2):
            await chain(other, key, base, base + 2)
        done.set()

    async def read() -> int:
        answers = 0
        while not done.is_set():
            [found] = await plane.log.find_batches([span(key, 3)])
            assert end_of([*found.segments, *found.rows], 3) == 30
            answers += 1
        return answers

    answers, _ = await asyncio.gather(read(), convert())
    assert answers > 0


class CountingConnection:
    """A connection that notes the questions to `segments`."""

    def __init__(self, inner: Connection, about_segments: list[str]) -> None:
        self._inner = inner
        self._about_segments = about_segments

    async def fetch(self, sql: str, *args: Any, rows: Rows | None = None) -> list[Row]:
        return await self._inner.fetch(sql, *args, rows=rows)

    async def execute(self, sql: str, *args: Any, rows: Rows | None = None) -> int:
        return await self._inner.execute(sql, *args, rows=rows)

    async def fetch_each(self, sql: str, rows: Rows) -> list[list[Row]]:
        if "segments" in sql:
            self._about_segments.append(sql)
        return await self._inner.fetch_each(sql, rows)

    async def execute_each(self, sql: str, rows: Rows) -> None:
        await self._inner.execute_each(sql, rows)

    async def lock(self, name: str, *, shared: bool = False) -> None:
        await self._inner.lock(name, shared=shared)


async def test_readers_of_rows_do_not_pay_for_segments(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    await two_tiers(plane, part(topic))
    for offsets, asked in (((60, 99, 100, 101, -1), 0), ((60, 59, 0), 1)):
        about_segments: list[str] = []
        wanted = [span(part(topic), offset) for offset in offsets]
        await database.read(
            lambda connection, spans=wanted, seen=about_segments: _find(  # type: ignore[misc]
                CountingConnection(connection, seen), spans, None
            )
        )
        assert len(about_segments) == asked


# Reading by time.


def at(key: TopicPartition, timestamp: int) -> TimeQuery:
    return TimeQuery(topic_id=key.topic_id, partition=key.partition, timestamp=timestamp)


async def test_find_by_time_looks_at_segments_before_rows(
    plane: ControlPlane, topic: Topic
) -> None:
    key = part(topic)
    await two_tiers(plane, key, (500, 800, 700))
    await commit(plane, batch(key, timestamp=2_000))
    times = (0, 500, 501, 800, 801, 1_000, 1_001, 2_001)
    found = await plane.log.find_by_time([at(key, time) for time in times])
    assert [each and each.base_offset for each in found] == [0, 0, 20, 20, 60, 60, 100, None]
    assert [isinstance(each, Segment) for each in found[:5]] == [True] * 4 + [False]
    both = await plane.log.find_by_time([at(part(topic, 1), 0), at(key, 0), at(part(topic, 8), 0)])
    assert [each and each.base_offset for each in both] == [None, 0, None]


@pytest.mark.parametrize(
    ("timestamps", "newest"),
    [
        ((500, 800, 700), 60),
        ((500, 1_001, 700), 20),
        ((500, 1_000, 1_000), 20),
    ],
)
async def test_find_newest_gives_the_first_of_both_tiers(
    plane: ControlPlane, topic: Topic, timestamps: tuple[int, ...], newest: int
) -> None:
    await two_tiers(plane, part(topic), timestamps)
    found = await plane.log.find_newest([part(topic, 1), part(topic)])
    assert [each and each.base_offset for each in found] == [None, newest]


async def test_deleted_segments_are_not_found_by_time(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    await two_tiers(plane, key, (9_000, 800, 700))
    # An older broker moves the start and knows nothing of segments.
    await change(database, "UPDATE partitions SET log_start = 20 WHERE partition = 0")
    [newest] = await plane.log.find_newest([key])
    found = await plane.log.find_by_time([at(key, 0), at(key, 8_000)])
    assert newest is not None
    assert newest.base_offset == 60
    assert [each and each.base_offset for each in found] == [20, None]
