"""Search by time, and aborted transactions, in segments."""

from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.segment.reading import MODES, Shelf
from tests.unit.segment.runs import T0, batch, marker

from stratalog.batch.build import build_batch
from stratalog.batch.control import ControlType
from stratalog.batch.header import Codec
from stratalog.batch.records import Record, iter_records
from stratalog.control.segments.model import Segment
from stratalog.errors import DamagedError
from stratalog.ids import LeaderEpoch, Offset, ProducerId
from stratalog.pieces import TimedRecord
from stratalog.segment.model import AbortedTransaction


def timed(times: Sequence[int], value_bytes: int = 10, codec: Codec = Codec.NONE) -> bytes:
    """A batch of records with these timestamps."""
    records = [Record(index, time, None, bytes(value_bytes)) for index, time in enumerate(times)]
    return build_batch(records, codec=codec)


def first_at(shelf: Shelf, timestamp: int, log_start: int) -> TimedRecord | None:
    for record in iter_records(b"".join(shelf.logs)):
        if record.timestamp >= timestamp and record.offset >= log_start:
            return TimedRecord(Offset(record.offset), record.timestamp, EPOCH)
    return None


def newest(shelf: Shelf, log_start: int) -> TimedRecord | None:
    left = [each for each in iter_records(b"".join(shelf.logs)) if each.offset >= log_start]
    best = max(left, key=lambda each: each.timestamp, default=None)
    return best and TimedRecord(Offset(best.offset), best.timestamp, EPOCH)


EPOCH = LeaderEpoch(0)


@pytest.mark.parametrize("mode", MODES)
async def test_the_first_record_at_or_after_a_time_is_found(mode: str) -> None:
    shelf = Shelf()
    times = [[1000 + 10 * at, 1005 + 10 * at] for at in range(400)]
    segment = await shelf.add([timed(each, value_bytes=300) for each in times], MODES[mode])
    reader = shelf.reader()
    for timestamp in (0, 1000, 1001, 1005, 1006, 3333, 4990, 4995):
        found = await reader.first_at_time(segment, timestamp, Offset(0))
        assert found == first_at(shelf, timestamp, 0)
        assert found is not None
    assert await reader.first_at_time(segment, 4996, Offset(0)) is None
    assert await reader.newest(segment, Offset(0)) == TimedRecord(Offset(799), 4995, EPOCH)


async def test_a_time_beyond_the_segment_costs_no_request() -> None:
    shelf = Shelf()
    segment = await shelf.add([timed([5, 6])])
    reader = shelf.reader()
    assert await reader.first_at_time(segment, 7, Offset(0)) is None
    assert await reader.first_at_time(segment, 5, Offset(2)) is None
    assert await reader.newest(segment, Offset(2)) is None
    assert shelf.requests == 0


async def test_a_search_costs_the_two_indexes_and_one_read() -> None:
    shelf = Shelf()
    segment = await shelf.add([timed([1000 + at], value_bytes=1000) for at in range(900)])
    found = await shelf.reader().first_at_time(segment, 1777, Offset(0))
    assert found == TimedRecord(Offset(777), 1777, EPOCH)
    assert shelf.requests == 3


async def test_deleted_records_are_not_found() -> None:
    shelf = Shelf()
    segment = await shelf.add([timed([10, 99, 20]), timed([30, 40]), timed([35, 98, 36])])
    reader = shelf.reader()
    for log_start in range(9):
        start = Offset(log_start)
        assert await reader.first_at_time(segment, 35, start) == first_at(shelf, 35, log_start)
        assert await reader.newest(segment, start) == newest(shelf, log_start)


async def test_the_first_of_several_newest_records_is_found() -> None:
    shelf = Shelf()
    segment = await shelf.add([timed([10, 50]), timed([50, 50]), timed([50, 20])])
    reader = shelf.reader()
    assert await reader.newest(segment, Offset(0)) == TimedRecord(Offset(1), 50, EPOCH)
    assert await reader.newest(segment, Offset(2)) == TimedRecord(Offset(2), 50, EPOCH)


async def test_records_without_a_timestamp_are_found_by_minus_one() -> None:
    shelf = Shelf()
    segment = await shelf.add([timed([-1, -1]), timed([-1])])
    reader = shelf.reader()
    assert await reader.newest(segment, Offset(1)) == TimedRecord(Offset(1), -1, EPOCH)
    assert await reader.first_at_time(segment, 0, Offset(0)) is None


async def test_a_search_that_meets_damage_says_so() -> None:
    shelf = Shelf()
    segment = await shelf.add([timed([10]), timed([20]), timed([30])])
    await shelf.damage(f"{segment.key_base}.log", len(timed([10])) + 70)
    reader = shelf.reader()
    found = await reader.first_at_time(segment, 5, Offset(0))
    assert found == TimedRecord(Offset(0), 10, EPOCH)
    with pytest.raises(DamagedError, match=segment.key_base):
        await reader.first_at_time(segment, 25, Offset(0))


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    times=st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=4), min_size=1, max_size=30),
    codec=st.sampled_from(list(Codec)),
    interval_bytes=st.integers(0, 500),
    queries=st.lists(st.tuples(st.integers(-1, 61), st.integers(0, 40)), min_size=1, max_size=6),
)
async def test_any_time_is_found_exactly(
    times: list[list[int]], codec: Codec, interval_bytes: int, queries: list[tuple[int, int]]
) -> None:
    shelf = Shelf()
    batches = [timed(each, codec=codec) for each in times]
    segment = await shelf.add(batches, interval_bytes=interval_bytes)
    reader = shelf.reader()
    for timestamp, log_start in queries:
        start = Offset(log_start)
        found = await reader.first_at_time(segment, timestamp, start)
        assert found == first_at(shelf, timestamp, log_start)
        assert await reader.newest(segment, start) == newest(shelf, log_start)


async def transactions() -> Shelf:
    """Offsets 0-1 and 5 of producer 1, aborted at 7; 2-4 of producer 2, aborted at 11."""
    shelf = Shelf()
    await shelf.add(
        [
            batch(2, producer_id=1, transactional=True),
            batch(3, producer_id=2, transactional=True),
            batch(1, producer_id=1, sequence=2, transactional=True),
        ]
    )
    await shelf.add([batch(1), marker(ControlType.ABORT, 1), batch(2)])
    await shelf.add([batch(1)])
    await shelf.add([marker(ControlType.ABORT, 2), batch(1)])
    await shelf.add(
        [batch(1, producer_id=3, transactional=True, timestamp=T0), marker(ControlType.ABORT, 3)]
    )
    return shelf


ONE = AbortedTransaction(ProducerId(1), Offset(0), Offset(7), Offset(2))
TWO = AbortedTransaction(ProducerId(2), Offset(2), Offset(11), Offset(12))
THREE = AbortedTransaction(ProducerId(3), Offset(13), Offset(14), Offset(15))


async def test_aborted_transactions_are_found_in_later_segments() -> None:
    shelf = await transactions()
    reader = shelf.reader()
    for first, end, place, found in (
        (0, 1, 0, [ONE]),
        (0, 6, 0, [ONE, TWO]),
        (3, 4, 0, [ONE, TWO]),
        (7, 10, 1, [ONE, TWO]),
        (8, 10, 1, [TWO]),
        (12, 13, 3, []),
        (0, 15, 0, [ONE, TWO, THREE]),
    ):
        segments = shelf.segments[place:]
        assert await reader.aborted(segments, Offset(first), Offset(end)) == found


async def test_the_search_for_aborted_transactions_ends_when_nothing_more_can_come() -> None:
    shelf = await transactions()
    given: list[int] = []

    async def one_by_one() -> AsyncIterator[Segment]:
        for segment in shelf.segments:
            given.append(segment.base_offset)
            yield segment

    reader = shelf.reader()
    assert await reader.aborted(one_by_one(), Offset(0), Offset(6)) == [ONE, TWO]
    # The fourth segment decided the last of them; those without an index cost nothing.
    assert (given, shelf.requests) == ([0, 6, 10, 11], 2)


async def test_segments_without_aborted_transactions_cost_no_request() -> None:
    shelf = Shelf()
    for _ in range(5):
        await shelf.add([batch(2)])
    assert await shelf.reader().aborted(shelf.segments, Offset(0), Offset(10)) == []
    assert shelf.requests == 0
