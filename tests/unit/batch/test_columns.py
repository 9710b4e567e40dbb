"""The columns that a scan gets of batches, and the batches that it skips."""

import subprocess
import sys

import pyarrow as pa
import pytest
from tests.unit.batch.edits import edit, with_body

from stratalog.batch import run_decoder
from stratalog.batch.build import build_batch
from stratalog.batch.codec import compress
from stratalog.batch.columns import (
    AbortedRecords,
    BatchRun,
    RecordColumn,
    RecordFilter,
    Walked,
    decode_run,
    walk_run,
)
from stratalog.batch.errors import (
    BatchDamagedError,
    CrcMismatchError,
    RunTooLargeError,
    UnsupportedCodecError,
)
from stratalog.batch.header import Codec, TimestampType, parse_header
from stratalog.batch.records import Headers, Record
from stratalog.batch.unpack import Unpacker

EVERYTHING = RecordFilter(first_offset=0, end_offset=2**63)
FROM_HEADERS = [RecordColumn.OFFSET, RecordColumn.TIMESTAMP_TYPE, RecordColumn.LEADER_EPOCH]
IN_RECORDS = [column for column in RecordColumn if column not in FROM_HEADERS]
INT64_LAST = 2**63 - 1


def batch(
    base_offset: int = 0,
    times: tuple[int, ...] = (100, 101, 102),
    *,
    transactional: bool = False,
    control: bool = False,
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> bytes:
    """Records with dense offsets and these times."""
    return build_batch(
        [Record(base_offset + at, time, b"key", b"value") for at, time in enumerate(times)],
        base_offset=base_offset,
        producer_id=7,
        transactional=transactional,
        control=control,
        codec=codec,
        timestamp_type=timestamp_type,
    )


def undecodable(made: bytes) -> bytes:
    """The same header over records that are none, and a CRC that agrees."""
    return with_body(made, b"\xff" * 40)


def offsets(
    data: bytes,
    keep: RecordFilter = EVERYTHING,
    columns: tuple[RecordColumn, ...] = (RecordColumn.OFFSET, RecordColumn.VALUE),
) -> list[int]:
    """Of the rows that come; with the value, they have to be decoded."""
    table = decode_run(data, BatchRun(0), columns, keep).columns
    table.validate(full=True)
    found: list[int] = table.column("offset").to_pylist()
    return found


def micros(*times: int) -> list[int]:
    made = build_batch([Record(at, time, None, None) for at, time in enumerate(times)])
    table = decode_run(made, BatchRun(0), [RecordColumn.TIMESTAMP], EVERYTHING).columns
    found: list[int] = table.column(0).cast(pa.int64()).to_pylist()
    return found


def test_the_nouns_of_columns_are_had_without_a_compiler() -> None:
    """Brokers and planners know them."""
    script = "import stratalog.batch.columns, sys; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_no_batches_give_no_rows() -> None:
    decoded = decode_run(b"", BatchRun(5), list(RecordColumn), EVERYTHING)
    decoded.columns.validate(full=True)
    assert (decoded.columns.num_rows, decoded.next_offset) == (0, 5)


def test_no_columns_still_have_their_number_of_rows() -> None:
    assert decode_run(batch(), BatchRun(0), [], EVERYTHING).columns.num_rows == 3


def test_what_headers_tell_is_given_without_a_look_at_the_records() -> None:
    data = undecodable(batch(codec=Codec.ZSTD))
    run = BatchRun(10, stamped=False, leader_epoch=4, append_time_ms=9)
    columns = [*FROM_HEADERS, RecordColumn.TIMESTAMP]
    table = decode_run(data, run, columns, EVERYTHING).columns
    assert table.column("offset").to_pylist() == [10, 11, 12]
    assert table.column("leaderEpoch").to_pylist() == [4, 4, 4]
    assert table.column("timestampType").to_pylist() == [1, 1, 1]
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == [9000, 9000, 9000]


@pytest.mark.parametrize("column", IN_RECORDS)
def test_what_headers_do_not_tell_needs_good_records(column: RecordColumn) -> None:
    with pytest.raises(BatchDamagedError):
        decode_run(undecodable(batch()), BatchRun(0), [column], EVERYTHING)


def test_offsets_of_a_compacted_batch_need_good_records() -> None:
    gappy = build_batch([Record(0, 1, None, None), Record(2, 1, None, None)])
    assert offsets(gappy, columns=(RecordColumn.OFFSET,)) == [0, 2]
    with pytest.raises(BatchDamagedError):
        offsets(undecodable(gappy), columns=(RecordColumn.OFFSET,))


def test_a_filter_on_times_needs_good_records() -> None:
    keep = RecordFilter(first_offset=0, end_offset=9, first_timestamp_ms=101)
    assert offsets(batch(), keep, (RecordColumn.OFFSET,)) == [1, 2]
    with pytest.raises(BatchDamagedError):
        offsets(undecodable(batch()), keep, (RecordColumn.OFFSET,))


def test_offsets_without_records_are_cut_at_the_filter() -> None:
    keep = RecordFilter(first_offset=1, end_offset=4)
    data = undecodable(batch()) + undecodable(batch(3))
    assert offsets(data, keep, (RecordColumn.OFFSET,)) == [1, 2, 3]


def test_more_records_than_a_batch_holds_are_not_believed() -> None:
    most = 128 * 1024 * 1024 // 7
    data = edit(batch(codec=Codec.LZ4), records_count=most + 1, last_offset_delta=most)
    with pytest.raises(BatchDamagedError):
        offsets(data, columns=(RecordColumn.OFFSET,))


@pytest.mark.parametrize(("first", "end"), [(3, 9), (0, 3)])
def test_batches_outside_the_offsets_are_not_decoded(first: int, end: int) -> None:
    keep = RecordFilter(first_offset=first, end_offset=end)
    inside, outside = (batch(3), batch()) if first else (batch(), batch(3))
    both = sorted([inside, undecodable(outside)], key=lambda each: parse_header(each).base_offset)
    assert offsets(b"".join(both), keep) == ([3, 4, 5] if first else [0, 1, 2])


@pytest.mark.parametrize(("first", "end"), [(2, 9), (0, 4)])
def test_batches_across_a_bound_are_decoded(first: int, end: int) -> None:
    keep = RecordFilter(first_offset=first, end_offset=end)
    outside = batch() if first else batch(3)
    with pytest.raises(BatchDamagedError):
        offsets(undecodable(outside), keep)
    assert offsets(batch() + batch(3), keep) == list(range(first, min(end, 6)))


def test_batches_older_than_wanted_are_not_decoded() -> None:
    keep = RecordFilter(first_offset=0, end_offset=9, first_timestamp_ms=103)
    assert offsets(undecodable(batch()) + batch(3, (103, 102, 104)), keep) == [3, 5]
    keep = RecordFilter(first_offset=0, end_offset=9, first_timestamp_ms=102)
    with pytest.raises(BatchDamagedError):
        offsets(undecodable(batch()), keep)


def test_a_batch_that_does_not_tell_its_greatest_time_is_decoded() -> None:
    keep = RecordFilter(first_offset=0, end_offset=9, first_timestamp_ms=102)
    assert offsets(edit(batch(), max_timestamp=-1), keep) == [2]


def test_times_are_wanted_up_to_an_exclusive_end() -> None:
    keep = RecordFilter(first_offset=0, end_offset=9, first_timestamp_ms=101, end_timestamp_ms=102)
    assert offsets(batch(), keep) == [1]


@pytest.mark.parametrize(
    ("first", "end", "is_kept"), [(50, 51, True), (51, 60, False), (0, 50, False)]
)
def test_the_append_time_of_a_batch_decides_for_all_its_records(
    first: int, end: int, is_kept: bool
) -> None:
    made = batch(times=(1, 50, 1), timestamp_type=TimestampType.LOG_APPEND_TIME)
    keep = RecordFilter(
        first_offset=0, end_offset=9, first_timestamp_ms=first, end_timestamp_ms=end
    )
    assert offsets(made if is_kept else undecodable(made), keep) == ([0, 1, 2] if is_kept else [])


@pytest.mark.parametrize("bound", [2**63, 2**70])
def test_times_beyond_64_bits_are_bounds_like_others(bound: int) -> None:
    made = batch(times=(INT64_LAST, INT64_LAST))
    keep = RecordFilter(first_offset=0, end_offset=9, end_timestamp_ms=bound)
    assert offsets(made, keep) == [0, 1]
    keep = RecordFilter(first_offset=0, end_offset=9, first_timestamp_ms=bound)
    assert offsets(made, keep) == []
    keep = RecordFilter(first_offset=0, end_offset=9, end_timestamp_ms=-bound)
    assert offsets(made, keep) == []


def test_control_batches_are_rows_only_if_asked_for() -> None:
    data = undecodable(batch(control=True, transactional=True)) + batch(3)
    assert offsets(data) == [3, 4, 5]
    data = batch(control=True, transactional=True) + batch(3)
    keep = RecordFilter(first_offset=0, end_offset=9, skip_control=False)
    assert offsets(data, keep) == [0, 1, 2, 3, 4, 5]


def aborting(producer_id: int, first: int, last: int) -> RecordFilter:
    return RecordFilter(
        first_offset=0,
        end_offset=9,
        aborted=[AbortedRecords(producer_id, first, last)],
        skip_control=False,
    )


def test_aborted_records_are_not_even_decoded() -> None:
    data = undecodable(batch(transactional=True)) + batch(3, transactional=True)
    assert offsets(data, aborting(7, 0, 2)) == [3, 4, 5]


def test_a_range_of_aborted_records_may_cut_a_batch() -> None:
    assert offsets(batch(transactional=True), aborting(7, 1, 1)) == [0, 2]
    dense = offsets(batch(transactional=True), aborting(7, 1, 1), (RecordColumn.OFFSET,))
    assert dense == [0, 2]


@pytest.mark.parametrize(
    ("made", "keep"),
    [
        (batch(transactional=True), aborting(8, 0, 2)),
        (batch(transactional=True), aborting(7, 3, 5)),
        (batch(), aborting(7, 0, 2)),
        (batch(transactional=True, control=True), aborting(7, 0, 2)),
    ],
    ids=["other producer", "other offsets", "no transaction", "marker"],
)
def test_records_that_were_not_aborted_are_kept(made: bytes, keep: RecordFilter) -> None:
    assert offsets(made, keep) == [0, 1, 2]


def test_the_crc_of_a_batch_is_checked_even_if_it_is_not_wanted() -> None:
    data = bytearray(batch() + batch(3))
    data[-1] ^= 1
    keep = RecordFilter(first_offset=0, end_offset=3)
    with pytest.raises(CrcMismatchError) as caught:
        decode_run(data, BatchRun(0), [RecordColumn.OFFSET], keep)
    assert caught.value.batch_start == len(batch())


def test_a_codec_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UnsupportedCodecError):
        offsets(edit(batch(), attributes=5), columns=(RecordColumn.OFFSET,))


def test_stamped_offsets_may_have_gaps_and_never_go_back() -> None:
    assert offsets(batch(1) + batch(7)) == [1, 2, 3, 7, 8, 9]
    with pytest.raises(BatchDamagedError, match="offset 3 comes where 4 should be") as caught:
        offsets(batch(1) + batch(3))
    assert caught.value.batch_start == len(batch())
    with pytest.raises(BatchDamagedError, match="offset 1 comes where 2 should be"):
        decode_run(batch(1), BatchRun(2), [RecordColumn.OFFSET], EVERYTHING)


def test_offsets_end_before_the_last_number_of_64_bits() -> None:
    assert offsets(edit(batch(), base_offset=INT64_LAST - 3)) == [
        INT64_LAST - 3 + at for at in range(3)
    ]
    with pytest.raises(BatchDamagedError, match="64 bits"):
        offsets(edit(batch(), base_offset=INT64_LAST - 2))


def test_a_batch_that_ends_before_it_begins_is_refused() -> None:
    empty = build_batch([], last_offset=0)
    assert offsets(empty) == []
    with pytest.raises(BatchDamagedError, match="negative"):
        offsets(edit(empty, last_offset_delta=-1))


def test_times_are_microseconds_and_saturate() -> None:
    last = INT64_LAST // 1000
    assert micros(0, -1, last, -last) == [0, -1000, last * 1000, -last * 1000]
    assert micros(0, last + 1, -last - 1) == [0, INT64_LAST, ~INT64_LAST]
    assert micros(INT64_LAST) == [INT64_LAST]


def test_columns_without_nulls_have_no_bitmap() -> None:
    full = build_batch([Record(at, 1, b"key", b"value", (("name", None),)) for at in range(3)])
    table = decode_run(full, BatchRun(0), list(RecordColumn), EVERYTHING).columns
    assert all(array.buffers()[0] is None for array in table.columns)
    tombstone = build_batch([Record(0, 1, b"key", None)])
    table = decode_run(tombstone, BatchRun(0), list(RecordColumn), EVERYTHING).columns
    assert [array.null_count for array in table.columns][:2] == [0, 1]


def test_headers_are_null_where_a_record_has_none() -> None:
    """As Spark's Kafka source gives them. The filter's cut moves rows away from their places."""
    given: list[Headers] = [(), (("a", b"1"), ("b", None)), (), (("", b""),), ()] * 5
    made = build_batch([Record(at, 1, None, None, each) for at, each in enumerate(given)])
    for first, end in [(0, 25), (1, 2), (2, 3), (7, 20), (24, 25)]:
        keep = RecordFilter(first_offset=first, end_offset=end)
        [lists] = decode_run(made, BatchRun(0), [RecordColumn.HEADERS], keep).columns.columns
        lists.validate(full=True)
        wanted = given[first:end]
        assert lists.null_count == wanted.count(())
        assert lists.to_pylist() == [
            [{"key": name, "value": value} for name, value in each] or None for each in wanted
        ]


def test_a_run_that_is_too_large_is_refused_for_as_long_as_it_has_more_than_one_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records = [Record(0, 1, None, b"v" * 10_000)]
    packed = build_batch(records, codec=Codec.ZSTD)
    body_bytes = len(build_batch(records)) - 61
    run = BatchRun(0, stamped=False)
    monkeypatch.setattr(run_decoder, "MAX_RUN_BYTES", 2 * body_bytes)
    assert decode_run(packed * 2, run, list(RecordColumn), EVERYTHING).columns.num_rows == 2
    monkeypatch.setattr(run_decoder, "MAX_RUN_BYTES", 2 * body_bytes - 1)
    with pytest.raises(RunTooLargeError, match="give fewer batches"):
        decode_run(packed * 2, run, list(RecordColumn), EVERYTHING)
    with pytest.raises(RunTooLargeError):
        decode_run(build_batch(records) * 2, run, list(RecordColumn), EVERYTHING)


def test_zstandard_is_unpacked_whatever_its_frames_say() -> None:
    content = bytes(range(256)) * 300
    grown = b"a" * 1_000_000
    empty = compress(Codec.ZSTD, b"")
    frames = compress(Codec.ZSTD, content[:100]) + compress(Codec.ZSTD, content[100:])
    for packed, expected in [
        (compress(Codec.ZSTD, content), content),
        (frames, content),
        (compress(Codec.ZSTD, grown), grown),
        (empty + compress(Codec.ZSTD, content), content),
        (empty, b""),
    ]:
        assert Unpacker(1_000_000).unpack(Codec.ZSTD, packed) == expected
    for packed in (compress(Codec.ZSTD, content) + b"more", compress(Codec.ZSTD, content)[:-1]):
        with pytest.raises(BatchDamagedError):
            Unpacker(1_000_000).unpack(Codec.ZSTD, packed)
    with pytest.raises(BatchDamagedError):
        Unpacker(999_999).unpack(Codec.ZSTD, compress(Codec.ZSTD, grown))


def walked(
    data: bytes, run: BatchRun, most_bytes: int = 2**40, most_records: int = 2**40
) -> Walked:
    return walk_run(data, run, most_bytes=most_bytes, most_records=most_records)


def test_a_walk_goes_over_all_whole_batches() -> None:
    data = batch(5) + batch(8)
    for rest in (b"", batch(11)[:60], batch(11)[:-1]):
        assert walked(data + rest, BatchRun(5)) == Walked(len(data), 6, 11)
    assert walked(b"", BatchRun(5)) == Walked(0, 0, 5)


def test_a_walk_ends_with_the_batch_that_reaches_a_limit() -> None:
    data, size = batch(0) + batch(3) + batch(6), len(batch())
    for reached in (size + 1, 2 * size):
        assert walked(data, BatchRun(0), most_bytes=reached) == Walked(2 * size, 6, 6)
    for reached in (4, 6):
        assert walked(data, BatchRun(0), most_records=reached) == Walked(2 * size, 6, 6)


@pytest.mark.parametrize(
    "wrong",
    [
        batch(4),
        batch(2),
        edit(batch(3), magic=1),
        edit(batch(3), last_offset_delta=-1),
        edit(batch(3), records_count=-1),
        batch(3)[:8] + bytes(4) + batch(3)[12:],
    ],
)
def test_a_walk_ends_before_what_cannot_be_right(wrong: bytes) -> None:
    assert walked(batch(0) + wrong, BatchRun(0)) == Walked(len(batch()), 3, 3)


def test_a_walk_counts_offsets_where_batches_are_not_stamped() -> None:
    data = batch(0) + batch(0)
    assert walked(data, BatchRun(70, stamped=False)) == Walked(len(data), 6, 76)
