"""Columns as record batches, read back by the plain decoder."""

import os
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from stratalog.batch.build import build_batch
from stratalog.batch.errors import RecordTooLargeError, RowError
from stratalog.batch.from_columns import (
    ColumnEncoder,
    Destination,
    EncodedBatch,
    RecordColumns,
    Stickiness,
    byte_column,
    choose_partitions,
    header_column,
    no_bytes,
    no_headers,
    record_columns,
    timestamp_column,
)
from stratalog.batch.header import HEADER_BYTES, Codec, parse_header
from stratalog.batch.murmur2 import partition_of_key
from stratalog.batch.records import Record, decode_records
from stratalog.batch.validate import validate

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NOW_MS = 1_700_000_000_000


def place(**changes: object) -> Destination:
    settings = {"name": "orders-0", "codec": Codec.NONE, "max_batch_bytes": 1 << 20, **changes}
    return Destination(**settings)  # type: ignore[arg-type]


def columns(records: Sequence[Record]) -> RecordColumns:
    return record_columns(
        np.array([record.timestamp for record in records], np.int64),
        byte_column(pa.array([record.key for record in records], pa.binary())),
        byte_column(pa.array([record.value for record in records], pa.binary())),
        header_column(pa.array([[*map(_header, record.headers)] for record in records], HEADERS)),
    )


def _header(header: tuple[str, bytes | None]) -> dict[str, object]:
    return {"key": header[0], "value": header[1]}


def values(*texts: bytes | None) -> RecordColumns:
    return columns([Record(at, NOW_MS, None, text) for at, text in enumerate(texts)])


def encode(
    records: RecordColumns, *places: Destination, to: Sequence[int] | None = None
) -> list[EncodedBatch]:
    rows = len(records.timestamps_ms)
    destinations = np.array([0] * rows if to is None else to, np.int64)
    return list(ColumnEncoder().encode(records, destinations, places))


RECORDS = [
    Record(0, NOW_MS, b"key", b"value"),
    Record(1, NOW_MS + 5, None, b"no key"),
    Record(2, NOW_MS - 70_000, b"", None),
    Record(3, NOW_MS, b"k" * 64, b"v" * 9000, (("a", b"1"), ("a", None), ("", b""))),
    Record(4, NOW_MS + (1 << 40), b"\x00\xff", b"", (("name \u00e4", b"x" * 200),)),
]


@pytest.mark.parametrize("codec", Codec)
def test_records_come_back_as_they_went_in(codec: Codec) -> None:
    [batch] = encode(columns(RECORDS), place(codec=codec))
    assert decode_records(batch.data) == RECORDS
    assert batch.header == parse_header(batch.data)
    validate(batch.data, 0, batch.header, max_batch_bytes=1 << 20, deep=True)


def test_the_bytes_are_those_of_the_plain_builder() -> None:
    [batch] = encode(columns(RECORDS), place())
    assert batch.data == build_batch(RECORDS)


def test_text_is_written_as_utf_8() -> None:
    text = pa.array(["\u00e4\u00f6", None], pa.string())
    records = record_columns(
        np.full(2, NOW_MS, np.int64), no_bytes(2), byte_column(text), no_headers(2)
    )
    [batch] = encode(records, place())
    assert [record.value for record in decode_records(batch.data)] == [
        "\u00e4\u00f6".encode(),
        None,
    ]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_slices_of_columns_are_read_from_where_they_begin(kind: pa.DataType) -> None:
    whole = pa.array([b"a", None, b"ccc", b"d", None], kind)
    lists = pa.array([None, [], [{"key": "n", "value": b"w"}], None, []], HEADERS)
    records = record_columns(
        np.full(3, NOW_MS, np.int64),
        no_bytes(3),
        byte_column(whole.slice(1, 3)),
        header_column(lists.slice(1, 3)),
    )
    [batch] = encode(records, place())
    read = decode_records(batch.data)
    assert [record.value for record in read] == [None, b"ccc", b"d"]
    assert [record.headers for record in read] == [(), (("n", b"w"),), ()]


def test_a_list_that_is_null_has_no_headers_whatever_lies_below_it() -> None:
    below = pa.array([{"key": "x", "value": b"1"}], HEADERS.value_type)
    lists = pa.ListArray.from_arrays([0, 1], below, mask=pa.array([True]))
    records = record_columns(
        np.full(1, NOW_MS, np.int64), no_bytes(1), no_bytes(1), header_column(lists)
    )
    [batch] = encode(records, place())
    assert decode_records(batch.data)[0].headers == ()


@pytest.mark.parametrize("header", [{"key": None, "value": b"x"}, None])
def test_a_header_without_a_name_is_refused_with_its_row(header: object) -> None:
    lists = pa.array([[{"key": "a", "value": None}], [], [{"key": "b", "value": b""}, header]])
    with pytest.raises(RowError, match="row 2: a header has no key"):
        header_column(lists.cast(HEADERS))


def test_rows_go_to_their_destinations_and_keep_their_order() -> None:
    to = [2, 0, 2, 0, 0, 2]
    batches = encode(values(*(b"%d" % at for at in range(6))), *[place()] * 3, to=to)
    assert [(one.destination, one.header.records_count) for one in batches] == [(0, 3), (2, 3)]
    read = [[record.value for record in decode_records(one.data)] for one in batches]
    assert read == [[b"1", b"3", b"4"], [b"0", b"2", b"5"]]
    offsets = [record.offset for record in decode_records(batches[1].data)]
    assert offsets == [0, 1, 2]


def test_a_batch_is_full_to_the_last_byte_and_not_beyond() -> None:
    """A value of 100 bytes makes a record of 109: two lengths of 2 bytes, and 5 single ones."""
    exact = place(max_batch_bytes=HEADER_BYTES + 3 * 109)
    short = place(max_batch_bytes=HEADER_BYTES + 3 * 109 - 1)
    rows = values(*[b"x" * 100] * 6)
    assert [one.header.records_count for one in encode(rows, exact)] == [3, 3]
    assert [one.header.records_count for one in encode(rows, short)] == [2, 2, 2]
    assert len(encode(rows, exact)[0].data) == exact.max_batch_bytes


def test_a_batch_has_its_own_first_and_greatest_time() -> None:
    times = [NOW_MS + 3, NOW_MS + 9, NOW_MS + 1, NOW_MS - 5, NOW_MS - 4]
    rows = columns([Record(at, time, None, b"x" * 100) for at, time in enumerate(times)])
    batches = encode(rows, place(max_batch_bytes=HEADER_BYTES + 3 * 109))
    stamps = [(one.header.base_timestamp, one.header.max_timestamp) for one in batches]
    assert stamps == [(NOW_MS + 3, NOW_MS + 9), (NOW_MS - 5, NOW_MS - 4)]
    read = [record.timestamp for one in batches for record in decode_records(one.data)]
    assert read == times


def test_a_large_record_is_a_batch_of_its_own_if_it_shrinks_enough() -> None:
    rows = values(b"a", b"z" * (3 << 20), b"b")
    batches = encode(rows, place(codec=Codec.ZSTD))
    assert [one.header.records_count for one in batches] == [1, 1, 1]
    assert decode_records(batches[1].data)[0].value == b"z" * (3 << 20)


def test_a_record_that_its_topic_does_not_take_is_named_with_its_size() -> None:
    """One byte decides: 1000 bytes of value are 1009 of record."""
    rows = values(b"a", b"x" * 1000)
    encode(rows, place(max_batch_bytes=HEADER_BYTES + 1009))
    with pytest.raises(RecordTooLargeError) as caught:
        encode(rows, place(max_batch_bytes=HEADER_BYTES + 1008))
    assert caught.value.row == 1
    assert "orders-0 has 1070 bytes with codec none" in str(caught.value)
    assert "max.message.bytes is 1069" in str(caught.value)


def test_what_does_not_shrink_stays_uncompressed_unless_the_topic_says_otherwise() -> None:
    noise = values(os.urandom(500))
    [free] = encode(noise, place(codec=Codec.GZIP))
    [bound] = encode(noise, place(codec=Codec.GZIP, keep_codec=True))
    assert free.header.codec_bits == Codec.NONE
    assert bound.header.codec_bits == Codec.GZIP
    assert decode_records(free.data) == decode_records(bound.data)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("max_batch_bytes", [1_048_588, 2_000])
def test_noise_fits_into_a_topic_that_compresses_although_it_grows(
    codec: Codec, max_batch_bytes: int
) -> None:
    noise = [os.urandom(100) for _ in range(max_batch_bytes // 40)]
    bound = place(codec=codec, keep_codec=True, max_batch_bytes=max_batch_bytes)
    batches = encode(values(*noise), bound)
    assert len(batches) > 1
    assert {one.header.codec_bits for one in batches} == {codec}
    assert all(len(one.data) <= max_batch_bytes for one in batches)
    assert [record.value for one in batches for record in decode_records(one.data)] == noise


def test_no_rows_make_no_batches() -> None:
    assert encode(values(), place()) == []


def test_a_greater_buffer_is_made_when_it_is_needed_and_then_kept() -> None:
    encoder = ColumnEncoder()
    for size in (10, 5000, 20):
        [batch] = encoder.encode(values(b"x" * size), np.zeros(1, np.int64), [place()])
        assert decode_records(batch.data)[0].value == b"x" * size


def test_microseconds_become_milliseconds_rounded_down_and_nulls_now() -> None:
    micros = pa.array([1_999, 0, -1, None], pa.timestamp("us", "UTC"))
    assert timestamp_column(micros, 42).tolist() == [1, 0, -1, 42]


def choose(
    keys: Sequence[bytes | None], partitions: int, given: Sequence[int], sticky: Stickiness
) -> list[int]:
    rows = len(keys)
    chosen = choose_partitions(
        np.zeros(rows, np.int64),
        np.array([partitions]),
        np.array(given, np.int64),
        byte_column(pa.array(keys, pa.binary())),
        np.full(rows, 10, np.int64),
        sticky,
    )
    return [int(one) for one in chosen]


def stickiness(start: int = 0, max_bytes: int = 1 << 20) -> Stickiness:
    return Stickiness(np.array([start]), np.zeros(1, np.int64), max_bytes)


def test_keys_choose_partitions_as_the_plain_hash_does() -> None:
    keys = [os.urandom(size) for size in range(64)] + [b"\xff" * size for size in range(8)]
    for partitions in (1, 3, 1000):
        chosen = choose(keys, partitions, [-1] * len(keys), stickiness())
        assert chosen == [partition_of_key(key, partitions) for key in keys]


def test_a_given_partition_wins_over_the_key() -> None:
    assert choose([b"a", b"a", None], 8, [5, -1, 3], stickiness()) == [
        5,
        partition_of_key(b"a", 8),
        3,
    ]


def test_rows_without_a_key_take_turns_and_go_on_where_they_were() -> None:
    sticky = stickiness(start=1, max_bytes=20)
    assert choose([None] * 5, 3, [-1] * 5, sticky) == [1, 1, 2, 2, 0]
    assert choose([None] * 4, 3, [-1] * 4, sticky) == [0, 1, 1, 2]
