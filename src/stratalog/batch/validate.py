"""Checks of a producer's batch before the broker accepts it.

The rules follow Kafka's LogValidator and UnifiedLog for appends from clients. Without `deep` they
are read off the header without decompressing; with it every record is walked. Where this is
stricter than Kafka, no known client notices: unused attribute bits, the delete horizon and the
append-time bit must be clear, and a transactional batch must name its producer. Epoch and
sequence of a batch without producer id are not looked at, because clients leave anything there.
"""

from collections.abc import Callable
from functools import cache
from typing import TypeAlias

from stratalog.batch.errors import (
    BatchDamagedError,
    BatchTooLargeError,
    InvalidBatchError,
    InvalidTimestampError,
)
from stratalog.batch.frames import check_crc, codec_of
from stratalog.batch.header import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER_BYTES,
    LAST_OFFSET_DELTA_POSITION,
    LOG_OVERHEAD_BYTES,
    MAX_TIMESTAMP_POSITION,
    RECORDS_COUNT_POSITION,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    BytesLike,
    Codec,
)
from stratalog.batch.records import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    MIN_RECORD_BYTES,
)
from stratalog.batch.unpack import unpack_at
from stratalog.ids import NO_PRODUCER

RecordRules: TypeAlias = tuple[int | None, int | None, bool]
"""The earliest and the latest timestamp of a record, and True if it must have a key."""

NO_TIMESTAMP = -1
_LAST_CODEC = int(Codec.ZSTD)

_LENGTH_POSITION = 8
_BASE_TIMESTAMP_POSITION = 27
_PRODUCER_ID_POSITION = 43
_PRODUCER_EPOCH_POSITION = 51
_BASE_SEQUENCE_POSITION = 53


def validate(
    buffer: BytesLike,
    position: int,
    header: BatchHeader,
    *,
    max_batch_bytes: int | None = None,
    earliest_timestamp_ms: int | None = None,
    latest_timestamp_ms: int | None = None,
    keys_required: bool = False,
    deep: bool = False,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> int | None:
    """Raise `BatchDamagedError` for damage, `InvalidBatchError` for a forbidden batch.

    `header` is the result of `parse_header` for `buffer` at `position`. The timestamp bounds are
    inclusive; without `deep` they are held against the first and the greatest timestamp only.
    `keys_required` (a compacted topic) implies `deep`. Returns the greatest timestamp of the
    records, which the header may state wrongly, or None without `deep`.
    """
    if max_batch_bytes is not None and header.size_bytes > max_batch_bytes:
        reason = f"the batch has {header.size_bytes} bytes, the topic takes {max_batch_bytes}"
        raise BatchTooLargeError(position + _LENGTH_POSITION, reason)
    check_crc(buffer, position, header)
    _check_header(position, header, earliest_timestamp_ms, latest_timestamp_ms)
    if not (deep or keys_required):
        return None
    body = _body(buffer, position, header, max_decompressed_bytes)
    rules = (earliest_timestamp_ms, latest_timestamp_ms, keys_required)
    return load_walk()(body, position, header, rules)


@cache
def load_walk() -> Callable[[BytesLike, int, BatchHeader, RecordRules], int]:
    """Load the compiler and the walk of `deep`, which takes half a second, or seconds the first
    time on a machine. A broker does it before it serves clients; planners of scans never do."""
    from stratalog.batch.entry_walk import walk_body

    return walk_body


def _body(
    buffer: BytesLike, position: int, header: BatchHeader, max_decompressed_bytes: int
) -> BytesLike:
    """The records, decompressed. No bytes are copied if they are not compressed."""
    start, end = position + HEADER_BYTES, position + header.size_bytes
    data = memoryview(buffer)[start:end]
    if header.codec_bits == Codec.NONE:
        return data
    try:
        return unpack_at(start, codec_of(header, position), data, max_decompressed_bytes)
    except BatchDamagedError as error:
        error.batch_start = position
        raise


def _check_header(
    position: int, header: BatchHeader, earliest_ms: int | None, latest_ms: int | None
) -> None:
    """Hold the header against the rules, in the order of its fields as Kafka does.

    The fields are unpacked once: reading one of a tuple by its name takes as long as a comparison.
    """
    base_offset, length, _, _, _, attributes, last_delta = header[:7]
    base_ms, greatest_ms, producer_id, _, _, count = header[7:]
    codec = attributes & CODEC_MASK
    if attributes & ~(CODEC_MASK | TRANSACTIONAL_BIT):
        raise _attributes_error(position + CRC_START, attributes)
    if codec > _LAST_CODEC:
        codec_of(header, position)
    if base_offset != 0:
        raise InvalidBatchError(position, f"the base offset is {base_offset}, not 0")
    if count <= 0:
        raise InvalidBatchError(position + RECORDS_COUNT_POSITION, f"{count} records")
    if last_delta != count - 1:
        reason = f"last offset delta {last_delta} with {count} records"
        raise InvalidBatchError(position + LAST_OFFSET_DELTA_POSITION, reason)
    body_bytes = length + LOG_OVERHEAD_BYTES - HEADER_BYTES
    if body_bytes < (1 if codec else count * MIN_RECORD_BYTES):
        count_at = position + RECORDS_COUNT_POSITION
        raise BatchDamagedError(count_at, f"{count} records in {body_bytes} bytes", position)
    if producer_id != NO_PRODUCER or attributes & TRANSACTIONAL_BIT:
        _check_producer(position, header)
    if greatest_ms < base_ms and greatest_ms != NO_TIMESTAMP:
        reason = f"the greatest timestamp {greatest_ms} is before the first, {base_ms}"
        raise InvalidTimestampError(position + MAX_TIMESTAMP_POSITION, reason)
    _check_time(position + _BASE_TIMESTAMP_POSITION, base_ms, earliest_ms, latest_ms)
    _check_time(position + MAX_TIMESTAMP_POSITION, greatest_ms, earliest_ms, latest_ms)


def _attributes_error(position: int, attributes: int) -> InvalidBatchError:
    if attributes & CONTROL_BIT:
        return InvalidBatchError(position, "clients may not write control records")
    if attributes & TIMESTAMP_TYPE_BIT:
        return InvalidTimestampError(position, "only the log sets append time")
    reason = f"attributes {attributes & 0xFFFF:#06x} set bits that are not the client's"
    return InvalidBatchError(position, reason)


def _check_producer(position: int, header: BatchHeader) -> None:
    if header.producer_id < 0:
        if header.producer_id != -1:
            reason = f"producer id {header.producer_id}"
            raise InvalidBatchError(position + _PRODUCER_ID_POSITION, reason)
        if header.is_transactional:
            reason = "a transactional batch needs a producer id"
            raise InvalidBatchError(position + _PRODUCER_ID_POSITION, reason)
        return
    if header.producer_epoch < 0:
        reason = f"producer epoch {header.producer_epoch}"
        raise InvalidBatchError(position + _PRODUCER_EPOCH_POSITION, reason)
    if header.base_sequence < 0:
        reason = f"base sequence {header.base_sequence}"
        raise InvalidBatchError(position + _BASE_SEQUENCE_POSITION, reason)


def _check_time(
    position: int, timestamp: int, earliest_ms: int | None, latest_ms: int | None
) -> None:
    if timestamp == NO_TIMESTAMP:
        return
    if earliest_ms is not None and timestamp < earliest_ms:
        raise InvalidTimestampError(position, f"the batch: {timestamp} is before {earliest_ms}")
    if latest_ms is not None and timestamp > latest_ms:
        raise InvalidTimestampError(position, f"the batch: {timestamp} is after {latest_ms}")
