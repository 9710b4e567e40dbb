"""Batches and runs to build segments of."""

from stratalog.batch.build import build_batch
from stratalog.batch.control import ControlType, EndTxnMarker, end_txn_record
from stratalog.batch.records import Record
from stratalog.ids import LeaderEpoch, Offset
from stratalog.segment.build import BuiltLog, SegmentBuilder
from stratalog.segment.model import SourceRun

T0 = 1_700_000_000_000


def batch(
    count: int = 1,
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    timestamp: int = T0,
    value_bytes: int = 100,
    producer_id: int = -1,
    producer_epoch: int = 0,
    sequence: int = 0,
    transactional: bool = False,
) -> bytes:
    records = [
        Record(base_offset + index, timestamp + index, None, bytes(value_bytes))
        for index in range(count)
    ]
    if producer_id < 0:
        return build_batch(records, base_offset=base_offset, leader_epoch=leader_epoch)
    return build_batch(
        records,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def marker(
    kind: ControlType,
    producer_id: int,
    *,
    producer_epoch: int = 0,
    coordinator_epoch: int = 7,
    timestamp: int = T0 + 500,
) -> bytes:
    record = end_txn_record(EndTxnMarker(kind, coordinator_epoch), offset=0, timestamp_ms=timestamp)
    return build_batch(
        [record],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def run(
    base: int,
    last: int,
    *,
    epoch: int = 0,
    stamped: bool = False,
    append_time_ms: int | None = None,
) -> SourceRun:
    return SourceRun(Offset(base), Offset(last), LeaderEpoch(epoch), stamped, append_time_ms)


def built(base_offset: int, *batches: bytes) -> BuiltLog:
    """A segment of batches with one record each, or more if the last offset says so."""
    builder = SegmentBuilder(Offset(base_offset))
    last = base_offset + sum(int.from_bytes(each[23:27]) + 1 for each in batches) - 1
    builder.add(bytearray(b"".join(batches)), run(base_offset, last))
    return builder.finish()
