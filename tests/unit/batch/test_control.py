import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord

from stratalog.batch.build import build_batch
from stratalog.batch.control import (
    ControlType,
    EndTxnMarker,
    control_type,
    end_txn_record,
    parse_end_txn_marker,
)
from stratalog.batch.errors import BatchDamagedError
from stratalog.batch.header import parse_header
from stratalog.batch.records import Record, decode_records

MARKERS = [EndTxnMarker(ControlType.ABORT, 0), EndTxnMarker(ControlType.COMMIT, 2**31 - 1)]


@pytest.mark.parametrize("marker", MARKERS)
def test_a_marker_comes_back_through_a_control_batch(marker: EndTxnMarker) -> None:
    record = end_txn_record(marker, offset=20, timestamp_ms=5)
    batch = build_batch(
        [record],
        base_offset=20,
        producer_id=4000,
        producer_epoch=1,
        transactional=True,
        control=True,
    )
    header = parse_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert parse_end_txn_marker(decode_records(batch)[0]) == marker


def test_a_marker_has_the_bytes_of_kafkas_own() -> None:
    record = end_txn_record(EndTxnMarker(ControlType.COMMIT, 7), offset=0, timestamp_ms=0)
    assert record.key == bytes.fromhex("00000001")
    assert record.value == bytes.fromhex("000000000007")


@pytest.mark.parametrize(
    ("kind", "theirs"),
    [(ControlType.ABORT, ABORT_MARKER), (ControlType.COMMIT, COMMIT_MARKER)],
)
def test_another_client_reads_our_markers(kind: ControlType, theirs: ControlRecord) -> None:
    record = end_txn_record(EndTxnMarker(kind, 1), offset=0, timestamp_ms=0)
    assert ControlRecord.parse(record.key) == theirs


def test_other_control_records_are_no_markers() -> None:
    assert parse_end_txn_marker(Record(0, 0, bytes.fromhex("00000002"), b"")) is None


def test_a_kind_from_the_future_is_skipped() -> None:
    assert control_type(Record(0, 0, bytes.fromhex("00000007"), b"")) is None


def test_a_later_version_may_say_more() -> None:
    record = Record(0, 0, bytes.fromhex("000100010000"), bytes.fromhex("00010000000900"))
    assert parse_end_txn_marker(record) == EndTxnMarker(ControlType.COMMIT, 9)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, bytes(6)),
        (b"", bytes(6)),
        (bytes(3), bytes(6)),
        (b"\xff\xff\x00\x00", bytes(6)),
        (bytes(4), None),
        (bytes(4), bytes(5)),
    ],
)
def test_a_marker_that_is_cut_is_damage(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(BatchDamagedError):
        parse_end_txn_marker(Record(0, 0, key, value))
