import pytest
from tests.unit.batch.edits import RECORDS, edit, sample

from stratalog.batch.build import build_batch
from stratalog.batch.errors import BatchDamagedError, CrcMismatchError, UnsupportedMagicError
from stratalog.batch.frames import check_crc, iter_batches
from stratalog.batch.header import Codec, TimestampType, parse_header
from stratalog.batch.records import decode_records, iter_records
from stratalog.batch.stamp import stamp, stamp_append_time, stamp_max_timestamp, stamp_run


def test_a_stamp_sets_offset_and_epoch_and_nothing_else() -> None:
    buffer = bytearray(b"abc" + sample())
    stamp(buffer, 3, base_offset=2**40, leader_epoch=7)
    header = parse_header(buffer, 3)
    assert header == parse_header(sample())._replace(base_offset=2**40, leader_epoch=7)
    check_crc(buffer, 3, header)
    assert buffer[:3] == b"abc"


def test_a_slice_of_a_larger_buffer_can_be_stamped() -> None:
    buffer = bytearray(sample() * 2)
    half = len(buffer) // 2
    stamp(memoryview(buffer)[half:], 0, base_offset=5, leader_epoch=1)
    assert [header.base_offset for _, header in iter_batches(buffer)] == [0, 5]


@pytest.mark.parametrize("codec", list(Codec))
def test_append_time_replaces_the_records_times_and_keeps_the_crc_right(codec: Codec) -> None:
    buffer = bytearray(sample(codec))
    stamp_append_time(buffer, 0, parse_header(buffer), 123_456)
    assert parse_header(buffer).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert decode_records(buffer) == [r._replace(timestamp=123_456) for r in RECORDS]


def test_the_greatest_timestamp_can_be_corrected() -> None:
    buffer = bytearray(edit(sample(), max_timestamp=-1))
    stamp_max_timestamp(buffer, 0, parse_header(buffer), 1_700_000_000_005)
    assert buffer == sample()


def test_a_run_gets_consecutive_offsets() -> None:
    buffer = bytearray(sample() + build_batch(RECORDS[:1], codec=Codec.LZ4) + sample(Codec.ZSTD))
    assert stamp_run(buffer, base_offset=100, leader_epoch=3) == 107
    assert [record.offset for record in iter_records(buffer)] == list(range(100, 107))
    assert {header.leader_epoch for _, header in iter_batches(buffer)} == {3}


def test_an_empty_run_moves_nothing() -> None:
    assert stamp_run(bytearray(), base_offset=42, leader_epoch=0) == 42


def test_a_run_takes_append_time() -> None:
    buffer = bytearray(sample() * 2)
    stamp_run(memoryview(buffer), base_offset=0, leader_epoch=0, append_time_ms=99)
    assert {record.timestamp for record in iter_records(buffer)} == {99}


def test_stamping_a_run_again_gives_the_same_bytes() -> None:
    buffer = bytearray(sample() * 2)
    stamp_run(buffer, base_offset=10, leader_epoch=2, append_time_ms=99)
    once = bytes(buffer)
    stamp_run(buffer, base_offset=10, leader_epoch=2, append_time_ms=99)
    assert buffer == once


def test_a_run_stamps_the_good_prefix_and_names_the_damaged_batch() -> None:
    batch = sample()
    buffer = bytearray(batch * 3)
    buffer[len(batch) + 65] ^= 1
    with pytest.raises(CrcMismatchError) as caught:
        stamp_run(buffer, base_offset=50, leader_epoch=1)
    assert caught.value.batch_start == len(batch)
    assert caught.value.position == len(batch) + 17
    good = buffer[: caught.value.batch_start]
    assert [record.offset for record in iter_records(good)] == [50, 51, 52]


@pytest.mark.parametrize("cut", [1, 20, 60, 61, 62])
def test_a_cut_run_is_damage_at_its_end(cut: int) -> None:
    batch = sample()
    buffer = bytearray(batch + batch[:cut])
    with pytest.raises(BatchDamagedError) as caught:
        stamp_run(buffer, base_offset=0, leader_epoch=0)
    assert (caught.value.position, caught.value.batch_start) == (len(buffer), len(batch))


def test_another_magic_in_a_run_is_named() -> None:
    buffer = bytearray(sample())
    buffer[16] = 3
    with pytest.raises(UnsupportedMagicError):
        stamp_run(buffer, base_offset=0, leader_epoch=0)


@pytest.mark.parametrize("length", [-13, 0, 48])
def test_a_length_too_small_in_a_run_is_named(length: int) -> None:
    with pytest.raises(BatchDamagedError) as caught:
        stamp_run(bytearray(edit(sample(), length=length)), base_offset=0, leader_epoch=0)
    assert caught.value.position == 8


def test_offsets_never_run_backwards() -> None:
    buffer = bytearray(edit(sample(), last_offset_delta=-1))
    with pytest.raises(BatchDamagedError) as caught:
        stamp_run(buffer, base_offset=0, leader_epoch=0)
    assert caught.value.position == 23
    assert (
        stamp_run(bytearray(edit(sample(), last_offset_delta=0)), base_offset=0, leader_epoch=0)
        == 1
    )
