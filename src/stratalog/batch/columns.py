"""Record batches as columns: decoded by compiled loops straight into Arrow's buffers.

These are the nouns and the way in. What plans a scan knows them as well, so the compiler is loaded
when something is decoded: that takes a second, and the first time on a machine ten.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import pyarrow as pa

from stratalog.batch.header import BytesLike
from stratalog.errors import CallError


class RecordColumn(StrEnum):
    KEY = "key"
    VALUE = "value"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    TIMESTAMP_TYPE = "timestampType"
    HEADERS = "headers"
    LEADER_EPOCH = "leaderEpoch"


class AbortedRecords(NamedTuple):
    """Transactional records of this producer in `[first_offset, last_offset]` were rolled back."""

    producer_id: int
    first_offset: int
    last_offset: int


class BatchRun(NamedTuple):
    """What is known of adjoining batches beside their bytes."""

    base_offset: int
    """The first batch's; of stamped ones, it may be greater where offsets have gaps."""
    stamped: bool = True
    """Whether offsets, epochs and append times are in the bytes, and the rest does not matter."""
    leader_epoch: int = -1
    append_time_ms: int | None = None
    """The time of every record, of log-append-time batches that are not stamped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFilter:
    first_offset: int
    end_offset: int
    first_timestamp_ms: int | None = None
    end_timestamp_ms: int | None = None
    aborted: Sequence[AbortedRecords] = ()
    skip_control: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRun:
    columns: pa.RecordBatch
    """The wanted columns of the records that passed the filter, in offset order."""
    next_offset: int
    """After the last batch, whether or not any of its records passed."""


HEADER_TYPE = pa.struct([("key", pa.string()), ("value", pa.binary())])

COLUMN_TYPES: dict[RecordColumn, pa.DataType] = {
    RecordColumn.KEY: pa.binary(),
    RecordColumn.VALUE: pa.binary(),
    RecordColumn.OFFSET: pa.int64(),
    RecordColumn.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    RecordColumn.TIMESTAMP_TYPE: pa.int32(),
    RecordColumn.HEADERS: pa.list_(pa.field("element", HEADER_TYPE)),
    RecordColumn.LEADER_EPOCH: pa.int32(),
}


class RunTooLargeError(CallError):
    """More records than one Arrow batch holds. Give fewer batches at once; one always fits."""


def decode_run(
    data: BytesLike, run: BatchRun, columns: Sequence[RecordColumn], keep: RecordFilter
) -> DecodedRun:
    """The records of whole batches that lie one after the other in `data`.

    Every batch's CRC is checked, also of those that the filter leaves out. Raises
    `BatchDamagedError` with the place of the damage, and then gives nothing.

    Where offsets, epochs and kinds of time are all that is wanted, records are counted by the
    headers of their batches, and neither decompressed nor looked at, unless compaction has left
    gaps. Times that microseconds since 1970 cannot tell in 64 bits become the last ones that they
    can: a scan should not fail for a producer's broken clock.
    """
    # Imported here for those who only plan, and for brokers, who must not pay for a compiler.
    from stratalog.batch.run_decoder import decode

    return decode(data, run, columns, keep)


class Walked(NamedTuple):
    size_bytes: int
    records: int
    next_offset: int


def walk_run(data: BytesLike, run: BatchRun, *, most_bytes: int, most_records: int) -> Walked:
    """How far whole batches reach whose offsets have no gap, by their headers alone.

    They end with the one that reaches either limit, or before one that cannot be right or is not
    all there. Nothing is checked that `decode_run` would.
    """
    from stratalog.batch.run_decoder import walk

    return Walked(*walk(data, run, most_bytes, most_records))
