"""Snapshots for scans: whole ranges, from one moment, kept by a lease."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from tests.contract.control.building import batch, change, commit, part
from tests.contract.control.segment_building import UPLOADED, segment
from tests.contract.control.tiers import end_of, only_segments, two_tiers

from stratalog.control.errors import ControlUnavailableError
from stratalog.control.plane import ControlPlane
from stratalog.control.scans.model import EARLIEST, LATEST, ScannedPartition, ScanSnapshot, ScanWish
from stratalog.control.sql.database import Connection, Database, Row, Rows, Work
from stratalog.control.topics.model import AdoptedSegment, PartitionToAdopt, Topic, TopicToAdopt
from stratalog.ids import Offset, PartitionIndex, TopicId, TopicPartition, new_topic_id

T = TypeVar("T")


def wish(key: TopicPartition, start: int = EARLIEST, end: int = LATEST) -> ScanWish:
    return ScanWish(key, Offset(start), Offset(end))


async def snapshot(plane: ControlPlane, *wishes: ScanWish) -> ScanSnapshot:
    return await plane.scans.take_snapshot(wishes, holder="scan", duration_ms=60_000)


async def scan(plane: ControlPlane, *wishes: ScanWish) -> list[ScannedPartition]:
    partitions = (await snapshot(plane, *wishes)).partitions
    found = [each for each in partitions if each is not None]
    assert len(found) == len(partitions)
    return found


def pieces(found: ScannedPartition) -> tuple[list[int], list[int]]:
    """The first offsets of the segments and of the rows."""
    return (
        [each.base_offset for each in found.segments],
        [each.base_offset for each in found.rows],
    )


async def test_a_whole_partition_is_all_its_segments_and_rows(
    plane: ControlPlane, topic: Topic
) -> None:
    await two_tiers(plane, part(topic))
    [found] = await scan(plane, wish(part(topic)))
    assert pieces(found) == ([0, 20, 40], [60, 70, 80, 90])
    assert end_of([*found.segments, *found.rows], 0) == found.state.high_watermark == 100
    assert list(found.noted) == []
    assert found.segments[0].uploaded is not None
    assert found.rows[0].object_key.startswith("blocks/")


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 1, ([0], [])),
        (19, 20, ([0], [])),
        (19, 21, ([0, 20], [])),
        (20, 40, ([20], [])),
        (59, 60, ([40], [])),
        (59, 61, ([40], [60])),
        (60, 61, ([], [60])),
        (60, 70, ([], [60])),
        (69, 71, ([], [60, 70])),
        (99, 100, ([], [90])),
        (99, LATEST, ([], [90])),
        (EARLIEST, 20, ([0], [])),
        (45, 75, ([40], [60, 70])),
    ],
)
async def test_a_range_is_what_overlaps_with_it_and_nothing_else(
    plane: ControlPlane, topic: Topic, start: int, end: int, expected: object
) -> None:
    await two_tiers(plane, part(topic))
    [found] = await scan(plane, wish(part(topic), start, end))
    assert pieces(found) == expected


@pytest.mark.parametrize(
    ("start", "end"), [(30, 30), (31, 30), (LATEST, LATEST), (EARLIEST, EARLIEST), (100, 900)]
)
async def test_an_empty_range_has_its_state_and_nothing_to_read(
    plane: ControlPlane, topic: Topic, start: int, end: int
) -> None:
    await two_tiers(plane, part(topic))
    [found] = await scan(plane, wish(part(topic), start, end))
    assert pieces(found) == ([], [])
    assert found.state.high_watermark == 100


async def test_what_was_deleted_is_not_in_the_range(plane: ControlPlane, topic: Topic) -> None:
    await two_tiers(plane, part(topic))
    await plane.log.delete_records({part(topic): Offset(25)})
    for start in (EARLIEST, 0, 24, 25):
        [found] = await scan(plane, wish(part(topic), start, 900))
        assert pieces(found) == ([20, 40], [60, 70, 80, 90])
        assert found.state.log_start == 25
    await plane.log.delete_records({part(topic): Offset(75)})
    [found] = await scan(plane, wish(part(topic), 0))
    assert pieces(found) == ([], [70, 80, 90])


async def test_rows_that_segments_have_replaced_are_left_out(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    key = part(topic)
    await two_tiers(plane, key)
    # As after a crash between moving the boundary and removing the rows.
    await change(
        database,
        "UPDATE partitions SET block_start = 80, remote_end = 80 WHERE topic_id = $1"
        " AND partition = $2",
        *key,
    )
    [found] = await scan(plane, wish(key))
    assert pieces(found) == ([0, 20, 40], [80, 90])


async def test_a_topic_without_blocks_is_scanned_from_its_segments(
    plane: ControlPlane, topic: Topic, database: Database
) -> None:
    await only_segments(plane, database, part(topic))
    [found] = await scan(plane, wish(part(topic), 20))
    assert pieces(found) == ([20, 40], [])


async def test_each_wish_is_answered_in_its_place(plane: ControlPlane, topic: Topic) -> None:
    await two_tiers(plane, part(topic))
    await commit(plane, batch(part(topic, 1), 5))
    gone = await plane.topics.create("gone", partition_count=1, configs={})
    await commit(plane, batch(part(gone)))
    await plane.topics.delete(gone.id)
    stranger = TopicPartition(new_topic_id(), PartitionIndex(0))
    wishes = [
        wish(part(topic), 90),
        wish(stranger),
        wish(part(topic, 1)),
        wish(part(gone)),
        wish(part(topic, 2)),
        wish(part(topic, 7)),
        wish(part(topic), 0, 20),
    ]
    found = (await snapshot(plane, *wishes)).partitions
    assert [each and pieces(each) for each in found] == [
        ([], [90]),
        None,
        ([], [0]),
        None,
        ([], []),
        None,
        ([0], []),
    ]
    assert [each and each.state.topic_partition for each in found[:3]] == [
        part(topic),
        None,
        part(topic, 1),
    ]
    assert (await snapshot(plane)).partitions == []


def adopted(topic_id: TopicId, base: int, last: int, *, aborted: bool = False) -> AdoptedSegment:
    key = TopicPartition(topic_id, PartitionIndex(0))
    uploaded = replace(UPLOADED, has_aborted=aborted)
    return AdoptedSegment(segment=segment(key, base, last), uploaded=uploaded)


async def adopt(plane: ControlPlane, ranges: Sequence[tuple[int, int, bool]]) -> TopicPartition:
    topic_id = new_topic_id()
    partition = PartitionToAdopt(
        partition=PartitionIndex(0),
        log_start=Offset(ranges[0][0]),
        segments=[adopted(topic_id, base, last, aborted=noted) for base, last, noted in ranges],
        epochs=(),
        producers=(),
    )
    await plane.topics.adopt(
        TopicToAdopt(topic_id=topic_id, name="kafka", configs={}, partitions=[partition])
    )
    return TopicPartition(topic_id, PartitionIndex(0))


async def test_segments_that_overlap_come_in_the_order_of_the_chain(plane: ControlPlane) -> None:
    # The second begins before the first, and the fourth inside the third.
    chain = [(10, 19, False), (5, 29, False), (30, 39, False), (34, 49, False)]
    key = await adopt(plane, chain)
    [whole, one, inside, both] = await scan(
        plane, wish(key), wish(key, 10, 20), wish(key, 35, 40), wish(key, 39, 41)
    )
    assert pieces(whole)[0] == [10, 5, 30, 34]
    # Of two segments that hold an offset, the one that ends first serves it.
    assert pieces(one)[0] == [10]
    assert pieces(inside)[0] == [30]
    assert pieces(both)[0] == [30, 34]


async def test_aborted_transactions_are_noted_from_the_start_of_the_range_on(
    plane: ControlPlane,
) -> None:
    chain = [(0, 9, True), (10, 19, False), (20, 29, True), (30, 39, False), (40, 49, True)]
    key = await adopt(plane, chain)

    async def noted(start: int, end: int) -> list[int]:
        [found] = await scan(plane, wish(key, start, end))
        return [each.base_offset for each in found.noted]

    assert await noted(0, 50) == [0, 20, 40]
    assert await noted(9, 10) == [0, 20, 40]
    assert await noted(10, 15) == [20, 40]
    assert await noted(29, 30) == [20, 40]
    assert await noted(30, 31) == [40]
    assert await noted(30, 30) == []


async def test_a_snapshot_comes_with_a_lease_that_can_be_renewed(
    plane: ControlPlane, topic: Topic
) -> None:
    lease = (await plane.scans.take_snapshot([], holder="a job", duration_ms=5_000)).lease
    assert (lease.holder, lease.expires_ms - lease.started_ms) == ("a job", 5_000)
    assert await plane.scans.oldest_lease_ms() == lease.started_ms
    await plane.scans.renew_lease(lease.lease_id, duration_ms=60_000)
    await plane.scans.release_lease(lease.lease_id)
    assert await plane.scans.oldest_lease_ms() is None


async def test_the_oldest_lease_is_one_that_lives(plane: ControlPlane, database: Database) -> None:
    assert await plane.scans.oldest_lease_ms() is None
    for started_ms, expires_ms in ((500, 9_000_000_000_000), (700, 9_000_000_000_000), (100, 900)):
        lease = await plane.scans.take_lease("scan", duration_ms=60_000)
        await change(
            database,
            "UPDATE leases SET started_ms = $1, expires_ms = $2 WHERE lease_id = $3",
            started_ms,
            expires_ms,
            lease.lease_id,
        )
    assert await plane.scans.oldest_lease_ms() == 500


class Watched:
    """A database that notes the calls of its readers, and may refuse to be read."""

    def __init__(self, inner: Database) -> None:
        self._inner = inner
        self.calls: list[str] = []
        self.failure: BaseException | None = None

    @property
    def url(self) -> str:
        return self._inner.url

    async def read(self, work: Work[T]) -> T:
        if self.failure is not None:
            raise self.failure
        return await self._inner.read(lambda connection: work(Noted(connection, self.calls)))

    async def write(self, work: Work[T]) -> T:
        return await self._inner.write(work)

    async def close(self) -> None:
        await self._inner.close()

    @property
    def plane(self) -> ControlPlane:
        return ControlPlane(self, os.urandom)


class Noted:
    """A transaction that notes its calls."""

    def __init__(self, inner: Connection, calls: list[str]) -> None:
        self._inner = inner
        self._calls = calls

    async def fetch(self, sql: str, *args: Any, rows: Rows | None = None) -> list[Row]:
        self._calls.append("fetch")
        return await self._inner.fetch(sql, *args, rows=rows)

    async def execute(self, sql: str, *args: Any, rows: Rows | None = None) -> int:
        self._calls.append("execute")
        return await self._inner.execute(sql, *args, rows=rows)

    async def fetch_each(self, sql: str, rows: Rows) -> list[list[Row]]:
        self._calls.append("fetch_each")
        return await self._inner.fetch_each(sql, rows)

    async def execute_each(self, sql: str, rows: Rows) -> None:
        self._calls.append("execute_each")
        await self._inner.execute_each(sql, rows)

    async def lock(self, name: str, *, shared: bool = False) -> None:
        self._calls.append("lock")
        await self._inner.lock(name, shared=shared)


@pytest.mark.parametrize("failure", [ControlUnavailableError("away"), KeyboardInterrupt()])
async def test_a_snapshot_that_cannot_be_read_gives_its_lease_back(
    plane: ControlPlane, database: Database, failure: BaseException
) -> None:
    watched = Watched(database)
    watched.failure = failure
    with pytest.raises(type(failure)):
        await watched.plane.scans.take_snapshot([], holder="scan", duration_ms=60_000)
    assert await plane.scans.oldest_lease_ms() is None


async def test_many_partitions_take_as_many_statements_as_one(
    plane: ControlPlane, database: Database
) -> None:
    topic = await plane.topics.create("wide", partition_count=40, configs={})
    keys = [part(topic, index) for index in range(40)]
    await commit(plane, *(batch(key) for key in keys[:-1]))
    await two_tiers(plane, keys[-1])
    watched = Watched(database)
    await snapshot(watched.plane, *map(wish, keys))
    assert watched.calls == ["fetch", "fetch_each", "fetch_each", "fetch_each"]


async def test_a_snapshot_is_taken_after_its_lease_has_begun(
    plane: ControlPlane, database: Database, topic: Topic
) -> None:
    """An object that is seen and deleted at once is marked late enough to outlive the lease."""
    key = part(topic)
    await two_tiers(plane, key)

    class DeletesFirst(Watched):
        async def read(self, work: Work[Any]) -> Any:
            assert await plane.scans.oldest_lease_ms() is not None
            answer = await super().read(work)
            await plane.log.delete_records({key: Offset(-1)})
            return answer

    [found] = await scan(DeletesFirst(database).plane, wish(key))
    assert pieces(found) == ([0, 20, 40], [60, 70, 80, 90])
    # The blocks of the segments were marked before the lease began, if not in its millisecond.
    marked = {each.object_id for each in await plane.objects.marked(grace_ms=0, limit=100)}
    assert not marked & {row.object_id for row in found.rows}
    assert await plane.segments.doomed(grace_ms=0, limit=100) == []
