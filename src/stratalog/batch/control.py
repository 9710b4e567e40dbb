"""Control records: the outcome of a transaction."""

import struct
from enum import IntEnum
from typing import NamedTuple

from stratalog.batch.errors import BatchDamagedError
from stratalog.batch.records import Record

_KEY = struct.Struct(">hh")
_END_TXN_VALUE = struct.Struct(">hi")


class ControlType(IntEnum):
    """The kinds that Kafka defines. Only the first two occur in the topics of users."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTxnMarker(NamedTuple):
    kind: ControlType
    coordinator_epoch: int


def control_type(record: Record) -> ControlType | None:
    """The kind of a control record; None for kinds that do not exist yet, which readers skip."""
    if record.key is None or len(record.key) < _KEY.size:
        raise BatchDamagedError(0, f"the control record at offset {record.offset} has no type")
    version, number = _KEY.unpack_from(record.key)
    if version < 0:
        raise BatchDamagedError(0, f"the control record's version {version} is negative")
    try:
        return ControlType(number)
    except ValueError:
        return None


def parse_end_txn_marker(record: Record) -> EndTxnMarker | None:
    """The marker in a control record, or None if the record is of another kind."""
    kind = control_type(record)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _END_TXN_VALUE.size:
        raise BatchDamagedError(0, f"the marker at offset {record.offset} has no epoch")
    _, coordinator_epoch = _END_TXN_VALUE.unpack_from(record.value)
    return EndTxnMarker(kind, coordinator_epoch)


def end_txn_record(marker: EndTxnMarker, *, offset: int, timestamp_ms: int) -> Record:
    """The record that `parse_end_txn_marker` reads, to be put into a control batch."""
    key = _KEY.pack(0, marker.kind)
    return Record(offset, timestamp_ms, key, _END_TXN_VALUE.pack(0, marker.coordinator_epoch))
