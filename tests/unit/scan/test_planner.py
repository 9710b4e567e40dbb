"""The planner of scans: plans for requests, and refusals."""

from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from tests.unit.scan.rig import NOW_MS, ScanRig

from stratalog.batch.header import Codec
from stratalog.control.scans.model import EARLIEST, LATEST
from stratalog.control.topics.model import Topic
from stratalog.ids import Offset, PartitionIndex, TopicPartition
from stratalog.opening.workers import WorkerKeys, worker_access
from stratalog.scan import planner
from stratalog.scan.errors import (
    BeyondEndError,
    NoSuchTimeError,
    PartitionNotFoundError,
    RecordsLostError,
    ScanRefusedError,
    TopicNotFoundError,
    TopicReplacedError,
)
from stratalog.scan.extents import RowExtent, SegmentExtent
from stratalog.scan.model import AtTime, Positions, RowFilter, ScanColumn, ScanPlan, ScanRequest
from stratalog.scan.partition_selection import SelectedPartition, select_partitions
from stratalog.scan.scan_stores import shared_scan_stores
from stratalog.scan.split_reader import read_batch_groups


def at(offset: int, **others: int) -> Positions:
    """Give this offset to all partitions, except to p0, p1, ... of `orders`."""
    by_partition: dict[tuple[str, int], Any] = {
        ("orders", int(name[1:])): Offset(one) for name, one in others.items()
    }
    return Positions(default=Offset(offset), by_partition=by_partition)


def time(timestamp_ms: int, **how: bool) -> Positions:
    return Positions(default=AtTime(timestamp_ms, **how))


async def two_tiers(rig: ScanRig) -> None:
    """60 records in a segment, then 40 in a block."""
    topic = await rig.topic()
    await rig.write(topic, {0: [10, 20]})
    await rig.write(topic, {0: [30]})
    await rig.convert(topic)
    await rig.write(topic, {0: [15, 25]})


async def test_a_scan_reads_every_offset_of_both_tiers_in_order(rig: ScanRig) -> None:
    await two_tiers(rig)
    rows = await rig.rows()
    assert [row["offset"] for row in rows] == list(range(100))
    assert [row["tier"] for row in rows] == ["remote"] * 60 + ["block"] * 40


async def test_a_range_is_read_from_its_start_to_before_its_end(rig: ScanRig) -> None:
    await two_tiers(rig)
    for start, end in [(0, 100), (5, 6), (59, 61), (60, 61), (99, 100), (12, 73)]:
        found = await rig.offsets(starting=at(start), ending=at(end))
        assert found == list(range(start, end))


@pytest.mark.parametrize(("start", "end"), [(40, 40), (50, 40), (100, 100)])
async def test_a_start_that_is_not_before_the_end_reads_nothing(
    rig: ScanRig, start: int, end: int
) -> None:
    await two_tiers(rig)
    plan = await rig.plan(starting=at(start), ending=at(end))
    assert not plan.splits
    assert plan.ranges[0].start == plan.ranges[0].end == start


async def test_earliest_and_latest_are_the_ends_also_the_other_way_round(rig: ScanRig) -> None:
    await two_tiers(rig)
    assert await rig.offsets(starting=at(LATEST), ending=at(LATEST)) == []
    assert await rig.offsets(starting=at(EARLIEST), ending=at(EARLIEST)) == []
    assert len(await rig.offsets(starting=at(EARLIEST), ending=at(LATEST))) == 100


async def test_an_offset_beyond_the_end_is_refused_and_the_end_itself_is_not(rig: ScanRig) -> None:
    await two_tiers(rig)
    for request in ({"starting": at(101)}, {"ending": at(101)}):
        with pytest.raises(BeyondEndError, match=r"orders-0 .* 101, but ends at 100.*failOnData"):
            await rig.plan(**request)
    assert await rig.offsets(starting=at(100)) == []
    assert len(await rig.offsets(ending=at(101), fail_on_data_loss=False)) == 100


async def test_a_start_that_was_deleted_is_an_error_unless_that_is_allowed(rig: ScanRig) -> None:
    await two_tiers(rig)
    topic = (await rig.control.topics.all())[0]
    key = TopicPartition(topic.id, PartitionIndex(0))
    await rig.control.log.delete_records({key: Offset(37)})
    with pytest.raises(RecordsLostError, match=r"from offset 36, but begins at 37.*failOnDataLoss"):
        await rig.plan(starting=at(36))
    assert (await rig.offsets(starting=at(37)))[0] == 37
    assert (await rig.offsets(starting=at(36), fail_on_data_loss=False))[0] == 37
    assert (await rig.offsets())[0] == 37


async def test_a_refused_scan_keeps_no_lease(rig: ScanRig) -> None:
    await two_tiers(rig)
    with pytest.raises(BeyondEndError):
        await rig.plan(starting=at(101))
    assert await rig.control.scans.oldest_lease_ms() is None
    await rig.plan()
    assert await rig.control.scans.oldest_lease_ms() is not None


async def test_committed_reads_end_at_the_last_stable_offset(
    rig: ScanRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await two_tiers(rig)
    take_snapshot = rig.control.scans.take_snapshot

    async def unstable(*args: Any, **how: Any) -> Any:
        snapshot = await take_snapshot(*args, **how)
        [one] = snapshot.partitions
        assert one is not None
        state = replace(one.state, last_stable=Offset(80))
        return replace(snapshot, partitions=[replace(one, state=state)])

    monkeypatch.setattr(rig.control.scans, "take_snapshot", unstable)
    assert (await rig.offsets())[-1] == 79
    assert (await rig.offsets(ending=at(90)))[-1] == 79
    assert (await rig.offsets(committed=False))[-1] == 99


async def test_topics_are_found_by_name_by_pattern_and_by_assignment(rig: ScanRig) -> None:
    for name in ("orders", "orders-eu", "payments"):
        topic = await rig.topic(name, partitions=2)
        await rig.write(topic, {0: [3], 1: [3]})

    async def found(**request: Any) -> set[tuple[str, int]]:
        plan = await rig.plan(**request)
        return {(one.topic, int(one.partition)) for one in plan.ranges}

    both = {("orders", 0), ("orders", 1), ("payments", 0), ("payments", 1)}
    assert await found(topics=["payments", "orders"]) == both
    assert await found(pattern="orders|pay.*") == both
    assert await found(pattern="order") == set()
    assert await found(assign={"orders": [1]}) == {("orders", 1)}
    rows = RowFilter(partitions=frozenset([1, 7]))
    assert await found(topics=["orders", "payments"], rows=rows) == {("orders", 1), ("payments", 1)}
    assert await found(rows=RowFilter(first_partition=1)) == {("orders", 1)}
    assert await found(rows=RowFilter(end_partition=1)) == {("orders", 0)}
    assert await found(rows=RowFilter(first_partition=1, end_partition=1)) == set()


async def test_what_does_not_exist_is_named_with_what_is_near(rig: ScanRig) -> None:
    await rig.topic("orders", partitions=2)
    with pytest.raises(TopicNotFoundError, match="no topic 'ordres'; did you mean 'orders'"):
        await rig.plan(topics=["ordres"])
    with pytest.raises(PartitionNotFoundError, match="no partition 2: they are 0 to 1"):
        await rig.plan(assign={"orders": [0, 2]})
    with pytest.raises(PartitionNotFoundError, match="no partition 2"):
        await rig.plan(starting=at(EARLIEST, p2=5))
    positions = Positions(default=EARLIEST, by_partition={("other", 0): EARLIEST})
    with pytest.raises(TopicNotFoundError, match="given for other-0"):
        await rig.plan(ending=positions)


async def test_a_request_that_contradicts_itself_is_refused(rig: ScanRig) -> None:
    await rig.topic()
    with pytest.raises(ScanRefusedError, match="one way"):
        await rig.plan(topics=["orders"], pattern="o.*")
    with pytest.raises(ScanRefusedError, match="one way"):
        await rig.scanner.plan(ScanRequest())
    with pytest.raises(ScanRefusedError, match="at least one column"):
        await rig.plan(columns=[])
    with pytest.raises(ScanRefusedError, match="no regular expression"):
        await rig.plan(pattern="(")


async def test_a_time_stands_for_the_first_record_that_is_not_older(rig: ScanRig) -> None:
    await two_tiers(rig)
    for first, end in [(0, 100), (7, 65), (60, 61), (33, 34)]:
        starting, ending = time(NOW_MS + 1000 * first - 999), time(NOW_MS + 1000 * end)
        found = await rig.offsets(starting=starting, ending=ending)
        assert found == list(range(first, end))


async def test_a_time_after_the_last_record_is_the_end_or_an_error(rig: ScanRig) -> None:
    await two_tiers(rig)
    assert await rig.offsets(starting=time(NOW_MS + 99_001)) == []
    assert await rig.offsets(starting=time(NOW_MS + 99_000, or_latest=False)) == [99]
    with pytest.raises(NoSuchTimeError, match="orders-0 has no record at or after"):
        await rig.plan(starting=time(NOW_MS + 99_001, or_latest=False))


async def test_resolve_gives_an_offset_for_every_partition_and_takes_no_lease(
    rig: ScanRig,
) -> None:
    topic = await rig.topic(partitions=3)
    await rig.write(topic, {0: [10], 1: [20]})
    request = ScanRequest(topics=["orders"])
    both = [at(LATEST, p1=7), time(NOW_MS + 12_000)]
    found = await rig.scanner.resolve(request, both)
    assert found.topic_ids == {"orders": topic.id}
    assert list(found.offsets) == [
        {("orders", 0): 10, ("orders", 1): 7, ("orders", 2): 0},
        {("orders", 0): 10, ("orders", 1): 2, ("orders", 2): 0},
    ]
    await rig.control.log.delete_records({TopicPartition(topic.id, PartitionIndex(0)): Offset(4)})
    [earliest] = (await rig.scanner.resolve(request, [at(EARLIEST)])).offsets
    assert earliest["orders", 0] == 4
    assert await rig.control.scans.oldest_lease_ms() is None


def delete_when_chosen(rig: ScanRig, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic goes between the two looks of a planner."""

    async def choose_and_delete(*given: Any) -> list[SelectedPartition]:
        chosen = await select_partitions(*given)
        await rig.control.topics.delete(topic.id)
        return chosen

    monkeypatch.setattr(planner, "select_partitions", choose_and_delete)


async def test_a_topic_that_goes_while_a_pattern_is_resolved_does_not_match_it(
    rig: ScanRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, gone = await rig.topic("orders"), await rig.topic("other", partitions=2)
    await rig.write(kept, {0: [10]})
    delete_when_chosen(rig, gone, monkeypatch)
    found = await rig.scanner.resolve(ScanRequest(pattern="o.*"), [at(LATEST), at(EARLIEST)])
    assert list(found.offsets) == [{("orders", 0): 10}, {("orders", 0): 0}]
    assert found.topic_ids == {"orders": kept.id}


@pytest.mark.parametrize("how", [{"topics": ["orders"]}, {"assign": {"orders": [0]}}])
async def test_a_topic_that_goes_while_it_is_resolved_by_name_is_told(
    rig: ScanRig, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    delete_when_chosen(rig, await rig.topic("orders"), monkeypatch)
    with pytest.raises(TopicNotFoundError, match="orders-0 is gone: its topic was deleted"):
        await rig.scanner.resolve(ScanRequest(**how), [at(LATEST)])


async def test_a_topic_that_was_made_anew_is_not_the_one_that_was_asked_for(rig: ScanRig) -> None:
    old = await rig.topic()
    await rig.write(old, {0: [5]})
    assert await rig.offsets(topic_ids={"orders": old.id, "other": old.id}) == [0, 1, 2, 3, 4]
    await rig.control.topics.delete(old.id)
    new = await rig.topic()
    await rig.write(new, {0: [5]})
    with pytest.raises(TopicReplacedError, match="'orders' was deleted and created again"):
        await rig.plan(topic_ids={"orders": old.id})
    assert await rig.offsets(topic_ids={"orders": new.id}) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("mode", ["plain", "zstd", "aes", "both"])
async def test_every_batch_is_in_one_split_whatever_the_size(rig: ScanRig, mode: str) -> None:
    topic = await rig.topic(partitions=2)
    for number in range(3):
        await rig.write(topic, {0: [5, 1, 9], 1: [1, 1]}, codec=list(Codec)[number])
        await rig.convert(topic, 0, mode=mode)
    await rig.write(topic, {0: [4], 1: [2]})
    expected = [(0, offset) for offset in range(49)] + [(1, offset) for offset in range(8)]
    states = await rig.control.log.topic_partitions(topic.id)
    for split_bytes in (7, 61, 300, 999, 10**9):
        plan = await rig.plan(split_bytes=split_bytes)
        rows = rig.rows_of(plan.splits)
        assert [(row["partition"], row["offset"]) for row in rows] == expected
        size_bytes = sum(split.size_bytes for split in plan.splits)
        assert size_bytes == sum(state.size_bytes for state in states)


async def test_thin_partitions_share_a_split(rig: ScanRig) -> None:
    topic = await rig.topic(partitions=40)
    await rig.write(topic, {partition: [2] for partition in range(40)})
    plan = await rig.plan()
    [split] = plan.splits
    assert [int(one.partition) for one in split.stretches] == list(range(40))
    assert len(rig.rows_of([split])) == 80


async def test_a_thick_partition_is_divided_into_splits_of_the_same_size(rig: ScanRig) -> None:
    topic = await rig.topic(partitions=2)
    await rig.write(topic, {0: [10] * 100, 1: [1]})
    await rig.convert(topic, 0)
    sizes = [split.size_bytes for split in (await rig.plan(split_bytes=10_000)).splits]
    assert max(sizes) - min(sizes) < 100
    assert max(sizes) <= 10_000
    assert len((await rig.plan(min_splits=7)).splits) == 7


async def test_more_splits_than_there_is_anything_to_divide_are_not_made(rig: ScanRig) -> None:
    topic = await rig.topic()
    await rig.write(topic, {0: [1]})
    assert len((await rig.plan(min_splits=1000)).splits) == 1


def offsets_by_split(rig: ScanRig, plan: ScanPlan) -> list[list[int]]:
    return [[row["offset"] for row in rig.rows_of([split])] for split in plan.splits]


@pytest.mark.parametrize("converted", [False, True])
async def test_no_split_has_more_offsets_than_it_may(rig: ScanRig, converted: bool) -> None:
    """However uneven the sizes of records are."""
    topic = await rig.topic()
    await rig.write(topic, {0: [10] * 5}, value_bytes=20_000)
    await rig.write(topic, {0: [1000]}, value_bytes=10)
    if converted:
        await rig.convert(topic)
    for most, count in [(100, 11), (349, 4), (1049, 2), (1050, 1)]:
        plan = await rig.plan(max_split_offsets=most, columns=[ScanColumn.OFFSET])
        found = offsets_by_split(rig, plan)
        assert len(found) == count
        assert max(map(len, found)) <= most
        assert list(chain(*found)) == list(range(1050))


@pytest.mark.parametrize("converted", [False, True])
async def test_there_are_as_many_splits_as_were_asked_for(rig: ScanRig, converted: bool) -> None:
    topic = await rig.topic()
    await rig.write(topic, {0: [300]}, value_bytes=10)
    if converted:
        await rig.convert(topic)
    for asked, made in [(4, 4), (7, 7), (300, 300), (301, 300)]:
        plan = await rig.plan(min_splits=asked, columns=[ScanColumn.OFFSET])
        assert len(plan.splits) == made
        assert list(chain(*offsets_by_split(rig, plan))) == list(range(300))


async def test_of_a_segment_a_split_reads_about_its_own_offsets(rig: ScanRig) -> None:
    topic = await rig.topic()
    await rig.write(topic, {0: [10] * 100})
    await rig.convert(topic)
    plan = await rig.plan(max_split_offsets=50, columns=[ScanColumn.OFFSET])
    log_bytes = plan.splits[0].size_bytes
    place = shared_scan_stores(worker_access(rig.settings, WorkerKeys.OPENING))
    for number, split in enumerate(plan.splits):
        chunks = list(read_batch_groups(split, place))
        assert sum(len(chunk.data) for chunk in chunks) < log_bytes / 10
        assert offsets_by_split(rig, replace(plan, splits=[split])) == [
            list(range(50 * number, 50 * number + 50))
        ]


async def test_splits_by_offsets_keep_to_their_bytes_as_well(rig: ScanRig) -> None:
    topic = await rig.topic(partitions=2)
    await rig.write(topic, {0: [10] * 20, 1: [1] * 3}, value_bytes=1000)
    await rig.convert(topic)
    await rig.write(topic, {0: [10]}, value_bytes=1000)
    plan = await rig.plan(max_split_offsets=200, split_bytes=60_000, columns=[ScanColumn.OFFSET])
    found = offsets_by_split(rig, plan)
    assert max(map(len, found)) <= 60
    assert list(chain(*found)) == [*range(210), *range(3)]


async def test_neighbouring_rows_of_one_object_are_read_as_one(rig: ScanRig) -> None:
    topic = await rig.topic()
    await rig.write(topic, {0: [1000] * 30}, value_bytes=60)
    plan = await rig.plan()
    [state] = await rig.control.log.topic_partitions(topic.id)
    rows = await rig.control.log.all_coordinates(state.topic_partition, limit=100)
    assert len(rows) > 1
    [extent] = plan.splits[0].stretches[0].extents
    assert isinstance(extent, RowExtent)
    assert (extent.byte_size, extent.last_offset) == (state.size_bytes, 29_999)
    assert len(await rig.offsets()) == 30_000


async def test_rows_of_different_commits_are_not_joined(rig: ScanRig) -> None:
    topic = await rig.topic()
    await rig.write(topic, {0: [5]}, append_time=True)
    await rig.write(topic, {0: [5]}, append_time=True)
    assert len((await rig.plan()).splits[0].stretches[0].extents) == 2


async def test_older_segments_and_rows_are_not_read_for_a_time(rig: ScanRig) -> None:
    topic = await rig.topic()
    for _ in range(3):
        await rig.write(topic, {0: [10]})
        await rig.convert(topic)
    for _ in range(3):
        await rig.write(topic, {0: [10]})
    for first, extents in [(0, 6), (9, 6), (10, 5), (29, 4), (30, 3), (59, 1)]:
        rows = RowFilter(first_timestamp_ms=NOW_MS + 1000 * first)
        plan = await rig.plan(rows=rows)
        assert len(plan.splits[0].stretches[0].extents) == extents
        assert [row["offset"] for row in rig.rows_of(plan.splits)] == list(range(first, 60))
    assert not (await rig.plan(rows=RowFilter(first_timestamp_ms=NOW_MS + 59_001))).splits


async def test_inside_the_first_segment_the_indexes_tell_where_to_begin(
    rig: ScanRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stratalog.scan.extent_planner.NARROWED_BYTES", 0)
    topic = await rig.topic()
    await rig.write(topic, {0: [10] * 10})
    await rig.convert(topic)
    [segment] = (await rig.plan()).splits[0].stretches[0].extents
    for request in (
        {"rows": RowFilter(first_timestamp_ms=NOW_MS + 55_000)},
        {"starting": at(55)},
        {"rows": RowFilter(first_offset=55)},
    ):
        plan = await rig.plan(**request)
        [extent] = plan.splits[0].stretches[0].extents
        assert isinstance(extent, SegmentExtent)
        assert extent.byte_size <= segment.byte_size * 0.65
        assert [row["offset"] for row in rig.rows_of(plan.splits)] == list(range(55, 100))
    plan = await rig.plan(starting=at(31), ending=at(39))
    [extent] = plan.splits[0].stretches[0].extents
    assert extent.byte_size <= segment.byte_size * 0.4
    assert [row["offset"] for row in rig.rows_of(plan.splits)] == list(range(31, 39))


async def test_a_time_far_ahead_does_not_hide_where_the_real_beginning_is(
    rig: ScanRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stratalog.scan.extent_planner.NARROWED_BYTES", 0)
    topic = await rig.topic()
    rig.written = 10_000
    await rig.write(topic, {0: [1]})
    rig.written = 1
    await rig.write(topic, {0: [9]})
    await rig.convert(topic)
    for _ in range(2):
        await rig.write(topic, {0: [10] * 10})
        await rig.convert(topic)
    whole = (await rig.plan()).splits[0].stretches[0].extents
    plan = await rig.plan(rows=RowFilter(first_timestamp_ms=NOW_MS + 85_000))
    ahead, first, later = plan.splits[0].stretches[0].extents
    assert ahead.byte_size == whole[0].byte_size
    assert first.byte_size < whole[1].byte_size / 2
    assert later.byte_size == whole[2].byte_size
    assert [row["offset"] for row in rig.rows_of(plan.splits)] == [0, *range(85, 210)]


async def test_the_end_of_a_time_drops_rows_of_the_brokers_time_only(rig: ScanRig) -> None:
    topic = await rig.topic("own")
    await rig.write(topic, {0: [10]})
    await rig.write(topic, {0: [10]})
    rows = RowFilter(end_timestamp_ms=NOW_MS + 5000)
    plan = await rig.plan(topics=["own"], rows=rows)
    assert len(plan.splits[0].stretches[0].extents) == 2
    assert [row["offset"] for row in rig.rows_of(plan.splits)] == list(range(5))
    topic = await rig.topic("broker")
    await rig.write(topic, {0: [10]}, append_time=True)
    await rig.write(topic, {0: [10]}, append_time=True)
    assert not (await rig.plan(topics=["broker"], rows=rows)).splits


async def test_the_end_of_a_time_drops_segments_of_the_brokers_time_only(rig: ScanRig) -> None:
    topic = await rig.topic()
    for append_time in (False, True, True):
        await rig.write(topic, {0: [10]}, append_time=append_time)
        await rig.convert(topic)
    [own, first, last] = (await rig.plan()).splits[0].stretches[0].extents
    assert isinstance(first, SegmentExtent)
    assert isinstance(last, SegmentExtent)
    for end_ms, extents in [
        (first.segment.max_timestamp, [own]),
        (last.segment.max_timestamp + 1, [own, first, last]),
    ]:
        plan = await rig.plan(rows=RowFilter(end_timestamp_ms=end_ms))
        assert list(plan.splits[0].stretches[0].extents) == extents
    plan = await rig.plan(rows=RowFilter(end_timestamp_ms=NOW_MS + 5000))
    assert list(plan.splits[0].stretches[0].extents) == [own]
    assert [row["offset"] for row in rig.rows_of(plan.splits)] == list(range(5))


async def test_a_filter_of_offsets_and_times_is_exact(rig: ScanRig) -> None:
    await two_tiers(rig)
    rows = RowFilter(
        first_offset=20,
        end_offset=90,
        first_timestamp_ms=NOW_MS + 33_500,
        end_timestamp_ms=NOW_MS + 70_001,
    )
    assert await rig.offsets(rows=rows) == list(range(34, 71))
    assert await rig.offsets(rows=RowFilter(first_offset=-5, end_offset=500)) == list(range(100))
    assert await rig.offsets(rows=RowFilter(first_offset=50, end_offset=20)) == []


async def test_columns_are_those_that_were_asked_for_in_that_order(rig: ScanRig) -> None:
    await two_tiers(rig)
    for columns in (
        [ScanColumn.TIER, ScanColumn.OFFSET, ScanColumn.TOPIC],
        [ScanColumn.PARTITION],
        list(ScanColumn),
    ):
        rows = await rig.rows(columns=columns)
        assert list(rows[0]) == [column.value for column in columns]
        assert len(rows) == 100
