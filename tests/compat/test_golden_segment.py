"""A segment that Kafka 4.1.1 wrote with its own LogSegment class."""

import json
import struct
from collections import Counter
from pathlib import Path

import pytest

from stratalog.batch.build import build_batch
from stratalog.batch.frames import check_crc, iter_batches
from stratalog.batch.header import BatchHeader, Codec
from stratalog.batch.records import Record, decode_records, true_max_timestamp
from stratalog.batch.stamp import stamp_run
from stratalog.control.segments.model import EpochStart
from stratalog.ids import LeaderEpoch, Offset, ProducerId
from stratalog.segment.batch_framing import whole_batches
from stratalog.segment.build import SegmentBuilder
from stratalog.segment.epoch_checkpoint import decode_checkpoint, encode_checkpoint
from stratalog.segment.model import AbortedTransaction, SourceRun
from stratalog.segment.offset_index import OffsetIndex
from stratalog.segment.producer_snapshot import ProducerEntry
from stratalog.segment.producer_state import PartitionTail
from stratalog.segment.time_index import TimeIndex
from stratalog.segment.txn_index import decode_aborted, encode_aborted

ALL_GOLDEN = Path(__file__).parent.parent / "golden"
GOLDEN = ALL_GOLDEN / "segment_kafka411"
TIERED = (
    ALL_GOLDEN
    / "aiven_compress-false_encrypt-false/pfx/topic1-lZ6vvmajTWKDBUTV6SQAtQ/7"
    / "00000000000000005000-adh9f8BMS4anaUnD8KWfWg"
)


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


@pytest.fixture(scope="module")
def indexes() -> dict[str, bytes]:
    """The files beside the log, as a broker with the plugin stored them."""
    stored = TIERED.with_suffix(".indexes").read_bytes()
    manifest = json.loads(TIERED.with_suffix(".rsm-manifest").read_text())
    return {
        name: stored[part["position"] : part["position"] + part["size"]]
        for name, part in manifest["segmentIndexes"].items()
    }


@pytest.mark.parametrize("stamped", [True, False])
@pytest.mark.parametrize("piece_bytes", [1000, 65536, 10**6])
def test_a_segment_built_of_the_batches_is_kafkas(
    log: bytes, piece_bytes: int, stamped: bool
) -> None:
    source = bytearray(log)
    (epoch,) = {header.leader_epoch for _, header in iter_batches(log)}
    if not stamped:
        stamp_run(source, base_offset=0, leader_epoch=-1)
    run = SourceRun(Offset(5000), Offset(9453), LeaderEpoch(epoch), stamped)
    builder = SegmentBuilder(Offset(5000))
    pieces = (source[at : at + piece_bytes] for at in range(0, len(source), piece_bytes))
    written = b"".join(builder.add(batches, run) for batches in whole_batches(pieces))
    built = builder.finish()
    assert written == log
    assert built.offset_index == (GOLDEN / "00000000000000005000.index").read_bytes()
    assert built.time_index == (GOLDEN / "00000000000000005000.timeindex").read_bytes()
    assert (built.last_offset, built.size_bytes) == (9453, len(log))
    assert built.max_timestamp == 1_700_000_445_760
    assert built.leader_epochs == [EpochStart(LeaderEpoch(epoch), Offset(5000))]


def test_kafkas_indexes_lead_to_every_record(log: bytes, indexes: dict[str, bytes]) -> None:
    offsets = OffsetIndex(indexes["offset"], Offset(5000))
    times = TimeIndex(indexes["timestamp"], Offset(5000))
    offsets.check(len(log))
    times.check(Offset(9453))
    greatest = -1
    for position, header in iter_batches(log):
        start, sure_end = offsets.span(Offset(header.base_offset))
        assert start <= position
        assert sure_end is None or sure_end >= position + header.size_bytes
        for record in decode_records(log, position):
            if record.timestamp > greatest:
                assert times.lookup(record.timestamp) <= record.offset
                greatest = record.timestamp


def test_a_producer_snapshot_is_read_and_written_as_kafka_does(indexes: dict[str, bytes]) -> None:
    tail = PartitionTail.from_snapshot(indexes["producerSnapshot"])
    assert list(tail.producers.values()) == [
        ProducerEntry(ProducerId(4000), 1, 9, Offset(120), 4, 1_700_000_000_000, 5, Offset(77)),
        ProducerEntry(ProducerId(4001), 0, timestamp=1_700_000_000_001),
    ]
    assert tail.to_snapshot() == indexes["producerSnapshot"]


def test_a_transaction_index_is_read_and_written_as_kafka_does(indexes: dict[str, bytes]) -> None:
    entries = decode_aborted(indexes["transaction"])
    assert entries == [
        AbortedTransaction(ProducerId(4000), Offset(10), Offset(20), Offset(15)),
        AbortedTransaction(ProducerId(4001), Offset(12), Offset(30), Offset(31)),
    ]
    assert encode_aborted(entries) == indexes["transaction"]


def test_a_leader_epoch_checkpoint_is_read_and_written_as_kafka_does(
    indexes: dict[str, bytes],
) -> None:
    text = (ALL_GOLDEN / "leader-epoch-checkpoint").read_bytes()
    epochs = decode_checkpoint(text)
    assert epochs == [
        EpochStart(LeaderEpoch(0), Offset(0)),
        EpochStart(LeaderEpoch(3), Offset(5000)),
    ]
    assert encode_checkpoint(epochs) == text == indexes["leaderEpoch"]
