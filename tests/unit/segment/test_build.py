import struct

import pytest
from tests.unit.batch.edits import edit, with_body
from tests.unit.segment.runs import T0, batch, built, marker, run

from stratalog.batch.control import ControlType
from stratalog.batch.frames import iter_batches
from stratalog.batch.header import Codec, TimestampType, parse_header
from stratalog.batch.records import decode_records, iter_records
from stratalog.ids import Offset
from stratalog.segment.build import INT32_LAST, SegmentBuilder
from stratalog.segment.errors import SegmentRefusedError, SourceDamagedError
from stratalog.segment.model import SourceRun


def builder(base: int = 100, interval: int = 4096) -> SegmentBuilder:
    return SegmentBuilder(Offset(base), index_interval_bytes=interval)


def offset_entries(data: bytes) -> list[tuple[int, ...]]:
    return list(struct.iter_unpack(">ii", data))


def time_entries(data: bytes) -> list[tuple[int, ...]]:
    return list(struct.iter_unpack(">qi", data))


def test_offsets_and_epochs_are_stamped_in_place() -> None:
    data = bytearray(batch(2) + batch(3))
    build = builder()
    written = build.add(data, run(100, 104, epoch=4))
    assert written.obj is data
    assert [record.offset for record in iter_records(data)] == [100, 101, 102, 103, 104]
    assert {header.leader_epoch for _, header in iter_batches(data)} == {4}
    log = build.finish()
    assert (log.base_offset, log.last_offset, log.size_bytes) == (100, 104, len(data))
    assert log.leader_epochs == [(4, 100)]
    assert log.max_timestamp == T0 + 2


def test_a_run_may_come_in_parts_and_be_followed_by_others() -> None:
    build = builder()
    build.add(bytearray(batch(2)), run(100, 103))
    build.add(memoryview(bytearray(batch(2))), run(100, 103))
    build.add(bytearray(batch(1)), run(104, 104, epoch=2))
    build.add(bytearray(batch(1)), run(105, 105, epoch=2))
    log = build.finish()
    assert log.last_offset == 105
    assert log.leader_epochs == [(0, 100), (2, 104)]


def test_append_time_is_stamped_with_a_new_crc() -> None:
    data = bytearray(batch(2))
    build = builder()
    build.add(data, run(100, 101, append_time_ms=T0 + 9999))
    assert parse_header(data).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert {record.timestamp for record in decode_records(data)} == {T0 + 9999}
    assert build.finish().max_timestamp == T0 + 9999


def test_the_least_time_is_known_where_all_times_are_the_brokers() -> None:
    build = builder()
    data = bytearray(batch(2))
    build.add(data, run(100, 101, append_time_ms=T0 + 70))
    build.add(bytearray(batch(2)), run(102, 103, append_time_ms=T0 + 50))
    log = build.finish()
    assert (log.min_timestamp, log.max_timestamp) == (T0 + 50, T0 + 70)
    build = builder()
    build.add(data, run(100, 101, stamped=True))
    assert build.finish().min_timestamp == T0 + 70


@pytest.mark.parametrize("stamped", [False, True])
def test_the_least_time_is_not_known_where_one_batch_has_a_producers(stamped: bool) -> None:
    build = builder()
    build.add(bytearray(batch(2)), run(100, 101, append_time_ms=T0 + 70))
    data = bytearray(batch(1, base_offset=102, leader_epoch=0))
    build.add(data, run(102, 102, stamped=stamped, append_time_ms=5 if stamped else None))
    build.add(bytearray(batch(2)), run(103, 104, append_time_ms=T0 + 80))
    assert build.finish().min_timestamp is None


def test_a_stamped_run_is_left_as_it_is() -> None:
    stamped = batch(2, base_offset=100, leader_epoch=3) + batch(1, base_offset=102, leader_epoch=3)
    build = builder()
    data = bytearray(stamped)
    build.add(data, run(100, 102, epoch=3, stamped=True, append_time_ms=5))
    assert data == stamped
    assert build.finish().max_timestamp == T0 + 1


def test_the_first_batchs_codec_is_told() -> None:
    build = builder()
    build.add(bytearray(edit(batch(), attributes=Codec.ZSTD) + batch()), run(100, 101))
    assert build.finish().first_codec is Codec.ZSTD


def test_a_first_batch_of_an_unknown_codec_is_damage() -> None:
    with pytest.raises(SourceDamagedError, match=r"offset 100: .* codec 5 does not exist"):
        builder().add(bytearray(edit(batch(), attributes=5)), run(100, 100))


def test_a_batch_is_indexed_when_more_than_the_interval_lies_since_the_last_entry() -> None:
    one = batch(1)
    size = len(one)
    data = one * 7
    inside, outside = builder(interval=2 * size), builder(interval=2 * size - 1)
    for each in (inside, outside):
        each.add(bytearray(data), run(100, 106))
    assert offset_entries(inside.finish().offset_index) == [(3, 3 * size), (6, 6 * size)]
    assert offset_entries(outside.finish().offset_index) == [
        (2, 2 * size),
        (4, 4 * size),
        (6, 6 * size),
    ]


def test_the_index_does_not_depend_on_how_runs_are_cut() -> None:
    whole, parts = builder(interval=300), builder(interval=300)
    whole.add(bytearray(batch(1) * 20), run(100, 119))
    for offset in range(100, 120):
        parts.add(bytearray(batch(1)), run(offset, offset))
    assert parts.finish() == whole.finish()


def test_an_entry_names_the_last_offset_and_the_first_byte_of_its_batch() -> None:
    build = builder(interval=1)
    build.add(bytearray(batch(5) + batch(3)), run(100, 107))
    assert offset_entries(build.finish().offset_index) == [(7, len(batch(5)))]


def test_a_small_segment_has_an_empty_offset_index_and_one_time() -> None:
    log = built(100, batch(2, timestamp=50), batch(1, timestamp=40))
    assert log.offset_index == b""
    assert time_entries(log.time_index) == [(51, 1)]


def test_the_time_index_follows_the_greatest_timestamp_so_far() -> None:
    times = [10, 30, 20, 30, 40, 5]
    build = builder(interval=0)
    build.add(bytearray(b"".join(batch(1, timestamp=time) for time in times)), run(100, 105))
    log = build.finish()
    # The first batch is never indexed, and the second reaches 30 before any other does.
    assert time_entries(log.time_index) == [(30, 1), (40, 4)]
    assert log.max_timestamp == 40


def test_of_equal_timestamps_the_first_is_noted() -> None:
    log = built(100, batch(1, timestamp=40), batch(1, timestamp=40))
    assert time_entries(log.time_index) == [(40, 0)]


def test_batches_without_timestamps_leave_the_time_index_empty() -> None:
    build = builder(interval=0)
    untimed = edit(batch(1), max_timestamp=-1)
    build.add(bytearray(untimed * 3), run(100, 102))
    log = build.finish()
    assert (log.time_index, log.max_timestamp) == (b"", -1)


@pytest.mark.parametrize(("base", "fault"), [(101, "a gap"), (99, "an overlap")])
def test_the_first_run_begins_at_the_base(base: int, fault: str) -> None:
    with pytest.raises(SegmentRefusedError, match=f"offsets {base} to .* 100 is next: {fault}"):
        builder().add(bytearray(batch(1)), run(base, base))


@pytest.mark.parametrize(("base", "fault"), [(103, "a gap"), (101, "an overlap")])
def test_runs_follow_each_other_without_gap_or_overlap(base: int, fault: str) -> None:
    build = builder()
    build.add(bytearray(batch(2)), run(100, 101))
    with pytest.raises(SegmentRefusedError, match=f"offsets {base} to 110 .*: {fault}"):
        build.add(bytearray(batch(1)), run(base, 110))


def test_a_run_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(SegmentRefusedError, match="offsets 100 to 99 are no run"):
        builder().add(bytearray(), run(100, 99))


def test_a_run_that_stops_short_is_refused_by_the_next_and_at_the_end() -> None:
    short = "offsets 100 to 102 end before 102"
    build = builder()
    build.add(bytearray(batch(2)), run(100, 102))
    with pytest.raises(SegmentRefusedError, match=short):
        build.finish()
    with pytest.raises(SegmentRefusedError, match=short):
        build.add(bytearray(batch(1)), run(102, 102))


def test_a_run_that_goes_too_far_is_refused() -> None:
    with pytest.raises(SegmentRefusedError, match="offsets 100 to 101 go on to 102"):
        builder().add(bytearray(batch(3)), run(100, 101))


def test_epochs_may_not_go_back() -> None:
    build = builder()
    build.add(bytearray(batch(1)), run(100, 100, epoch=5))
    with pytest.raises(SegmentRefusedError, match="101 to 101 have leader epoch 4, after epoch 5"):
        build.add(bytearray(batch(1)), run(101, 101, epoch=4))


def test_a_run_needs_an_epoch() -> None:
    with pytest.raises(SegmentRefusedError, match="leader epoch -1"):
        builder().add(bytearray(batch(1)), run(100, 100, epoch=-1))


@pytest.mark.parametrize(
    ("offset", "epoch", "fault"),
    [
        (102, 3, "a batch of offset 102 where 101 is next"),
        (100, 3, "a batch of offset 100 where 101 is next"),
        (101, 2, "offset 101 is of leader epoch 2"),
        (101, -1, "offset 101 is of leader epoch -1"),
    ],
)
def test_a_stamp_that_contradicts_the_run_is_refused(offset: int, epoch: int, fault: str) -> None:
    good = batch(1, base_offset=100, leader_epoch=3)
    bad = batch(1, base_offset=offset, leader_epoch=epoch)
    with pytest.raises(SegmentRefusedError, match=f"{fault}, in the run of offsets 100 to 101"):
        builder().add(bytearray(good + bad), run(100, 101, epoch=3, stamped=True))


@pytest.mark.parametrize("at", [8, 16, 17, 21, 23, 61, -1])
def test_a_changed_byte_is_refused_with_its_offset(at: int) -> None:
    bad = bytearray(batch(1))
    bad[at] ^= 0x40
    data = bytearray(batch(2)) + bad
    with pytest.raises(SourceDamagedError, match="the batch at offset 102: byte") as caught:
        builder().add(data, run(100, 102))
    assert caught.value.offset == 102


def test_a_byte_is_named_by_its_place_in_the_segment() -> None:
    build = builder()
    build.add(bytearray(batch(1)), run(100, 101))
    bad = bytearray(batch(1))
    bad[-1] ^= 1
    with pytest.raises(SourceDamagedError, match=f"byte {len(bad) + 17} of the segment at 100"):
        build.add(bad, run(100, 101))


@pytest.mark.parametrize("size", [10, 60, 61, len(batch(1)) - 1])
def test_a_batch_that_is_cut_off_is_refused(size: int) -> None:
    with pytest.raises(SourceDamagedError, match=r"offset 101: .* short of a"):
        builder().add(bytearray(batch(1) + batch(1)[:size]), run(100, 101))


def test_a_negative_last_offset_delta_is_refused() -> None:
    with pytest.raises(SourceDamagedError, match="offset 101: its last offset delta is negative"):
        builder().add(bytearray(batch(1) + edit(batch(1), last_offset_delta=-1)), run(100, 101))


def test_a_relative_offset_is_an_int32() -> None:
    far = 100 + INT32_LAST
    wide = edit(batch(1), last_offset_delta=INT32_LAST)
    build = builder()
    build.add(bytearray(wide), run(100, far))
    assert build.finish().last_offset == far
    with pytest.raises(SegmentRefusedError, match=f"100 to {far + 1} are too far"):
        builder().add(bytearray(wide), run(100, far + 1))


def nearly_full(free_bytes: int) -> SegmentBuilder:
    """A builder that has taken nearly all bytes that a segment can hold."""
    build = builder()
    build._size_bytes = INT32_LAST - free_bytes
    return build


def test_a_segments_size_is_an_int32() -> None:
    one = batch(1)
    nearly_full(len(one)).add(bytearray(one), run(100, 100))
    with pytest.raises(SegmentRefusedError, match=r"from offset 100 on.* has 2147483648 bytes"):
        nearly_full(len(one) - 1).add(bytearray(one), run(100, 100))


def test_a_segment_needs_a_batch() -> None:
    with pytest.raises(SegmentRefusedError, match="segment at 100 has no batch"):
        builder().finish()


def test_every_producers_last_batch_is_kept() -> None:
    log = built(
        100,
        batch(2, producer_id=8, sequence=0, timestamp=T0),
        batch(3, producer_id=5, sequence=7, producer_epoch=2, timestamp=T0 + 50),
        batch(1),
        batch(2, producer_id=8, sequence=2, timestamp=T0 + 90),
    )
    assert log.producers == [
        (5, 2, 9, 104, 2, T0 + 52),
        (8, 0, 3, 107, 1, T0 + 91),
    ]
    assert log.transactions == []


def test_a_sequence_goes_on_at_zero_after_its_greatest() -> None:
    log = built(100, batch(3, producer_id=8, sequence=INT32_LAST - 1))
    assert log.producers[0].last_sequence == 0


def test_an_appended_batch_counts_with_its_append_time() -> None:
    build = builder()
    build.add(bytearray(batch(1, producer_id=8)), run(100, 100, append_time_ms=77))
    assert build.finish().producers[0].timestamp == 77


def test_transactions_are_told_in_order() -> None:
    log = built(
        100,
        batch(2, producer_id=1, transactional=True),
        batch(1, producer_id=2, transactional=True),
        batch(1, producer_id=1, sequence=2, transactional=True),
        marker(ControlType.COMMIT, 1, coordinator_epoch=3, timestamp=T0 + 7),
        batch(1, producer_id=1, sequence=3, transactional=True),
        marker(ControlType.ABORT, 2, producer_epoch=4),
        marker(ControlType.ABORT, 9),
    )
    assert log.transactions == [
        (1, 100),
        (2, 102),
        (1, 104, 0, 3, T0 + 7, False),
        (1, 105),
        (2, 106, 4, 7, T0 + 500, True),
        (9, 107, 0, 7, T0 + 500, True),
    ]
    assert [each.producer_id for each in log.producers] == [1, 2]


def test_a_control_batch_without_its_record_ends_nothing() -> None:
    empty = edit(marker(ControlType.ABORT, 1), records_count=0, length=49)[:61]
    empty = with_body(empty, b"")
    assert built(100, batch(1), empty).transactions == []


def test_control_records_of_other_kinds_end_nothing() -> None:
    kept = built(100, marker(ControlType.LEADER_CHANGE, 1), marker(ControlType.ABORT, 1))
    assert [event.offset for event in kept.transactions] == [101]


def test_a_damaged_marker_is_refused_with_its_offset() -> None:
    bad = edit(marker(ControlType.ABORT, 1), records_count=2)
    with pytest.raises(SourceDamagedError, match="offset 101"):
        built(100, batch(1), bad)


def test_runs_are_told_apart_by_all_they_say() -> None:
    build = builder()
    first: SourceRun = run(100, 101)
    build.add(bytearray(batch(2)), first)
    with pytest.raises(SegmentRefusedError, match="an overlap"):
        build.add(bytearray(batch(1)), first._replace(stamped=True))
