"""A log of an adopted topic whose segments hold aborted transactions."""

from pathlib import Path

from tests.support.adopted_log import adopt_log

from stratalog.batch.build import build_batch
from stratalog.batch.control import ControlType, EndTxnMarker, end_txn_record
from stratalog.batch.records import Record
from stratalog.clock import SystemClock

TOPIC = "transactions"
NOW_MS = SystemClock().now_ms()


def record(producer: int = -1, sequence: int = 0) -> bytes:
    """A batch with one record, of a transaction if there is a producer."""
    one = [Record(0, NOW_MS, None, b"a value")]
    if producer < 0:
        return build_batch(one)
    return build_batch(
        one, producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=True
    )


def ended(producer: int, kind: ControlType) -> bytes:
    marker = end_txn_record(EndTxnMarker(kind, 0), offset=0, timestamp_ms=NOW_MS)
    return build_batch(
        [marker], producer_id=producer, producer_epoch=0, transactional=True, control=True
    )


SEGMENTS = [
    # The transaction of producer 1 goes on into the next segment.
    [record(1, 0), record(), record(2), record(1, 1), ended(2, ControlType.COMMIT), record()],
    [record(1, 2), ended(1, ControlType.ABORT), record(1, 3), ended(1, ControlType.COMMIT)],
    [record(), record()],
]
END = 12
COMMITTED = [1, 2, 5, 8, 10, 11]
EVERYTHING = [0, 1, 2, 3, 5, 6, 8, 10, 11]


async def adopt(folder: Path) -> None:
    assert await adopt_log(folder, TOPIC, SEGMENTS) == [False, True, False]
