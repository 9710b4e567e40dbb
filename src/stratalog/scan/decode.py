"""From whole batches to Arrow, in batches of a size that suits whoever takes them."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from stratalog.batch.columns import RecordColumn, RecordFilter, RunTooLargeError, decode_run
from stratalog.batch.errors import BatchDamagedError
from stratalog.scan.chunks import Chunk, halves
from stratalog.scan.errors import ScanDamagedError
from stratalog.scan.fetch import Source
from stratalog.scan.model import RowFilter, RowPiece, ScanColumn, ScanSplit, Tier
from stratalog.scan.schema import arrow_schema

LEAST_ROWS = 16 * 1024
LEAST_BYTES = 2 * 1024 * 1024
"""Smaller batches are joined until they have so much: each costs its taker some fixed work."""
MOST_ROWS = 64 * 1024
MOST_BYTES = 5 * 1024 * 1024
"""Larger ones are cut: a JVM holds a batch twice, and is slower with large ones."""

_MOST_CONSTANTS = 64
"""Columns of one value that are kept. Partitions are read one after the other."""
_IN_RECORDS = {column.value for column in RecordColumn}


class Decoder:
    """Any thread may decode any chunk."""

    def __init__(self, columns: Sequence[ScanColumn], rows: RowFilter) -> None:
        self._rows = rows
        self._schema = arrow_schema(columns)
        wanted = [RecordColumn(column.value) for column in columns if column.value in _IN_RECORDS]
        # Without any column, nobody could tell how many rows there are.
        self._wanted = wanted or [RecordColumn.OFFSET]
        self._constants: dict[str | int, pa.Array] = {}

    @classmethod
    def of(cls, split: ScanSplit) -> "Decoder":
        return cls(split.columns, split.rows)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, chunk: Chunk) -> list[pa.RecordBatch]:
        """The records of the chunk that are wanted. Usually that is one batch of them."""
        try:
            decoded = decode_run(chunk.data, chunk.run, self._wanted, self._filter(chunk.source))
        except BatchDamagedError as error:
            raise _damaged(chunk, str(error)) from error
        except RunTooLargeError:
            return [batch for half in halves(chunk) for batch in self.decode(half)]
        if decoded.next_offset != chunk.next_offset:
            reason = f"the batches end before offset {decoded.next_offset}"
            raise _damaged(chunk, f"{reason}, not {chunk.next_offset}")
        return [self._complete(decoded.columns, chunk.source)]

    def _filter(self, source: Source) -> RecordFilter:
        stretch, piece, rows = source.stretch, source.piece, self._rows
        first, end = int(stretch.first_offset), int(stretch.end_offset)
        if not isinstance(piece, RowPiece):
            first = max(first, piece.first_offset)
        return RecordFilter(
            first_offset=first if rows.first_offset is None else max(first, rows.first_offset),
            end_offset=end if rows.end_offset is None else min(end, rows.end_offset),
            first_timestamp_ms=rows.first_timestamp_ms,
            end_timestamp_ms=rows.end_timestamp_ms,
            aborted=stretch.aborted,
        )

    def _complete(self, records: pa.RecordBatch, source: Source) -> pa.RecordBatch:
        """With the columns that are the same for all records of a partition."""
        stretch = source.stretch
        tier = Tier.BLOCK if isinstance(source.piece, RowPiece) else Tier.REMOTE
        constants: dict[str, str | int] = {
            ScanColumn.TOPIC: stretch.topic,
            ScanColumn.PARTITION: int(stretch.partition),
            ScanColumn.TIER: tier.value,
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
    """The same rows in batches that are neither small nor huge; none is empty.

    One that is large enough already is not copied to be joined with a small one before it.
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
    """In equal parts. Where few rows hold most of the bytes, some are cut again."""
    rows, size_bytes = batch.num_rows, batch.nbytes
    parts = min(rows, max(-(-rows // MOST_ROWS), -(-size_bytes // MOST_BYTES)))
    if parts <= 1:
        yield batch
        return
    step = -(-rows // parts)
    for start in range(0, rows, step):
        yield from _capped(batch.slice(start, step))


def _damaged(chunk: Chunk, reason: str) -> ScanDamagedError:
    source = chunk.source
    return ScanDamagedError(
        f"object {source.object_key}, from byte {chunk.position}, of"
        f" {source.stretch.topic}-{source.stretch.partition}, offset {chunk.run.base_offset}:"
        f" {reason}; `stratalog fsck` tells more"
    )
