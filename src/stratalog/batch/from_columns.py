"""Columns become record batches: Arrow's arrays are encoded by compiled loops.

The caller says which row goes to which destination (a partition of some topic, by a number of the
caller's), and gets each destination's batches, in the order of its rows. Pure; `ColumnEncoder`
keeps nothing from one call to the next but its buffer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from crc32c import crc32c

from stratalog.batch.codec import compress
from stratalog.batch.compiled_encode import (
    ByteColumn,
    HeaderColumn,
    RecordColumns,
    Stickiness,
    choose_partitions,
    encode_batches,
    order_by,
)
from stratalog.batch.errors import RecordTooLargeError, RowError
from stratalog.batch.header import (
    CRC_START,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    Codec,
    pack_header,
)
from stratalog.batch.records import DEFAULT_MAX_DECOMPRESSED_BYTES

__all__ = [
    "BATCH_BYTES",
    "ByteColumn",
    "ColumnEncoder",
    "Destination",
    "EncodedBatch",
    "RecordColumns",
    "RowError",
    "Stickiness",
    "byte_column",
    "choose_partitions",
    "header_column",
    "no_bytes",
    "no_headers",
    "record_columns",
    "timestamp_column",
]

Scalar = TypeVar("Scalar", bound=np.generic)

BATCH_BYTES = 1 << 20
"""Approximate size of a batch before compression: the most that one row spans."""

_RECORD_OVERHEAD_BYTES = 36
"""Length, attributes, two deltas, two lengths and a count, each as long as it can be."""
_HEADER_OVERHEAD_BYTES = 10
_CODEC_OVERHEAD_BYTES = 128
"""Noise grows when it is compressed: by this at the most, and by less than a byte in 64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """How batches for one partition are made."""

    name: str
    """For messages."""
    codec: Codec
    level: int | None = None
    max_batch_bytes: int
    """With the header, compressed: the topic's `max.message.bytes`."""
    keep_codec: bool = False
    """True if the topic takes no other codec. Otherwise batches that do not shrink stay as they
    are."""

    @property
    def body_limit(self) -> int:
        """Limit of a batch's records before compression, if it holds more than one."""
        limit = min(BATCH_BYTES, self.max_batch_bytes) - HEADER_BYTES
        return limit - limit // 64 - _CODEC_OVERHEAD_BYTES if self.keep_codec else limit


class EncodedBatch(NamedTuple):
    destination: int
    header: BatchHeader
    data: bytes


class ColumnEncoder:
    def __init__(self) -> None:
        # Kept, because getting fresh pages of memory costs more than writing to them.
        self._out = np.empty(0, np.uint8)

    def encode(
        self,
        records: RecordColumns,
        destinations: npt.NDArray[np.int64],
        places: Sequence[Destination],
    ) -> Iterator[EncodedBatch]:
        """Each row as a record in a batch of `places[destinations[row]]`.

        Must be read to its end before the next call. Raises `RecordTooLargeError`.
        """
        order = order_by(destinations, len(places))
        limits = np.array([place.body_limit for place in places], np.int64)
        self._grow(_bound_bytes(records))
        batches = encode_batches(order, destinations, limits, records, self._out)
        view = self._out.data
        for first, count, start, end, base_ms, greatest_ms in batches.tolist():
            destination = int(destinations[first])
            header = _header(count, base_ms, greatest_ms)
            batch = _finished(header, view[start:end], places[destination], first)
            yield EncodedBatch(destination, *batch)

    def _grow(self, size_bytes: int) -> None:
        if len(self._out) < size_bytes:
            self._out = np.empty(size_bytes, np.uint8)


def record_columns(
    timestamps_ms: npt.NDArray[np.int64],
    keys: ByteColumn,
    values: ByteColumn,
    headers: HeaderColumn,
) -> RecordColumns:
    return RecordColumns(_frozen(timestamps_ms), keys, values, headers)


def byte_column(array: pa.Array) -> ByteColumn:
    """A column of bytes or of text, without copying its bytes."""
    wide = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    _, offsets, data = array.buffers()
    width = np.int64 if wide else np.int32
    if offsets is None or len(offsets) == 0:
        return no_bytes(len(array))
    starts = np.frombuffer(offsets, width, len(array) + 1, array.offset * width().itemsize)
    values = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return _column(values, starts.astype(np.int64), _there(array))


def no_bytes(rows: int) -> ByteColumn:
    """A column of nulls."""
    starts, there = np.zeros(rows + 1, np.int64), np.zeros(rows, np.bool_)
    return _column(np.empty(0, np.uint8), starts, there)


def header_column(array: pa.Array) -> HeaderColumn:
    """A column of lists of names with values. Raises `RowError` for a header without a name."""
    offsets = array.offsets.to_numpy().astype(np.int64)
    places = np.stack([offsets[:-1], offsets[1:]], axis=1)
    places[~_there(array)] = 0
    names, values = array.values.flatten()
    column = HeaderColumn(_frozen(places), byte_column(names), byte_column(values))
    if names.null_count:
        _check_names(column)
    return column


def no_headers(rows: int) -> HeaderColumn:
    return HeaderColumn(_frozen(np.zeros((rows, 2), np.int64)), no_bytes(0), no_bytes(0))


def timestamp_column(array: pa.Array, now_ms: int) -> npt.NDArray[np.int64]:
    """Microseconds as milliseconds, rounded down as Spark does it. Nulls are `now_ms`."""
    micros = array.cast(pa.int64())
    times: npt.NDArray[np.int64] = micros.fill_null(now_ms * 1000).to_numpy() // 1000
    return times


def _column(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], there: npt.NDArray[np.bool_]
) -> ByteColumn:
    return ByteColumn(_frozen(data), _frozen(starts), _frozen(there))


def _frozen(array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """Arrow's memory is not to be written to, and the loops are compiled for one kind of array."""
    array.flags.writeable = False
    return array


def _there(array: pa.Array) -> npt.NDArray[np.bool_]:
    if array.null_count == 0:
        return np.ones(len(array), np.bool_)
    there: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return there


def _check_names(column: HeaderColumn) -> None:
    nameless = np.concatenate([[0], np.cumsum(~column.names.there)])
    starts, ends = column.places[:, 0], column.places[:, 1]
    bad = np.flatnonzero(nameless[ends] - nameless[starts])
    if len(bad):
        raise RowError(int(bad[0]), "a header has no key: null is allowed for its value only")


def _bound_bytes(records: RecordColumns) -> int:
    headers = records.headers
    named = int((headers.places[:, 1] - headers.places[:, 0]).sum())
    columns = (records.keys, records.values, headers.names, headers.values)
    content = sum(int(column.starts[-1] - column.starts[0]) for column in columns)
    overhead = len(records.timestamps_ms) * _RECORD_OVERHEAD_BYTES
    return content + overhead + named * _HEADER_OVERHEAD_BYTES


def _header(count: int, base_ms: int, greatest_ms: int) -> BatchHeader:
    """Of a batch without a producer: offsets and epoch are the log's to fill in."""
    return BatchHeader(
        base_offset=0,
        length=0,
        leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=Codec.NONE,
        last_offset_delta=count - 1,
        base_timestamp=base_ms,
        max_timestamp=greatest_ms,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=count,
    )


def _finished(
    header: BatchHeader, body: memoryview, place: Destination, first_row: int
) -> tuple[BatchHeader, bytes]:
    """Compress and frame. Only a batch of a single record can be too large for its topic."""
    if len(body) > DEFAULT_MAX_DECOMPRESSED_BYTES:
        raise RecordTooLargeError(
            first_row,
            f"its record for {place.name} has {len(body)} bytes, and no reader takes more than"
            f" {DEFAULT_MAX_DECOMPRESSED_BYTES}",
        )
    packed: bytes | memoryview = compress(place.codec, body, place.level)
    codec = place.codec
    if len(packed) >= len(body) and not place.keep_codec:
        packed, codec = body, Codec.NONE
    size_bytes = HEADER_BYTES + len(packed)
    if size_bytes > place.max_batch_bytes:
        raise RecordTooLargeError(
            first_row,
            f"its batch for {place.name} has {size_bytes} bytes with codec {codec.name.lower()},"
            f" and the topic's max.message.bytes is {place.max_batch_bytes}",
        )
    return _framed(header._replace(attributes=codec), packed)


def _framed(header: BatchHeader, body: bytes | memoryview) -> tuple[BatchHeader, bytes]:
    header = header._replace(length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(body))
    header = header._replace(crc=crc32c(body, crc32c(pack_header(header)[CRC_START:])))
    return header, b"".join((pack_header(header), body))
