"""Other libraries read our batches, and we read theirs: aiokafka and kafka-python are the
oracles."""

import warnings
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import aiokafka.record.default_records as aiokafka_records
import pytest
from aiokafka.record.memory_records import MemoryRecords as AiokafkaBuffer
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.batch_strategies import codecs, producers, record_lists, timestamps

from stratalog.batch.build import build_batch, recompress
from stratalog.batch.frames import iter_batches
from stratalog.batch.header import Codec, TimestampType, parse_header
from stratalog.batch.records import Record, decode_records, iter_records
from stratalog.batch.stamp import stamp_run
from stratalog.batch.validate import validate

with warnings.catch_warnings():
    # Importing it reads its schemas through a function that Python 3.11 calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    kafka_python_records: Any = import_module("kafka.record.default_records")
    KafkaPythonBuffer: Any = import_module("kafka.record.memory_records").MemoryRecords

OTHERS = pytest.mark.parametrize(
    "other", [aiokafka_records, kafka_python_records], ids=["aiokafka", "kafka-python"]
)
Producer = tuple[int, int, int]


def as_ours(records: Iterable[Any]) -> list[Record]:
    return [
        Record(
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            tuple((name, value) for name, value in record.headers),
        )
        for record in records
    ]


def built_by(
    other: Any, records: list[Record], codec: Codec, producer: Producer, transactional: bool
) -> bytes:
    builder = other.DefaultRecordBatchBuilder(2, codec, transactional, *producer, 2**30)
    for record in records:
        added = builder.append(
            record.offset, record.timestamp, record.key, record.value, list(record.headers)
        )
        assert added is not None
    return bytes(builder.build())


@OTHERS
@settings(max_examples=150, deadline=None)
@given(
    records=record_lists(),
    codec=codecs,
    timestamp_type=st.sampled_from(TimestampType),
    producer=producers,
    transactional=st.booleans(),
    base_offset=st.integers(0, 2**62),
)
def test_others_read_what_we_build(
    other: Any,
    records: list[Record],
    codec: Codec,
    timestamp_type: TimestampType,
    producer: Producer,
    transactional: bool,
    base_offset: int,
) -> None:
    producer_id, producer_epoch, base_sequence = producer
    records = [record._replace(offset=base_offset + record.offset) for record in records]
    batch = build_batch(
        records,
        codec=codec,
        base_offset=base_offset,
        timestamp_type=timestamp_type,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
    )
    theirs = other.DefaultRecordBatch(batch)
    assert theirs.validate_crc()
    assert theirs.timestamp_type == timestamp_type
    assert theirs.is_transactional == transactional
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == producer
    assert theirs.next_offset == base_offset + len(records)
    assert as_ours(theirs) == decode_records(batch)


@OTHERS
@settings(max_examples=150, deadline=None)
@given(records=record_lists(), codec=codecs, producer=producers, transactional=st.booleans())
def test_we_read_and_accept_what_others_build(
    other: Any, records: list[Record], codec: Codec, producer: Producer, transactional: bool
) -> None:
    transactional = transactional and producer[0] >= 0
    batch = built_by(other, records, codec, producer, transactional)
    header = parse_header(batch)
    validate(batch, 0, header, deep=True)
    assert decode_records(batch) == records
    assert header.is_transactional == transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == producer
    assert header.max_timestamp == max(record.timestamp for record in records)


@OTHERS
@settings(max_examples=50, deadline=None)
@given(records=record_lists(), producer=producers)
def test_uncompressed_batches_are_the_same_bytes_as_others_build(
    other: Any, records: list[Record], producer: Producer
) -> None:
    producer_id, producer_epoch, base_sequence = producer
    theirs = built_by(other, records, Codec.NONE, producer, False)
    ours = build_batch(
        records,
        leader_epoch=parse_header(theirs).leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    assert ours == theirs


@pytest.mark.parametrize("reader", [AiokafkaBuffer, KafkaPythonBuffer])
@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(st.tuples(record_lists(max_size=4), codecs), min_size=1, max_size=4),
    base_offset=st.integers(0, 2**62),
    append_time_ms=st.one_of(st.none(), timestamps),
)
def test_others_read_a_stamped_run_of_batches(
    reader: Any,
    batches: list[tuple[list[Record], Codec]],
    base_offset: int,
    append_time_ms: int | None,
) -> None:
    buffer = bytearray(b"".join(build_batch(records, codec=codec) for records, codec in batches))
    offset_end = stamp_run(
        buffer, base_offset=base_offset, leader_epoch=5, append_time_ms=append_time_ms
    )
    theirs: list[Record] = []
    incoming = reader(bytes(buffer))
    while (batch := incoming.next_batch()) is not None:
        assert batch.validate_crc()
        theirs += as_ours(batch)
    sent = [record for records, _ in batches for record in records]
    assert [record.offset for record in theirs] == list(range(base_offset, offset_end))
    assert [record[2:] for record in theirs] == [record[2:] for record in sent]
    expected = [record.timestamp if append_time_ms is None else append_time_ms for record in sent]
    assert [record.timestamp for record in theirs] == expected
    assert list(iter_records(buffer)) == theirs
    assert len(list(iter_batches(buffer))) == len(batches)


@settings(max_examples=150, deadline=None)
@given(
    records=record_lists(),
    source=codecs,
    target=codecs,
    horizon_ms=st.one_of(st.none(), timestamps),
    gap=st.integers(0, 1000),
)
def test_recompressing_keeps_the_records(
    records: list[Record], source: Codec, target: Codec, horizon_ms: int | None, gap: int
) -> None:
    last_offset = records[-1].offset + gap
    batch = build_batch(
        records, codec=source, delete_horizon_ms=horizon_ms, last_offset=last_offset
    )
    result = recompress(batch, 0, target)
    assert decode_records(result) == records
    assert parse_header(result).last_offset == last_offset
    assert parse_header(result).has_delete_horizon == (horizon_ms is not None)
