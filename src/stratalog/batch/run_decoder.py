"""`columns.decode_run` itself. Importing this loads the compiler, and the compiled loops.

Batches are framed, placed in the log and filtered by their headers first. Batches with wanted
records are then decompressed, and decoded in one call. Compiled code only detects a fault;
`damage_report` finds and describes it.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from stratalog.batch.column_buffers import (
    BytesColumn,
    Column,
    FixedColumn,
    HeadersColumn,
    fields_of,
    filled_record,
)
from stratalog.batch.column_layout import DECODE, OUT, PLAN, REFUSED, UNPACK
from stratalog.batch.columns import COLUMN_TYPES, BatchRun, DecodedRun, RecordColumn, RecordFilter
from stratalog.batch.compiled_decode import decode_batches, walk_batches
from stratalog.batch.compiled_plan import measure_batches, plan_batches
from stratalog.batch.damage_report import raise_damage
from stratalog.batch.errors import BatchDamagedError, RunTooLargeError
from stratalog.batch.header import CODEC_MASK, HEADER_BYTES, BytesLike, Codec
from stratalog.batch.records import DEFAULT_MAX_DECOMPRESSED_BYTES, MIN_RECORD_BYTES
from stratalog.batch.run_frames import crcs_hold, frames_of
from stratalog.batch.unpack import Unpacker

MAX_RUN_BYTES = 512 * 1024 * 1024
"""Of records after decompression. Arrow's offsets of bytes are 32 bits wide, and a header's name
may grow threefold when bytes of it are replaced. Several batches of the largest size still fit."""

_INT64_MIN, _INT64_LAST = -(1 << 63), (1 << 63) - 1

_IN_RECORDS = {RecordColumn.KEY, RecordColumn.VALUE, RecordColumn.HEADERS}


def decode(
    data: BytesLike, run: BatchRun, columns: Sequence[RecordColumn], keep: RecordFilter
) -> DecodedRun:
    frames = frames_of(data)
    plan = _plan(run, columns, keep)
    aborted = np.array(keep.aborted, np.int64).reshape(-1, 3)
    if (
        frames is None
        or plan_batches(frames, plan, aborted) == REFUSED
        or not crcs_hold(data, frames)
    ):
        raise_damage(data, run.base_offset, stamped=run.stamped)
    # The frames point into these as soon as they are unpacked.
    bodies = _unpack(data, frames, plan)
    is_good = bodies is not None and measure_batches(frames, plan) != REFUSED
    table = _decode(frames, plan, aborted, columns) if is_good else None
    if table is None:
        raise_damage(data, run.base_offset, stamped=run.stamped)
    return DecodedRun(columns=table, next_offset=fields_of(plan)["next_offset"])


def walk(
    data: BytesLike, run: BatchRun, most_bytes: int, most_records: int
) -> tuple[int, int, int]:
    source = pa.py_buffer(data)
    return walk_batches(
        source.address, source.size, run.stamped, run.base_offset, most_bytes, most_records
    )


def _plan(run: BatchRun, columns: Sequence[RecordColumn], keep: RecordFilter) -> Any:
    first_offset, last_offset = _inclusive(keep.first_offset, keep.end_offset)
    first_ms, last_ms = _inclusive(keep.first_timestamp_ms, keep.end_timestamp_ms)
    return filled_record(
        PLAN,
        {
            "base_offset": run.base_offset,
            "stamped": run.stamped,
            "leader_epoch": run.leader_epoch,
            "has_append_time": run.append_time_ms is not None,
            "append_time_ms": run.append_time_ms or 0,
            "first_offset": first_offset,
            "last_offset": last_offset,
            "first_timestamp_ms": first_ms,
            "last_timestamp_ms": last_ms,
            "skips_control": keep.skip_control,
            "needs_records": not _IN_RECORDS.isdisjoint(columns),
            "needs_timestamps": RecordColumn.TIMESTAMP in columns,
            "body_bytes_limit": DEFAULT_MAX_DECOMPRESSED_BYTES,
        },
    )


def _inclusive(first: int | None, end: int | None) -> tuple[int, int]:
    """The same range of 64-bit numbers, with its last one."""
    first = _INT64_MIN if first is None else max(first, _INT64_MIN)
    last = _INT64_LAST if end is None else min(end - 1, _INT64_LAST)
    return (first, last) if first <= last else (1, 0)


def _unpack(data: BytesLike, frames: Any, plan: Any) -> list[BytesLike] | None:
    """Decompress the records that are to be decoded. None if some cannot be."""
    if measure_batches(frames, plan) == REFUSED:
        return None
    measured = fields_of(plan)
    total_bytes = measured["bytes_limit"] + MIN_RECORD_BYTES * measured["rows_limit"]
    _check_size(total_bytes)
    is_packed = frames["action"] == UNPACK
    if not is_packed.any():
        return []
    unpacker, view = Unpacker(DEFAULT_MAX_DECOMPRESSED_BYTES), memoryview(data)
    bodies: list[BytesLike] = []
    fields = (frames[name][is_packed].tolist() for name in ("start", "end", "attributes"))
    for start, end, attributes in zip(*fields, strict=True):
        try:
            body = unpacker.unpack(Codec(attributes & CODEC_MASK), view[start + HEADER_BYTES : end])
        except BatchDamagedError:
            return None
        bodies.append(body)
        total_bytes += len(body)
        _check_size(total_bytes)
    frames["body_address"][is_packed] = [pa.py_buffer(body).address for body in bodies]
    frames["body_bytes"][is_packed] = [len(body) for body in bodies]
    frames["action"][is_packed] = DECODE
    return bodies


def _check_size(total_bytes: int) -> None:
    if total_bytes > MAX_RUN_BYTES:
        raise RunTooLargeError(f"records of more than {MAX_RUN_BYTES} bytes; give fewer batches")


def _decode(
    frames: Any, plan: Any, aborted: Any, columns: Sequence[RecordColumn]
) -> pa.RecordBatch | None:
    """The wanted columns, or None if a record is damaged."""
    measured = fields_of(plan)
    rows_limit, bytes_limit = measured["rows_limit"], measured["bytes_limit"]
    made = {column: _column(column, rows_limit, bytes_limit) for column in columns}
    outs = filled_record(OUT, _merged(buffers.addresses() for buffers in made.values()))
    if decode_batches(frames, plan, aborted, outs) == REFUSED:
        return None
    filled = fields_of(outs)
    arrays = {column: buffers.array(filled) for column, buffers in made.items()}
    return _batch([arrays[column] for column in columns], columns, filled["rows"])


def _merged(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    return {name: value for part in parts for name, value in part.items()}


def _column(column: RecordColumn, rows_limit: int, bytes_limit: int) -> Column:
    match column:
        case RecordColumn.KEY:
            return BytesColumn("key", rows_limit, bytes_limit)
        case RecordColumn.VALUE:
            return BytesColumn("value", rows_limit, bytes_limit)
        case RecordColumn.HEADERS:
            return HeadersColumn(rows_limit)
        case RecordColumn.OFFSET:
            return FixedColumn("offset", COLUMN_TYPES[column], rows_limit)
        case RecordColumn.TIMESTAMP:
            return FixedColumn("timestamp", COLUMN_TYPES[column], rows_limit)
        case RecordColumn.TIMESTAMP_TYPE:
            return FixedColumn("timestamp_type", COLUMN_TYPES[column], rows_limit)
        case RecordColumn.LEADER_EPOCH:
            return FixedColumn("leader_epoch", COLUMN_TYPES[column], rows_limit)


def _batch(arrays: list[pa.Array], columns: Sequence[RecordColumn], rows: int) -> pa.RecordBatch:
    """Made of a struct because it has a length of its own: no columns may be wanted."""
    fields = [pa.field(column.value, COLUMN_TYPES[column]) for column in columns]
    rows_type = pa.struct(fields)
    struct = pa.Array.from_buffers(rows_type, rows, [None], 0, children=arrays)
    return pa.RecordBatch.from_struct_array(struct)
