"""Decoding of whole batches to Arrow, in Arrow batches of a size that suits their consumer."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from stratalog.batch.columns import RecordColumn, RecordFilter, decode_run
from stratalog.batch.damage_report import record_fault
from stratalog.batch.errors import BatchDamagedError, RunTooLargeError
from stratalog.batch.header import parse_header
from stratalog.scan.batch_groups import BatchGroup, halves, is_single
from stratalog.scan.errors import ScanDamagedError
from stratalog.scan.fetch import Source
from stratalog.scan.left_out import LeftOutBatch, OnLeftOut, warn_of_left_out
from stratalog.scan.model import RowFilter, ScanColumn, ScanSplit
from stratalog.scan.schema import arrow_schema

LEAST_ROWS = 16 * 1024
LEAST_BYTES = 2 * 1024 * 1024
"""Smaller Arrow batches are joined until they reach either bound: each costs its consumer fixed
work."""
MOST_ROWS = 64 * 1024
MOST_BYTES = 5 * 1024 * 1024
"""Larger Arrow batches are cut: a JVM holds a batch twice, and is slower with large ones."""

_MOST_CONSTANTS = 64
"""The most constant columns that are kept. Few are enough: partitions are read one by one."""
_IN_RECORDS = {column.value for column in RecordColumn}


class Decoder:
    """Decodes groups of batches. Any thread may decode any group."""

    def __init__(
        self, columns: Sequence[ScanColumn], rows: RowFilter, on_left_out: OnLeftOut | None = None
    ) -> None:
        """`on_left_out` hears of each batch that cannot be decoded. None: it is an error."""
        self._rows = rows
        self._on_left_out = on_left_out
        self._schema = arrow_schema(columns)
        wanted = [RecordColumn(column.value) for column in columns if column.value in _IN_RECORDS]
        # Without any column, the number of rows would be lost.
        self._wanted = wanted or [RecordColumn.OFFSET]
        self._constants: dict[str | int, pa.Array] = {}

    @classmethod
    def of(cls, split: ScanSplit) -> "Decoder":
        return cls(split.columns, split.rows, warn_of_left_out if split.skips_undecodable else None)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, group: BatchGroup) -> list[pa.RecordBatch]:
        """Return the wanted records of the group, usually in one Arrow batch."""
        try:
            decoded = decode_run(group.data, group.run, self._wanted, self._filter(group.source))
        except BatchDamagedError as error:
            return self._readable(group, error)
        except RunTooLargeError:
            return [batch for half in halves(group) for batch in self.decode(half)]
        if decoded.next_offset != group.next_offset:
            reason = f"the batches end before offset {decoded.next_offset}"
            raise _damaged(group, f"{reason}, not {group.next_offset}")
        return [self._complete(decoded.columns, group.source)]

    def _readable(self, group: BatchGroup, error: BatchDamagedError) -> list[pa.RecordBatch]:
        """Decode the batches of the group that can be, and leave out the others.

        Only the records of a batch may be bad. A wrong checksum or a wrong offset is an error in
        any case: it is damage of the store, where a good copy may be.
        """
        if self._on_left_out is None:
            raise _damaged(group, str(error)) from error
        if not is_single(group):
            return [batch for half in halves(group) for batch in self.decode(half)]
        fault = record_fault(group.data)
        if fault is None:
            raise _damaged(group, str(error)) from error
        self._on_left_out(_left_out(group, fault))
        return []

    def _filter(self, source: Source) -> RecordFilter:
        stretch, rows = source.stretch, self._rows
        first = max(int(stretch.first_offset), int(source.extent.first_offset))
        end = int(stretch.end_offset)
        return RecordFilter(
            first_offset=first if rows.first_offset is None else max(first, rows.first_offset),
            end_offset=end if rows.end_offset is None else min(end, rows.end_offset),
            first_timestamp_ms=rows.first_timestamp_ms,
            end_timestamp_ms=rows.end_timestamp_ms,
            aborted=stretch.aborted,
        )

    def _complete(self, records: pa.RecordBatch, source: Source) -> pa.RecordBatch:
        """Add the columns that have the same value for all records of an extent."""
        stretch = source.stretch
        constants: dict[str, str | int] = {
            ScanColumn.TOPIC: stretch.topic,
            ScanColumn.PARTITION: int(stretch.partition),
            ScanColumn.TIER: source.extent.tier.value,
        }
        arrays = [
            self._repeated(constants[field.name], field.type, records.num_rows)
            if field.name in constants
            else records.column(field.name)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _repeated(self, value: str | int, kind: pa.DataType, count: int) -> pa.Array:
        found = self._constants.get(value)
        if found is None or len(found) < count:
            if len(self._constants) >= _MOST_CONSTANTS:
                self._constants.clear()
            found = self._constants[value] = pa.repeat(pa.scalar(value, kind), max(count, 1))
        return found.slice(0, count)


def sized(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in Arrow batches that are neither small nor huge. None is empty.

    A batch that is large enough already is not copied to be joined with a small one before it.
    """
    held: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        if held and _is_enough(batch.num_rows, batch.nbytes):
            yield from _capped(_joined(held))
            held, rows, size_bytes = [], 0, 0
        if batch.num_rows:
            held.append(batch)
            rows += batch.num_rows
            size_bytes += batch.nbytes
        if _is_enough(rows, size_bytes):
            yield from _capped(_joined(held))
            held, rows, size_bytes = [], 0, 0
    if held:
        yield from _capped(_joined(held))


def _is_enough(rows: int, size_bytes: int) -> bool:
    return rows >= LEAST_ROWS or size_bytes >= LEAST_BYTES


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    [joined] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def _capped(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut into equal numbers of rows. Where few rows hold most of the bytes, cut these again."""
    rows, size_bytes = batch.num_rows, batch.nbytes
    parts = min(rows, max(-(-rows // MOST_ROWS), -(-size_bytes // MOST_BYTES)))
    if parts <= 1:
        yield batch
        return
    step = -(-rows // parts)
    for start in range(0, rows, step):
        yield from _capped(batch.slice(start, step))


def _left_out(group: BatchGroup, fault: BatchDamagedError) -> LeftOutBatch:
    stretch = group.source.stretch
    return LeftOutBatch(
        topic=stretch.topic,
        partition=int(stretch.partition),
        first_offset=group.next_offset - 1 - parse_header(group.data).last_offset_delta,
        last_offset=group.next_offset - 1,
        object_key=group.source.object_key,
        position=group.position,
        reason=fault.reason,
    )


def _damaged(group: BatchGroup, reason: str) -> ScanDamagedError:
    source = group.source
    return ScanDamagedError(
        f"object {source.object_key}, from byte {group.position}, of"
        f" {source.stretch.topic}-{source.stretch.partition}, offset {group.run.base_offset}:"
        f" {reason}; `stratalog fsck --deep` tells more. If only its records cannot be decoded,"
        " on_undecodable='skip' (onUndecodable as an option of Spark) leaves the batch out"
    )
