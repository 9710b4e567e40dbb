from dataclasses import replace
from uuid import UUID

import pytest
from tests.unit.segment.layout_golden import KEY_BASE, SEGMENT_ID, TOPIC_ID

from stratalog.control.segments.model import EpochStart, Segment, SegmentState, SegmentUploaded
from stratalog.ids import (
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    SegmentId,
    TopicPartition,
)
from stratalog.segment.errors import RemoteLogRecordError, UnexportableSegmentError
from stratalog.segment.remote_log_metadata import (
    NamedPartition,
    PartitionDeleted,
    PartitionDeleteState,
    RemoteLogRecord,
    SegmentAdded,
    SegmentSnapshot,
    SegmentUpdated,
    decode_record,
    encode_record,
    export_records,
    metadata_partition,
)

PARTITION = NamedPartition("topic1", TOPIC_ID, PartitionIndex(42))
EPOCHS = tuple(
    EpochStart(LeaderEpoch(epoch), Offset(start)) for epoch, start in ((0, 0), (1, 200), (2, 300))
)
ADDED = SegmentAdded(
    partition=PARTITION,
    segment_id=SEGMENT_ID,
    base_offset=Offset(0),
    last_offset=Offset(1000),
    broker_id=BrokerId(2),
    max_timestamp=1_000_000_000,
    event_ms=2_000_000_000,
    leader_epochs=EPOCHS,
    size_bytes=100_500,
    txn_index_empty=True,
)
FINISHED = SegmentUpdated(
    partition=PARTITION,
    segment_id=SEGMENT_ID,
    broker_id=BrokerId(2),
    event_ms=2_000_000_001,
    custom_metadata=None,
    state=SegmentState.COPY_FINISHED,
)
DELETING = replace(FINISHED, custom_metadata=bytes([1, 0, 1, 2]), state=SegmentState.DELETE_STARTED)
MARKED = PartitionDeleted(
    partition=PARTITION,
    broker_id=BrokerId(2),
    event_ms=2_000_000_002,
    state=PartitionDeleteState.MARKED,
)

# Bytes that Kafka 4.1.1 wrote.
_ID = "07746f70696331959eafbe66a34d62830544d5e92400b50000002a00"
_SEGMENT = "69d87d7fc04c4b86a76949c3f0a59f5a00"
ADDED_HEX = (
    f"010000{_ID}{_SEGMENT}000000000000000000000000000003e800000002000000003b9aca00"
    "000000007735940004000000000000000000000000000000000100000000000000c8000000000200"
    "0000000000012c0000018894000001000101"
)
GOLDEN: list[tuple[RemoteLogRecord, str]] = [
    (ADDED, ADDED_HEX),
    (FINISHED, f"010100{_ID}{_SEGMENT}000000020000000077359401000100"),
    (DELETING, f"010100{_ID}{_SEGMENT}00000002000000007735940105010001020200"),
    (MARKED, f"010200{_ID}0000000200000000773594020000"),
]


@pytest.mark.parametrize(("record", "golden"), GOLDEN)
def test_records_are_those_of_kafka_byte_for_byte(record: RemoteLogRecord, golden: str) -> None:
    assert encode_record(record).hex() == golden
    assert decode_record(bytes.fromhex(golden)) == record


@pytest.mark.parametrize("custom_metadata", [None, b"", b"x" * 200])
@pytest.mark.parametrize("txn_index_empty", [False, True])
def test_a_segment_comes_back_as_it_was_written(
    custom_metadata: bytes | None, txn_index_empty: bool
) -> None:
    record = replace(ADDED, custom_metadata=custom_metadata, txn_index_empty=txn_index_empty)
    assert decode_record(encode_record(record)) == record


def test_a_snapshot_record_comes_back_as_it_was_written() -> None:
    record = SegmentSnapshot(
        segment_id=SEGMENT_ID,
        base_offset=Offset(1),
        last_offset=Offset(2),
        broker_id=BrokerId(3),
        max_timestamp=4,
        event_ms=5,
        leader_epochs=EPOCHS,
        size_bytes=6,
        custom_metadata=b"7",
        state=SegmentState.COPY_FINISHED,
        txn_index_empty=True,
    )
    assert decode_record(encode_record(record)) == record


def test_tagged_fields_that_are_unknown_are_skipped() -> None:
    ended = ADDED_HEX.removesuffix("01000101")
    assert decode_record(bytes.fromhex(ended + "0200010107026162")) == ADDED
    assert decode_record(bytes.fromhex(ended + "0107026162")) == replace(
        ADDED, txn_index_empty=False
    )


@pytest.mark.parametrize(("record", "golden"), GOLDEN)
def test_a_record_that_was_cut_anywhere_is_refused(record: RemoteLogRecord, golden: str) -> None:
    data = bytes.fromhex(golden)
    for length in range(len(data)):
        with pytest.raises(RemoteLogRecordError):
            decode_record(data[:length])


@pytest.mark.parametrize(("record", "golden"), GOLDEN)
def test_bytes_after_the_end_are_refused(record: RemoteLogRecord, golden: str) -> None:
    with pytest.raises(RemoteLogRecordError, match="1 bytes follow the end"):
        decode_record(bytes.fromhex(golden) + b"\x00")


@pytest.mark.parametrize("value", [None, b""])
def test_a_record_without_a_value_is_refused(value: bytes | None) -> None:
    with pytest.raises(RemoteLogRecordError, match="no value"):
        decode_record(value)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ("00" + ADDED_HEX[2:], "frame version 0"),
        ("02" + ADDED_HEX[2:], "frame version 2"),
        ("0104" + ADDED_HEX[4:], "4 is not a valid RecordKind"),
        ("010001" + ADDED_HEX[6:], "version 1 of SEGMENT_ADDED"),
        ("01000000" + ADDED_HEX[8:], "null"),
        (ADDED_HEX.replace("07746f70", "07ff6f70"), "can't decode"),
        (ADDED_HEX.removesuffix("0001000101") + "0401000101", "4 is not a valid SegmentState"),
        (ADDED_HEX.removesuffix("0001000101") + "ff01000101", "-1 is not a valid SegmentState"),
        (ADDED_HEX.removesuffix("01000101") + "ffffffffff01", "32 bits|over 5 bytes"),
        (ADDED_HEX.removesuffix("01000101") + "020001010001" + "01", "comes after"),
    ],
)
def test_a_record_that_is_not_understood_is_refused(changed: str, complaint: str) -> None:
    with pytest.raises(RemoteLogRecordError, match=complaint):
        decode_record(bytes.fromhex(changed))


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        (replace(ADDED, last_offset=Offset(-1)), "from offset 0 to -1"),
        (replace(ADDED, base_offset=Offset(1001)), "from offset 1001 to 1000"),
        (replace(ADDED, base_offset=Offset(-1)), "from offset -1 to 1000"),
        (replace(ADDED, leader_epochs=()), "without leader epochs"),
        (
            replace(ADDED, partition=PARTITION._replace(partition=PartitionIndex(-1))),
            "partition -1 of 'topic1' is negative",
        ),
    ],
)
def test_a_segment_that_cannot_be_is_refused(record: SegmentAdded, complaint: str) -> None:
    with pytest.raises(RemoteLogRecordError, match=complaint):
        decode_record(encode_record(record))


def test_a_segment_of_one_record_can_be() -> None:
    record = replace(ADDED, base_offset=Offset(1000))
    assert decode_record(encode_record(record)) == record


@pytest.mark.parametrize(("count", "wanted"), [(50, 33), (5, 3)])
def test_records_go_to_the_partition_that_kafka_chooses(count: int, wanted: int) -> None:
    assert metadata_partition(TopicPartition(TOPIC_ID, PartitionIndex(42)), count) == wanted


UPLOADED = SegmentUploaded(manifest="{}", stored_bytes=1, has_aborted=False, custom_metadata=b"c")
SEGMENT = Segment(
    segment_id=SEGMENT_ID,
    topic_id=TOPIC_ID,
    partition=PartitionIndex(42),
    base_offset=Offset(0),
    last_offset=Offset(1000),
    size_bytes=100_500,
    max_timestamp=1_000_000_000,
    leader_epochs=EPOCHS,
    key_base=KEY_BASE,
    broker_id=BrokerId(2),
    state=SegmentState.COPY_FINISHED,
    chained=True,
    owned=True,
    added_ms=2_000_000_000,
    changed_ms=2_000_000_001,
    uploaded=UPLOADED,
)


def test_a_chained_segment_is_exported_as_started_and_then_finished() -> None:
    started, finished = export_records(SEGMENT, "topic1")
    assert started.hex() == ADDED_HEX
    assert decode_record(finished) == replace(FINISHED, custom_metadata=b"c")


def test_an_exported_segment_tells_whether_transactions_were_aborted_in_it() -> None:
    segment = replace(SEGMENT, uploaded=replace(UPLOADED, has_aborted=True))
    assert decode_record(export_records(segment, "topic1")[0]) == replace(
        ADDED, txn_index_empty=False
    )


@pytest.mark.parametrize(
    "segment",
    [
        replace(SEGMENT, chained=False),
        replace(SEGMENT, state=SegmentState.COPY_STARTED),
        replace(SEGMENT, state=SegmentState.DELETE_STARTED),
        replace(SEGMENT, uploaded=None),
        replace(SEGMENT, leader_epochs=()),
        replace(SEGMENT, last_offset=Offset(-1)),
        replace(SEGMENT, base_offset=Offset(-1)),
        replace(SEGMENT, size_bytes=2**31),
    ],
)
def test_what_would_stop_kafka_for_good_is_never_exported(segment: Segment) -> None:
    with pytest.raises(UnexportableSegmentError, match="topic1-42"):
        export_records(segment, "topic1")


def test_the_largest_segment_is_exported() -> None:
    (started, _) = export_records(replace(SEGMENT, size_bytes=2**31 - 1), "topic1")
    assert decode_record(started) == replace(ADDED, size_bytes=2**31 - 1)


def test_ids_in_records_are_those_of_the_segment() -> None:
    other = SegmentId(UUID(int=9))
    decoded = decode_record(encode_record(replace(ADDED, segment_id=other)))
    assert isinstance(decoded, SegmentAdded)
    assert decoded.segment_id == other
