"""A segment that Kafka 4.1.1 wrote with its own LogSegment class."""

import struct
from collections import Counter
from pathlib import Path

import pytest

from stratalog.batch.build import build_batch
from stratalog.batch.frames import check_crc, iter_batches
from stratalog.batch.header import BatchHeader, Codec
from stratalog.batch.records import Record, decode_records, true_max_timestamp
from stratalog.batch.stamp import stamp_run

GOLDEN = Path(__file__).parent.parent / "golden" / "segment_kafka411"


@pytest.fixture(scope="module")
def log() -> bytes:
    return (GOLDEN / "00000000000000005000.log").read_bytes()


def rebuild(header: BatchHeader, records: list[Record]) -> bytes:
    return build_batch(
        records,
        codec=Codec(header.codec_bits),
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        timestamp_type=header.timestamp_type,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
    )


def test_every_batch_is_found_and_its_crc_holds(log: bytes) -> None:
    codecs: Counter[Codec] = Counter()
    for position, header in iter_batches(log):
        check_crc(log, position, header)
        codecs[Codec(header.codec_bits)] += 1
    assert codecs == {Codec.NONE: 134, Codec.GZIP: 133, Codec.ZSTD: 133}


def test_offsets_are_dense_over_the_segment(log: bytes) -> None:
    offsets = [
        record.offset
        for position, _ in iter_batches(log)
        for record in decode_records(log, position)
    ]
    assert offsets == list(range(5000, 9454))


def test_headers_agree_with_their_records(log: bytes) -> None:
    for position, header in iter_batches(log):
        records = decode_records(log, position)
        assert len(records) == header.records_count
        assert records[-1].offset == header.last_offset
        assert records[0].timestamp == header.base_timestamp
        assert true_max_timestamp(records) == header.max_timestamp


def test_batches_lie_where_kafkas_offset_index_says(log: bytes) -> None:
    entries = struct.iter_unpack(">ii", (GOLDEN / "00000000000000005000.index").read_bytes())
    position_of = {header.last_offset: position for position, header in iter_batches(log)}
    found = [position_of[5000 + relative] == position for relative, position in entries]
    assert len(found) == 142
    assert all(found)


def test_the_greatest_timestamp_is_the_last_of_kafkas_time_index(log: bytes) -> None:
    timestamp, relative = struct.unpack(
        ">qi", (GOLDEN / "00000000000000005000.timeindex").read_bytes()[-12:]
    )
    greatest = max((header.max_timestamp, -header.last_offset) for _, header in iter_batches(log))
    assert greatest == (timestamp, -(5000 + relative))


def test_uncompressed_batches_are_rebuilt_byte_for_byte(log: bytes) -> None:
    rebuilt = 0
    for position, header in iter_batches(log):
        if header.codec_bits == Codec.NONE:
            batch = log[position : position + header.size_bytes]
            assert rebuild(header, decode_records(log, position)) == batch
            rebuilt += 1
    assert rebuilt == 134


def test_compressed_batches_are_rebuilt_with_the_same_records(log: bytes) -> None:
    for position, header in iter_batches(log):
        records = decode_records(log, position)
        assert decode_records(rebuild(header, records)) == records


def test_stamping_with_the_segments_own_offsets_changes_nothing(log: bytes) -> None:
    buffer = bytearray(log)
    (epoch,) = {header.leader_epoch for _, header in iter_batches(log)}
    assert stamp_run(buffer, base_offset=5000, leader_epoch=epoch) == 9454
    assert buffer == log
