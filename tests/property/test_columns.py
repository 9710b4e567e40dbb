"""Compiled decoding gives the same rows as `records`, and refuses the same batches."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.property.batch_strategies import codecs, contents, headers, timestamps
from tests.property.damages import RECORDS, damages, reseal

from stratalog.batch.build import build_batch
from stratalog.batch.codec import compress
from stratalog.batch.columns import (
    COLUMN_TYPES,
    AbortedRecords,
    BatchRun,
    DecodedRun,
    RecordColumn,
    RecordFilter,
    decode_run,
)
from stratalog.batch.errors import BatchDamagedError
from stratalog.batch.frames import check_crc, codec_of, iter_batches
from stratalog.batch.header import (
    HEADER_BYTES,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    BytesLike,
    Codec,
    TimestampType,
)
from stratalog.batch.records import Record, iter_body
from stratalog.batch.stamp import stamp_run
from stratalog.batch.varint import write_varint, write_varlong

Row = dict[str, Any]
EVERYTHING = RecordFilter(first_offset=0, end_offset=2**63, skip_control=False)
ALL_COLUMNS = list(RecordColumn)
CODECS = pytest.mark.parametrize("codec", list(Codec))
PRODUCERS = st.integers(0, 2)


@st.composite
def batches(draw: st.DrawFn) -> list[bytes]:
    """Stamped batches in the order of their offsets, some compacted, some of transactions."""
    made: list[bytes] = []
    next_offset = 0
    for _ in range(draw(st.integers(0, 4))):
        base_offset = next_offset + draw(st.integers(0, 3))
        records, next_offset = draw(record_runs(base_offset))
        is_control = draw(st.booleans()) and draw(st.booleans())
        made.append(
            build_batch(
                records,
                codec=draw(codecs),
                base_offset=base_offset,
                leader_epoch=draw(st.integers(0, 5)),
                timestamp_type=draw(st.sampled_from(TimestampType)),
                producer_id=draw(PRODUCERS),
                transactional=is_control or draw(st.booleans()),
                control=is_control,
                last_offset=next_offset - 1,
            )
        )
    return made


@st.composite
def record_runs(draw: st.DrawFn, base_offset: int) -> tuple[list[Record], int]:
    """Records with or without gaps between and after them, and the offset that comes next."""
    gaps = st.integers(0, 2) if draw(st.booleans()) else st.just(0)
    records: list[Record] = []
    offset = base_offset + draw(gaps)
    for parts in draw(
        st.lists(st.tuples(timestamps, contents, contents, headers), min_size=0, max_size=6)
    ):
        records.append(Record(offset, *parts))
        offset += 1 + draw(gaps)
    return records, max(offset, base_offset + 1)


@st.composite
def filters(draw: st.DrawFn) -> RecordFilter:
    times = st.one_of(st.none(), timestamps)
    aborted = st.builds(AbortedRecords, PRODUCERS, st.integers(0, 20), st.integers(0, 40))
    return RecordFilter(
        first_offset=draw(st.one_of(st.just(0), st.integers(-5, 30))),
        end_offset=draw(st.one_of(st.just(2**63 - 1), st.integers(0, 30))),
        first_timestamp_ms=draw(times),
        end_timestamp_ms=draw(times),
        aborted=draw(st.lists(aborted, max_size=3)),
        skip_control=draw(st.booleans()),
    )


column_choices = st.one_of(
    st.just(ALL_COLUMNS), st.lists(st.sampled_from(RecordColumn), unique=True)
)


def reference_rows(data: BytesLike, run: BatchRun, keep: RecordFilter) -> Iterator[Row]:
    """The rows as the interpreted decoder sees them."""
    next_offset = run.base_offset
    for position, found in iter_batches(data):
        check_crc(data, position, found)
        codec_of(found, position)
        header = placed(found, run, next_offset)
        if header.last_offset_delta < 0:
            raise BatchDamagedError(position + 23, "the last offset delta is negative", position)
        if header.base_offset < next_offset:
            raise BatchDamagedError(position, "offsets go backwards", position)
        next_offset = header.last_offset + 1
        if header.is_control and keep.skip_control:
            continue
        for record in iter_body(data, position, header):
            if is_kept(header, record, keep):
                yield row_of(header, record)


def placed(header: BatchHeader, run: BatchRun, base_offset: int) -> BatchHeader:
    """The header once the log has stamped it."""
    if run.stamped:
        return header
    header = header._replace(base_offset=base_offset, leader_epoch=run.leader_epoch)
    if run.append_time_ms is None:
        return header
    attributes = header.attributes | TIMESTAMP_TYPE_BIT
    return header._replace(attributes=attributes, max_timestamp=run.append_time_ms)


def is_kept(header: BatchHeader, record: Record, keep: RecordFilter) -> bool:
    first_ms, end_ms = keep.first_timestamp_ms, keep.end_timestamp_ms
    return (
        keep.first_offset <= record.offset < keep.end_offset
        and (first_ms is None or first_ms <= record.timestamp)
        and (end_ms is None or record.timestamp < end_ms)
        and not is_aborted(header, record.offset, keep.aborted)
    )


def is_aborted(header: BatchHeader, offset: int, aborted: Sequence[AbortedRecords]) -> bool:
    is_data = header.is_transactional and not header.is_control
    return is_data and any(
        producer == header.producer_id and first <= offset <= last
        for producer, first, last in aborted
    )


def row_of(header: BatchHeader, record: Record) -> Row:
    return {
        "key": record.key,
        "value": record.value,
        "offset": record.offset,
        "timestamp": saturated(record.timestamp),
        "timestampType": int(header.timestamp_type),
        "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
        "leaderEpoch": header.leader_epoch,
    }


def saturated(timestamp_ms: int) -> int:
    last_ms = (2**63 - 1) // 1000
    if abs(timestamp_ms) <= last_ms:
        return timestamp_ms * 1000
    return 2**63 - 1 if timestamp_ms > 0 else -(2**63)


def rows_of(table: pa.RecordBatch) -> list[Row]:
    """Times as they are stored: Python has none for most of them."""
    table.validate(full=True)
    arrays = [
        each.cast(pa.int64()) if pa.types.is_timestamp(each.type) else each
        for each in table.columns
    ]
    rows: list[Row] = pa.RecordBatch.from_arrays(arrays, names=table.schema.names).to_pylist()
    return rows


def check_rows(
    data: BytesLike, run: BatchRun, columns: list[RecordColumn], keep: RecordFilter
) -> DecodedRun:
    decoded = decode_run(data, run, columns, keep)
    wanted = pa.schema([(column.value, COLUMN_TYPES[column]) for column in columns])
    assert decoded.columns.schema.equals(wanted)
    expected = list(reference_rows(data, run, keep))
    assert decoded.columns.num_rows == len(expected)
    if columns:
        projected = [{name.value: row[name] for name in columns} for row in expected]
        assert rows_of(decoded.columns) == projected
    return decoded


@settings(max_examples=100, deadline=None)
@given(made=batches(), columns=column_choices, keep=filters())
def test_stamped_batches_give_the_rows_of_the_interpreted_decoder(
    made: list[bytes], columns: list[RecordColumn], keep: RecordFilter
) -> None:
    data = b"".join(made)
    decoded = check_rows(data, BatchRun(0), columns, keep)
    ends = [header.last_offset + 1 for _, header in iter_batches(data)]
    assert decoded.next_offset == (ends[-1] if ends else 0)


@settings(max_examples=80, deadline=None)
@given(
    made=batches(),
    columns=column_choices,
    keep=filters(),
    base_offset=st.integers(0, 10),
    append_time_ms=st.one_of(st.none(), timestamps),
)
def test_unstamped_batches_give_the_rows_that_they_give_when_stamped(
    made: list[bytes],
    columns: list[RecordColumn],
    keep: RecordFilter,
    base_offset: int,
    append_time_ms: int | None,
) -> None:
    data = b"".join(made)
    run = BatchRun(base_offset, stamped=False, leader_epoch=9, append_time_ms=append_time_ms)
    decoded = check_rows(memoryview(data), run, columns, keep)
    stamped = bytearray(data)
    next_offset = stamp_run(
        stamped, base_offset=base_offset, leader_epoch=9, append_time_ms=append_time_ms
    )
    assert decoded == decode_run(stamped, BatchRun(base_offset), columns, keep)
    assert decoded.next_offset == next_offset


def outcome(rows: Callable[[], list[Row]]) -> list[Row] | tuple[object, ...]:
    """The decoded records, or the position of the damage."""
    try:
        return rows()
    except BatchDamagedError as error:
        return type(error), error.position, error.batch_start


def check_same_outcome(data: bytes, *, stamped: bool = False) -> None:
    run, keep = BatchRun(0, stamped=stamped), EVERYTHING
    compiled = outcome(lambda: rows_of(decode_run(data, run, ALL_COLUMNS, keep).columns))
    assert compiled == outcome(lambda: list(reference_rows(data, run, keep)))


@CODECS
@settings(max_examples=30, deadline=None)
@given(damage=damages(), count=st.integers(1, 3), stamped=st.booleans())
def test_damage_is_found_where_the_interpreted_decoder_finds_it(
    codec: Codec, damage: Callable[[bytes], bytes], count: int, stamped: bool
) -> None:
    check_same_outcome(damage(build_batch(RECORDS, codec=codec) * count), stamped=stamped)


@CODECS
@settings(max_examples=40, deadline=None)
@given(damage=st.lists(damages(), min_size=1, max_size=3))
def test_damage_behind_a_good_crc_is_found_where_the_interpreted_decoder_finds_it(
    codec: Codec, damage: list[Callable[[bytes], bytes]]
) -> None:
    damaged = build_batch(RECORDS, codec=codec)
    for step in damage:
        damaged = step(damaged) or b"\x00"
    check_same_outcome(reseal(damaged))


@settings(max_examples=120, deadline=None)
@given(
    damage=st.lists(damages(), min_size=1, max_size=2),
    inner=st.binary(max_size=60),
    codec=codecs,
    is_noise=st.booleans(),
    count=st.integers(0, 5),
)
def test_damaged_records_are_refused_or_decoded_as_the_interpreted_decoder_does(
    damage: list[Callable[[bytes], bytes]], inner: bytes, codec: Codec, is_noise: bool, count: int
) -> None:
    plain = build_batch(RECORDS)
    body = plain[HEADER_BYTES:]
    for step in damage:
        body = step(body) or b"\x00"
    body = inner if is_noise else body
    outer = bytearray(plain[:HEADER_BYTES] + compress(codec, body))
    outer[22] = codec
    outer[57:61] = count.to_bytes(4)
    check_same_outcome(reseal(bytes(outer)))


varints = st.one_of(
    st.integers(-(2**31), 2**31 - 1), st.integers(-2, 70), st.integers(-(2**63), 2**63 - 1)
)


@st.composite
def records_of_any_numbers(draw: st.DrawFn) -> bytes:
    """Records that are framed well, of fields with any number in any length of varint."""
    body = bytearray()
    for _ in range(draw(st.integers(1, 3))):
        record = bytearray(1)
        for _ in range(draw(st.integers(0, 10))):
            record += draw(loose_varints())
            record += draw(st.binary(max_size=4))
        write_varint(body, len(record) + draw(st.sampled_from([0, 0, 0, 0, 1, -1])))
        body += record
    return bytes(body)


@st.composite
def loose_varints(draw: st.DrawFn) -> bytes:
    out = bytearray()
    write_varlong(out, draw(varints))
    padding = draw(st.sampled_from([0, 0, 0, 1, 4, 9]))
    if padding:
        out[-1] |= 0x80
        out += b"\x80" * (padding - 1) + bytes([draw(st.integers(0, 3))])
    return bytes(out)


@settings(max_examples=150, deadline=None)
@given(body=records_of_any_numbers(), base_timestamp=varints, count=st.integers(1, 3))
def test_any_numbers_in_records_mean_what_they_mean_to_the_interpreted_decoder(
    body: bytes, base_timestamp: int, count: int
) -> None:
    outer = bytearray(build_batch(RECORDS)[:HEADER_BYTES] + body)
    outer[27:35] = base_timestamp.to_bytes(8, signed=True)
    outer[57:61] = count.to_bytes(4)
    check_same_outcome(reseal(bytes(outer)))


@settings(max_examples=60, deadline=None)
@given(
    names=st.lists(st.binary(max_size=6), min_size=1, max_size=4),
    value=st.one_of(st.none(), st.binary(max_size=3)),
)
@example(names=[b"\xff", b"\xed\xa0\x80", b"\xc3\xa4"], value=None)
def test_any_bytes_make_the_header_names_that_the_interpreted_decoder_makes(
    names: list[bytes], value: bytes | None
) -> None:
    """Names are built as text of the same length in bytes, and then replaced."""
    places = [f"{index:06}"[: len(name)] for index, name in enumerate(names)]
    records = [Record(0, 5, b"k", b"v", tuple((place, value) for place in places))]
    data = build_batch(records)
    for place, name in zip(places, names, strict=True):
        data = data.replace(bytes([2 * len(name)]) + place.encode(), bytes([2 * len(name)]) + name)
    check_same_outcome(reseal(data))
