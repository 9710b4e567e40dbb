"""Records that no reader could decode stay out, and the error names the first of them."""

from typing import Any

import pytest
from tests.unit.batch.edits import RECORDS, edit, sample, with_body

from stratalog.batch.build import build_batch
from stratalog.batch.codec import compress
from stratalog.batch.errors import (
    BatchDamagedError,
    DecompressedTooLargeError,
    InvalidBatchError,
    InvalidTimestampError,
    RecordFault,
    record_faults_of,
)
from stratalog.batch.header import HEADER_BYTES, Codec, parse_header
from stratalog.batch.records import Record
from stratalog.batch.validate import validate
from stratalog.batch.varint import write_varint, write_varlong

BODY = sample()[HEADER_BYTES:]


def walk(batch: bytes, *, most_bytes: int = 1 << 20, **rules: Any) -> int | None:
    header = parse_header(batch)
    return validate(batch, 0, header, deep=True, max_decompressed_bytes=most_bytes, **rules)


def varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


def raw_record(
    *,
    timestamp: bytes = b"\0",
    offset: bytes = b"\0",
    key: bytes = b"\1",
    value: bytes = b"\1",
    headers: bytes = b"\0",
    more: bytes = b"",
) -> bytes:
    """A record of a null key and a null value, unless its parts are given."""
    body = b"\0" + timestamp + offset + key + value + headers + more
    return varint(len(body)) + body


def one(body: bytes) -> bytes:
    return with_body(edit(sample(), records_count=1, last_offset_delta=0), body)


def test_the_greatest_timestamp_is_that_of_the_records() -> None:
    assert walk(edit(sample(), max_timestamp=-1)) == RECORDS[1].timestamp
    assert walk(build_batch([Record(0, -1, None, b"v")])) == -1


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(BODY[:-1], id="cut"),
        pytest.param(BODY + b"\0", id="more bytes"),
        pytest.param(BODY + BODY[:1], id="the beginning of another record"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_records_fill_their_batch(codec: Codec, body: bytes) -> None:
    with pytest.raises(BatchDamagedError):
        walk(with_body(sample(codec), compress(codec, body)))


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("count", [1, 2, 4, 5])
def test_a_batch_has_as_many_records_as_its_header_says(codec: Codec, count: int) -> None:
    assert walk(edit(sample(codec), records_count=3, last_offset_delta=2)) is not None
    with pytest.raises(BatchDamagedError):
        walk(edit(sample(codec), records_count=count, last_offset_delta=count - 1))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_one_compressed_record_cannot_stand_for_two_thousand_million(codec: Codec) -> None:
    batch = build_batch([Record(0, 1, None, b"value")], codec=codec)
    with pytest.raises(BatchDamagedError, match="record 1: its length does not fit"):
        walk(edit(batch, records_count=2**31 - 1, last_offset_delta=2**31 - 2))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_bytes_that_are_not_compressed_stay_out(codec: Codec) -> None:
    with pytest.raises(BatchDamagedError):
        walk(with_body(sample(codec), b"\xa5" * 16))


def test_bytes_that_are_no_records_stay_out() -> None:
    with pytest.raises(BatchDamagedError, match="record 0"):
        walk(with_body(sample(), b"\xff" * 21))


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (raw_record(timestamp=b"\x80" * 10 + b"\0"), "its timestamp is cut off"),
        (raw_record(timestamp=b"\xfe" + b"\xff" * 8 + b"\x01"), "its timestamp exceeds 64 bits"),
        (raw_record(offset=b"\2"), "its offset delta is not its place in the batch"),
        (raw_record(offset=b"\1"), "its offset delta is not its place in the batch"),
        (raw_record(key=varint(-2)), "its key or value does not fit"),
        (raw_record(key=varint(9)), "its key or value does not fit"),
        (raw_record(value=varint(-2)), "its key or value does not fit"),
        (raw_record(value=b"\xff" * 5), "its key or value does not fit"),
        (raw_record(value=varint(2)), "its key or value does not fit"),
        (raw_record(headers=varint(-1)), "its headers do not fit"),
        (raw_record(headers=varint(1)), "its headers do not fit"),
        (raw_record(headers=varint(1) + varint(-1) + varint(-1)), "its headers do not fit"),
        (raw_record(headers=varint(1) + varint(0) + varint(-2)), "its headers do not fit"),
        (raw_record(headers=varint(1) + varint(0) + varint(1)), "its headers do not fit"),
        (raw_record(more=b"\0"), "it does not end with its last header"),
        (b"\x0a" + raw_record()[1:], "its length does not fit"),
        (b"\x0e" + raw_record()[1:], "its length does not fit"),
    ],
)
def test_a_record_that_cannot_be_decoded_is_named(record: bytes, reason: str) -> None:
    assert walk(one(raw_record())) is not None
    with pytest.raises(BatchDamagedError) as caught:
        walk(one(record))
    assert caught.value.reason == f"record 0: {reason}"
    assert caught.value.position == HEADER_BYTES
    assert record_faults_of(caught.value) == (RecordFault(0, reason),)


def test_headers_may_have_empty_names_and_null_values() -> None:
    walk(one(raw_record(headers=varint(2) + varint(0) + varint(-1) + varint(0) + varint(0))))


def test_the_place_of_a_fault_is_a_byte_of_the_batch_or_of_the_decompressed_records() -> None:
    cut = BODY[:-1]
    with pytest.raises(BatchDamagedError) as plain:
        walk(with_body(sample(), cut))
    assert plain.value.position > HEADER_BYTES
    with pytest.raises(BatchDamagedError, match="decompressed byte") as packed:
        walk(with_body(sample(Codec.LZ4), compress(Codec.LZ4, cut)))
    assert packed.value.position == HEADER_BYTES


def test_all_records_outside_the_bounds_are_named_up_to_a_bound() -> None:
    batch = build_batch([Record(place, 1000 + place, None, b"") for place in range(100)])
    with pytest.raises(InvalidTimestampError, match="and 49 more records") as caught:
        walk(edit(batch, max_timestamp=1049), latest_timestamp_ms=1049)
    faults = record_faults_of(caught.value)
    assert [fault.record for fault in faults] == list(range(50, 82))
    assert faults[0].reason == "its timestamp 1050 is after 1049"


def test_a_record_without_a_timestamp_is_outside_no_bounds() -> None:
    walk(build_batch([Record(0, -1, None, b"")]), earliest_timestamp_ms=5, latest_timestamp_ms=6)


@pytest.mark.parametrize("null", [b"\x01", b"\x81\x00"])
def test_a_null_key_is_one_however_it_is_written(null: bytes) -> None:
    with pytest.raises(InvalidBatchError, match="no key"):
        walk(one(raw_record(key=null)), keys_required=True)
    walk(one(raw_record(key=b"\0")), keys_required=True)


@pytest.mark.parametrize("codec", list(Codec))
def test_records_grow_to_the_bound_and_no_further(codec: Codec) -> None:
    record = Record(0, 1, None, b"x" * 1000)
    size_bytes = len(build_batch([record])) - HEADER_BYTES
    batch = build_batch([record], codec=codec)
    walk(batch, most_bytes=size_bytes)
    if codec is not Codec.NONE:
        with pytest.raises(DecompressedTooLargeError):
            walk(batch, most_bytes=size_bytes - 1)


def test_a_timestamp_may_need_all_64_bits() -> None:
    out = bytearray()
    write_varlong(out, -(2**63))
    batch = edit(one(raw_record(timestamp=bytes(out))), base_timestamp=0, max_timestamp=0)
    assert walk(batch) == -1
