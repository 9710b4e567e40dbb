"""The compiled walk over a log passes every batch that is right, and no other one.

`stamp_run` looks at one batch after the other, and is the yardstick.
"""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.batch_strategies import codecs, record_lists, timestamps

from stratalog.batch.build import build_batch
from stratalog.batch.errors import BatchDamagedError
from stratalog.batch.frames import iter_batches
from stratalog.batch.header import CRC_POSITION, MAGIC_POSITION
from stratalog.batch.log_place import LogBounds, LogPlace, Stamps, load_log_walk
from stratalog.batch.records import Record
from stratalog.batch.stamp import stamp_run

FIRST = 1000
ALL = LogBounds(wanted=FIRST, last_offset=2**62, max_bytes=1 << 40, at_least_one=True)
STAMPS = Stamps(leader_epoch=5, append_time_ms=None)

logs = st.lists(st.tuples(record_lists(max_size=4), codecs), min_size=1, max_size=6).map(
    lambda batches: b"".join(build_batch(records, codec=codec) for records, codec in batches)
)
walk_on = load_log_walk()


def stamped(log: bytes, append_time_ms: int | None = None) -> tuple[bytearray, int]:
    data = bytearray(log)
    end = stamp_run(data, base_offset=FIRST, leader_epoch=5, append_time_ms=append_time_ms)
    return data, end


@settings(max_examples=150, deadline=None)
@given(log=logs, append_time_ms=st.none() | timestamps)
def test_a_walk_stamps_as_one_batch_after_the_other(log: bytes, append_time_ms: int | None) -> None:
    expected, end = stamped(log, append_time_ms)
    data, place = bytearray(log), LogPlace(expected=FIRST)
    walk_on(memoryview(data), place, ALL, STAMPS._replace(append_time_ms=append_time_ms))
    assert (place.at, place.expected, place.start) == (len(log), end, 0)
    assert data == expected


@settings(max_examples=200, deadline=None)
@given(log=logs, is_stamped=st.booleans(), data=st.data())
def test_an_answer_is_cut_out_of_the_log_as_by_looking_at_each_batch(
    log: bytes, is_stamped: bool, data: st.DataObject
) -> None:
    expected, end = stamped(log)
    bounds = LogBounds(
        wanted=data.draw(st.integers(FIRST, end - 1)),
        last_offset=end - 1,
        max_bytes=data.draw(st.integers(0, len(log) + 1)),
        at_least_one=data.draw(st.booleans()),
    )
    place = LogPlace(expected=FIRST)
    held = bytearray(expected if is_stamped else log)
    walk_on(memoryview(held), place, bounds, None if is_stamped else STAMPS)
    start: int | None = None
    stop, next_offset = len(log), end
    for position, header in iter_batches(expected):
        if header.last_offset >= bounds.wanted:
            first = position if start is None else start
            has_room = position + header.size_bytes - first <= bounds.max_bytes
            if not has_room and not (start is None and bounds.at_least_one):
                stop, next_offset = position, header.base_offset
                break
            start = first
    assert (place.start, place.at, place.expected) == (start, stop, next_offset)
    assert held[:stop] == expected[:stop]


@settings(max_examples=200, deadline=None)
@given(log=logs, is_stamped=st.booleans(), data=st.data())
def test_no_damaged_batch_is_passed(log: bytes, is_stamped: bool, data: st.DataObject) -> None:
    whole, _ = stamped(log)
    damaged = bytearray(whole if is_stamped else log)
    position, header = data.draw(st.sampled_from(list(iter_batches(log))))
    # Base offset and epoch lie outside the CRC. In stamped logs the offset must fit as well.
    first = 0 if is_stamped else 8
    places = [at for at in range(first, header.size_bytes) if not 12 <= at < MAGIC_POSITION]
    at = position + data.draw(st.sampled_from(places))
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    place = LogPlace(expected=FIRST)
    walk_on(memoryview(damaged), place, ALL, None if is_stamped else STAMPS)
    assert place.at <= position
    assert damaged[: place.at] == whole[: place.at]


@settings(max_examples=100, deadline=None)
@given(log=logs, cut=st.integers(1, 10_000))
def test_a_log_that_is_cut_off_is_walked_to_its_last_whole_batch(log: bytes, cut: int) -> None:
    data = bytearray(log)[: max(0, len(log) - cut)]
    whole = [at for at, header in iter_batches(log) if at + header.size_bytes <= len(data)]
    place = LogPlace(expected=FIRST)
    walk_on(memoryview(data), place, ALL, STAMPS)
    try:
        stamp_run(bytearray(data), base_offset=FIRST, leader_epoch=5)
        good = len(data)
    except BatchDamagedError as error:
        good = error.batch_start
    assert place.at == good
    assert (place.start is None) == (not whole)


@settings(max_examples=100, deadline=None)
@given(log=logs, gap=st.integers(1, 5))
def test_a_gap_is_passed_only_in_a_log_that_may_have_gaps(log: bytes, gap: int) -> None:
    first, end = stamped(log)
    second = bytearray(log)
    stamp_run(second, base_offset=end + gap, leader_epoch=5)
    both = memoryview(first + second)
    dense, sparse = LogPlace(expected=FIRST), LogPlace(expected=FIRST)
    walk_on(both, dense, ALL, None)
    walk_on(both, sparse, ALL._replace(is_dense=False), None)
    assert (dense.at, dense.expected) == (len(first), end)
    assert (sparse.at, sparse.expected) == (len(both), 2 * end - FIRST + gap)


def test_more_batches_than_one_call_passes() -> None:
    one = build_batch([Record(0, 1, None, b"value")])
    log = one * 5000
    place = LogPlace(expected=FIRST)
    expected, end = stamped(log)
    data = bytearray(log)
    walk_on(memoryview(data), place, ALL, STAMPS)
    assert (place.at, place.expected, end) == (len(log), FIRST + 5000, FIRST + 5000)
    assert data == expected
    data[4000 * len(one) + CRC_POSITION] ^= 1
    again = LogPlace(expected=FIRST)
    walk_on(memoryview(data), again, ALL, None)
    assert 3000 * len(one) < again.at <= 4000 * len(one)
