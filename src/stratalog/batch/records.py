"""The records inside a batch, read one by one.

The CRC is checked before anything is believed. A byte inside compressed records has no place of
its own in the buffer: errors then name the first byte of the records, and the place within the
decompressed bytes in their text.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from stratalog.batch.codec import decompress
from stratalog.batch.errors import BatchDamagedError
from stratalog.batch.frames import check_crc, codec_of, iter_batches
from stratalog.batch.header import (
    HEADER_BYTES,
    RECORDS_COUNT_POSITION,
    BatchHeader,
    BytesLike,
    Codec,
    TimestampType,
    parse_header,
)
from stratalog.batch.varint import read_varint, read_varlong

DEFAULT_MAX_DECOMPRESSED_BYTES = 128 * 1024 * 1024
"""A hundredfold compression of Kafka's largest default batch (1 MiB) still fits."""

MIN_RECORD_BYTES = 7
"""Length, attributes, two deltas, two lengths and a count, one byte each."""

_MIN_HEADER_BYTES = 2
_INT64_MIN, _INT64_LAST = -(1 << 63), (1 << 63) - 1

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def decode_records(
    buffer: BytesLike,
    position: int = 0,
    *,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> list[Record]:
    """The records of the batch at `position`, with absolute offsets and timestamps."""
    header = parse_header(buffer, position)
    check_crc(buffer, position, header)
    return list(iter_body(buffer, position, header, max_decompressed_bytes=max_decompressed_bytes))


def iter_records(
    buffer: BytesLike,
    *,
    with_control: bool = False,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> Iterator[Record]:
    """The records of all batches in the buffer; control records only when asked for."""
    for position, header in iter_batches(buffer):
        check_crc(buffer, position, header)
        if with_control or not header.is_control:
            yield from iter_body(
                buffer, position, header, max_decompressed_bytes=max_decompressed_bytes
            )


def iter_body(
    buffer: BytesLike,
    position: int,
    header: BatchHeader,
    *,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> Iterator[Record]:
    """One batch's records, for a caller that has parsed the header and checked the CRC.

    Lazy, because the smallest record is 7 bytes in a batch and some hundred in memory.
    """
    data = _counted_bytes(buffer, position, header, max_decompressed_bytes)
    with _placed(position, header):
        yield from _read_records(data, header)


def iter_times(
    buffer: BytesLike,
    position: int,
    header: BatchHeader,
    *,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> Iterator[tuple[int, int]]:
    """The offset and the timestamp of each record, for a caller that has checked the CRC.

    Keys, values and headers are passed over, so that neither many records nor a record with many
    headers takes memory beyond the decompressed bytes.
    """
    data = _counted_bytes(buffer, position, header, max_decompressed_bytes)
    with _placed(position, header):
        yield from _read_times(data, header)


def _counted_bytes(
    buffer: BytesLike, position: int, header: BatchHeader, max_decompressed_bytes: int
) -> bytes:
    """The decompressed bytes, which have room for as many records as the header counts."""
    data = records_bytes(buffer, position, header, max_decompressed_bytes=max_decompressed_bytes)
    if not 0 <= header.records_count <= len(data) // MIN_RECORD_BYTES:
        reason = f"{header.records_count} records in {len(data)} bytes"
        raise BatchDamagedError(position + RECORDS_COUNT_POSITION, reason, position)
    return data


@contextmanager
def _placed(position: int, header: BatchHeader) -> Iterator[None]:
    """Turn the byte of the records that an error names into a byte of the buffer."""
    try:
        yield
    except BatchDamagedError as error:
        at = position + HEADER_BYTES
        if header.codec_bits == Codec.NONE:
            raise BatchDamagedError(at + error.position, error.reason, position) from error
        reason = f"decompressed byte {error.position}: {error.reason}"
        raise BatchDamagedError(at, reason, position) from error


def records_bytes(
    buffer: BytesLike,
    position: int,
    header: BatchHeader,
    *,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> bytes:
    """Everything after the header, decompressed."""
    codec = codec_of(header, position)
    start, end = position + HEADER_BYTES, position + header.size_bytes
    if start == end:
        # Compaction empties batches whose producer must be remembered and keeps their codec.
        return b""
    try:
        return decompress(
            codec,
            memoryview(buffer)[start:end],
            max_bytes=max_decompressed_bytes,
            position=start,
        )
    except BatchDamagedError as error:
        error.batch_start = position
        raise


def true_max_timestamp(records: Iterable[Record]) -> int:
    """The value that the batch's header should hold; some clients leave it at -1."""
    return max((record.timestamp for record in records), default=-1)


def read_max_timestamp(
    buffer: BytesLike,
    header: BatchHeader,
    *,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> int:
    """The same for a batch whose CRC was checked, read off the times of its records."""
    times = iter_times(buffer, 0, header, max_decompressed_bytes=max_decompressed_bytes)
    return max((time for _, time in times), default=-1)


def _read_records(data: bytes, header: BatchHeader) -> Iterator[Record]:
    has_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    position, offset_delta = 0, -1
    for _ in range(header.records_count):
        record, position = _read_record(data, position, header, offset_delta)
        offset_delta = record.offset - header.base_offset
        yield record._replace(timestamp=header.max_timestamp) if has_append_time else record
    _check_end(data, position)


def _read_times(data: bytes, header: BatchHeader) -> Iterator[tuple[int, int]]:
    has_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    position, offset_delta = 0, -1
    for _ in range(header.records_count):
        timestamp, offset_delta, _, position = _read_start(data, position, header, offset_delta)
        time = header.max_timestamp if has_append_time else timestamp
        yield header.base_offset + offset_delta, time
    _check_end(data, position)


def _check_end(data: bytes, position: int) -> None:
    if position != len(data):
        raise BatchDamagedError(position, f"{len(data) - position} bytes follow the last record")


def _read_record(
    data: bytes, position: int, header: BatchHeader, previous_delta: int
) -> tuple[Record, int]:
    timestamp, offset_delta, after, end = _read_start(data, position, header, previous_delta)
    key, position = _read_bytes(data, after, end)
    value, position = _read_bytes(data, position, end)
    headers, position = _read_headers(data, position, end)
    if position != end:
        raise BatchDamagedError(position, f"the record should end at {end}")
    return Record(header.base_offset + offset_delta, timestamp, key, value, headers), position


def _read_start(
    data: bytes, position: int, header: BatchHeader, previous_delta: int
) -> tuple[int, int, int, int]:
    """Timestamp and offset delta of the record, where its key begins, and where the record ends."""
    length, start = read_varint(data, position)
    end = start + length
    if length < MIN_RECORD_BYTES - 1 or end > len(data):
        raise BatchDamagedError(position, f"no record of {length} bytes fits here")
    # The attributes byte at `start` has no meaning yet; Kafka ignores it as well.
    timestamp_delta, position = read_varlong(data, start + 1)
    timestamp = header.base_timestamp + timestamp_delta
    if not _INT64_MIN <= timestamp <= _INT64_LAST:
        raise BatchDamagedError(start + 1, "the timestamp exceeds 64 bits")
    offset_delta, after = read_varint(data, position)
    if not previous_delta < offset_delta <= header.last_offset_delta:
        raise BatchDamagedError(position, f"offset delta {offset_delta} is out of order")
    return timestamp, offset_delta, after, end


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, start = read_varint(data, position)
    if length == -1:
        return None, start
    stop = start + length
    if length < 0 or stop > end:
        raise BatchDamagedError(position, f"no field of {length} bytes fits here")
    return data[start:stop], stop


def _read_headers(data: bytes, position: int, end: int) -> tuple[Headers, int]:
    count, start = read_varint(data, position)
    if count == 0:
        return (), start
    if not 0 < count <= (end - start) // _MIN_HEADER_BYTES:
        raise BatchDamagedError(position, f"no {count} headers fit here")
    headers: list[tuple[str, bytes | None]] = []
    position = start
    for _ in range(count):
        name_at = position
        name, position = _read_bytes(data, position, end)
        if name is None:
            raise BatchDamagedError(name_at, "a header has no name")
        value, position = _read_bytes(data, position, end)
        # Some clients send names that are not UTF-8; Kafka's consumer replaces those bytes too.
        headers.append((name.decode(errors="replace"), value))
    return tuple(headers), position
