"""Record batches as columns: decoded by compiled loops straight into Arrow's buffers.

This module holds the nouns and the entry points. Planners of scans import it too, so the compiler
is loaded at the first decoding: that takes a second, and ten the first time on a machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import pyarrow as pa

from stratalog.batch.header import BytesLike


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
    """Adjoining batches: the facts that are not in their bytes."""

    base_offset: int
    """The first batch's; of stamped ones, it may be greater where offsets have gaps."""
    stamped: bool = True
    """True if the bytes hold offsets, epochs and append times; other fields are then ignored."""
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


def decode_run(
    data: BytesLike, run: BatchRun, columns: Sequence[RecordColumn], keep: RecordFilter
) -> DecodedRun:
    """Decode the records of the whole batches in `data`, which follow one another.

    The CRC of every batch is checked, even if the filter excludes the batch. Raises
    `BatchDamagedError` with the position of the damage, and then returns no records.

    If only offsets, epochs and timestamp types are wanted, records are counted by the headers of
    their batches and not decompressed, unless compaction has left gaps. A timestamp that does not
    fit into 64 bits of microseconds since 1970 becomes the nearest one that does: a producer's
    broken clock should not make a scan fail.
    """
    # Imported late: planners and brokers must not load the compiler.
    from stratalog.batch.run_decoder import decode

    return decode(data, run, columns, keep)


class Walked(NamedTuple):
    size_bytes: int
    records: int
    next_offset: int


def walk_run(data: BytesLike, run: BatchRun, *, most_bytes: int, most_records: int) -> Walked:
    """Measure the leading whole batches without a gap between offsets, by their headers alone.

    The last batch is the one that reaches either limit, or the one before a batch that is malformed
    or incomplete. CRCs and records are not checked.
    """
    from stratalog.batch.run_decoder import walk

    return Walked(*walk(data, run, most_bytes, most_records))
