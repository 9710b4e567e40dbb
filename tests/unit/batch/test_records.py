import pytest
from tests.unit.batch.edits import RECORDS, edit, sample, with_body

from stratalog.batch.build import build_batch, recompress
from stratalog.batch.errors import (
    BatchDamagedError,
    CrcMismatchError,
    DecompressedTooLargeError,
    UnbuildableBatchError,
)
from stratalog.batch.header import HEADER_BYTES, Codec, TimestampType, parse_header
from stratalog.batch.records import Record, decode_records, iter_records, true_max_timestamp
from stratalog.batch.varint import write_varint


def record_bytes(content: bytes, length: int | None = None) -> bytes:
    out = bytearray()
    write_varint(out, len(content) if length is None else length)
    return bytes(out) + content


# Attributes, timestamp delta, offset delta, no key, no value, no headers.
SMALLEST = b"\x00\x00\x00\x01\x01\x00"


def one(content: bytes, length: int | None = None) -> bytes:
    """A batch that says it holds one record with this content."""
    base = build_batch([Record(0, 0, None, None)])
    return with_body(base, record_bytes(content, length))


@pytest.mark.parametrize("codec", list(Codec))
def test_records_come_back(codec: Codec) -> None:
    assert decode_records(sample(codec)) == RECORDS


def test_offsets_are_absolute() -> None:
    batch = build_batch([Record(1000, 5, b"a", None), Record(1007, 6, b"b", None)], base_offset=998)
    assert [record.offset for record in decode_records(batch)] == [1000, 1007]
    assert parse_header(batch).last_offset == 1007


def test_append_time_is_every_records_time() -> None:
    batch = build_batch(RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert {record.timestamp for record in decode_records(batch)} == {1_700_000_000_005}


def test_a_delete_horizon_shifts_no_timestamp() -> None:
    batch = build_batch(RECORDS, delete_horizon_ms=1_800_000_000_000)
    header = parse_header(batch)
    assert header.has_delete_horizon
    assert header.base_timestamp == 1_800_000_000_000
    assert decode_records(batch) == RECORDS


def test_records_of_several_batches_are_read_without_control_records() -> None:
    control = build_batch(
        [Record(3, 0, b"\x00\x00\x00\x01", bytes(6))], base_offset=3, control=True
    )
    buffer = sample() + control
    assert list(iter_records(buffer)) == RECORDS
    assert [record.offset for record in iter_records(buffer, with_control=True)] == [0, 1, 2, 3]


def test_a_record_of_nothing_is_the_smallest() -> None:
    assert decode_records(one(SMALLEST)) == [Record(0, 0, None, None)]


def test_a_flipped_bit_is_found_before_decoding() -> None:
    batch = bytearray(sample())
    batch[70] ^= 4
    with pytest.raises(CrcMismatchError):
        decode_records(batch)


@pytest.mark.parametrize(
    ("content", "position"),
    [
        (b"\x00\x00\x02\x01\x01\x00", 3),  # The offset delta is past the last.
        (b"\x00\x00\x01\x01\x01\x00", 3),  # It is negative.
        (b"\x00\x00\x00\x03\x01\x00", 4),  # A key length of -2.
        (b"\x00\x00\x00\x06\x01\x00", 4),  # A key longer than the record.
        (b"\x00\x00\x00\x01\x04\x00", 5),  # A value longer than the record.
        (b"\x00\x00\x00\x01\x01\x01", 6),  # A negative number of headers.
        (b"\x00\x00\x00\x01\x01\x02\x02", 6),  # No room for a header.
        (b"\x00\x00\x00\x01\x01\x02\x01\x01", 7),  # A header without name.
        (b"\x00\x00\x00\x01\x01\x02\x06\x01", 7),  # A header name longer than the record.
        (b"\x00\x00\x00\x01\x01\x00\x00", 7),  # A byte too many.
        (b"\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 11),  # A timestamp over 64 bits.
    ],
)
def test_a_damaged_record_is_named_to_the_byte(content: bytes, position: int) -> None:
    with pytest.raises(BatchDamagedError) as caught:
        decode_records(b"12345" + one(content), 5)
    assert caught.value.position == 5 + HEADER_BYTES + position
    assert caught.value.batch_start == 5


def test_a_record_may_not_leave_bytes_of_its_own_unread() -> None:
    with pytest.raises(BatchDamagedError, match="should end at"):
        decode_records(one(SMALLEST + b"\x00"))


def test_damage_inside_compressed_records_names_their_start_and_the_inner_byte() -> None:
    plain = one(b"\x00\x00\x00\x03\x01\x00")
    with pytest.raises(BatchDamagedError, match="decompressed byte 4") as caught:
        decode_records(recompress(plain, 0, Codec.ZSTD))
    assert caught.value.position == HEADER_BYTES


@pytest.mark.parametrize("length", [-1, 0, 5, 7, 2**31 - 1])
def test_a_record_length_must_fit(length: int) -> None:
    with pytest.raises(BatchDamagedError) as caught:
        decode_records(one(SMALLEST, length))
    assert caught.value.position == HEADER_BYTES


@pytest.mark.parametrize("count", [-1, 0, 2, 4, 2**31 - 1])
def test_the_count_must_be_that_of_the_records(count: int) -> None:
    with pytest.raises(BatchDamagedError):
        decode_records(edit(sample(), records_count=count))


def test_offsets_that_do_not_rise_are_damage() -> None:
    twice = edit(with_body(sample(), record_bytes(SMALLEST) * 2), records_count=2)
    with pytest.raises(BatchDamagedError, match="out of order"):
        decode_records(twice)


def test_a_timestamp_past_64_bits_is_damage() -> None:
    content = b"\x00\x02\x00\x01\x01\x00"
    assert decode_records(edit(one(content), base_timestamp=2**63 - 2))[0].timestamp == 2**63 - 1
    with pytest.raises(BatchDamagedError, match="exceeds 64 bits"):
        decode_records(edit(one(content), base_timestamp=2**63 - 1))


def test_a_header_name_that_is_not_utf8_is_replaced_as_kafka_does() -> None:
    content = b"\x00\x00\x00\x01\x01\x02\x04\xffa\x01"
    assert decode_records(one(content))[0].headers == (("�a", None),)


def test_an_emptied_batch_has_no_records_whatever_its_codec() -> None:
    batch = build_batch([], codec=Codec.GZIP, base_offset=10, last_offset=19, producer_id=7)
    assert decode_records(batch) == []
    assert parse_header(batch).last_offset == 19


def test_decompression_is_bounded() -> None:
    batch = build_batch([Record(0, 0, None, bytes(100_000))], codec=Codec.ZSTD)
    assert len(decode_records(batch, max_decompressed_bytes=100_020)) == 1
    with pytest.raises(DecompressedTooLargeError) as caught:
        decode_records(b"123" + batch, 3, max_decompressed_bytes=100_000)
    assert (caught.value.position, caught.value.batch_start) == (3 + HEADER_BYTES, 3)


def test_the_true_greatest_timestamp_is_that_of_the_records() -> None:
    assert true_max_timestamp(RECORDS) == 1_700_000_000_005
    assert true_max_timestamp([]) == -1


def test_a_batch_keeps_its_end_when_its_last_records_are_gone() -> None:
    batch = build_batch(RECORDS[:1], last_offset=9)
    assert parse_header(batch).last_offset_delta == 9
    assert decode_records(batch) == RECORDS[:1]


@pytest.mark.parametrize(
    "records",
    [
        [],
        [Record(5, 0, None, None), Record(5, 0, None, None)],
        [Record(-1, 0, None, None)],
        [Record(0, 0, None, None), Record(2**31, 0, None, None)],
        [Record(0, -(2**63), None, None), Record(1, 2**63 - 1, None, None)],
        [Record(0, 2**63, None, None)],
        [Record(0, 0, None, None, (("\ud800", None),))],
    ],
)
def test_records_that_no_batch_can_hold_are_refused(records: list[Record]) -> None:
    with pytest.raises(UnbuildableBatchError):
        build_batch(records)


def test_a_last_offset_before_the_last_record_is_refused() -> None:
    assert build_batch(RECORDS, last_offset=2)
    with pytest.raises(UnbuildableBatchError):
        build_batch(RECORDS, last_offset=1)


def test_a_header_field_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UnbuildableBatchError):
        build_batch(RECORDS, producer_epoch=2**15)


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", list(Codec))
def test_recompressing_changes_only_codec_length_and_crc(source: Codec, target: Codec) -> None:
    batch = build_batch(
        RECORDS,
        codec=source,
        leader_epoch=4,
        producer_id=9,
        producer_epoch=1,
        base_sequence=77,
        transactional=True,
    )
    result = recompress(b"xx" + batch, 2, target)
    assert decode_records(result) == RECORDS
    header = parse_header(result)
    assert header.codec_bits == target
    kept = parse_header(batch)._replace(length=0, crc=0, attributes=0)
    assert header._replace(length=0, crc=0, attributes=0) == kept
    assert header.attributes & ~7 == parse_header(batch).attributes & ~7


def test_a_damaged_batch_is_not_recompressed() -> None:
    batch = bytearray(sample())
    batch[-1] ^= 1
    with pytest.raises(CrcMismatchError):
        recompress(batch, 0, Codec.ZSTD)
