"""The walk over the records of a producer's batch, in the words of errors. Importing this loads
the compiler, and one compiled loop.

The rules follow Kafka's LogValidator: the records fill the batch, there are as many as the
header says, and their offsets rise by one. Kafka demands the last of compressed batches only, and
takes any negative length for a null. Here a scan would stop at both, so they stay out.
"""

import threading
from array import array

from stratalog.batch.addresses import address_of
from stratalog.batch.compiled_walk import (
    BAD_END,
    BAD_FIELD,
    BAD_HEADERS,
    BAD_LENGTH,
    BAD_OFFSET,
    BAD_TIME,
    BAD_VARINT,
    BASE_TIMESTAMP,
    EARLIEST,
    EARLY,
    FIELDS,
    GREATEST,
    KEYS_REQUIRED,
    LATEST,
    MOST_REFUSED,
    NO_KEY,
    POSITION,
    RECORD,
    REFUSED,
    SOUND,
    walk_records,
)
from stratalog.batch.errors import (
    BatchDamagedError,
    InvalidBatchError,
    InvalidTimestampError,
    RecordFault,
)
from stratalog.batch.header import HEADER_BYTES, BatchHeader, BytesLike, Codec
from stratalog.batch.validate import RecordRules

_INT64_MIN, _INT64_LAST = -(1 << 63), (1 << 63) - 1

_REASONS = {
    BAD_LENGTH: "its length does not fit",
    BAD_VARINT: "its timestamp is cut off",
    BAD_TIME: "its timestamp exceeds 64 bits",
    BAD_OFFSET: "its offset delta is not its place in the batch",
    BAD_FIELD: "its key or value does not fit",
    BAD_HEADERS: "its headers do not fit",
    BAD_END: "it does not end with its last header",
}


def walk_body(body: BytesLike, position: int, header: BatchHeader, rules: RecordRules) -> int:
    """Check the decompressed records of the batch at `position`. Return their greatest timestamp.

    Raises `BatchDamagedError` for damage, `InvalidBatchError` for records that the rules forbid.
    """
    walk, walk_address = _of_thread.walk, _of_thread.address
    earliest, latest, keys_required = rules
    walk[BASE_TIMESTAMP] = header.base_timestamp
    walk[EARLIEST] = _INT64_MIN if earliest is None else earliest
    walk[LATEST] = _INT64_LAST if latest is None else latest
    walk[KEYS_REQUIRED] = keys_required
    walk[REFUSED] = 0
    address, held = address_of(body)
    result = walk_records(address, len(body), header.records_count, walk_address)
    del held
    if result != SOUND:
        raise _damage(int(result), walk.tolist(), len(body), position, header)
    if walk[REFUSED]:
        raise _refusal(walk.tolist(), position + HEADER_BYTES, rules)
    return walk[GREATEST]


class _OfThread(threading.local):
    """The numbers of a walk, kept for the next one."""

    def __init__(self) -> None:
        self.walk = array("q", bytes(8 * (FIELDS + 3 * MOST_REFUSED)))
        self.address = self.walk.buffer_info()[0]


_of_thread = _OfThread()


def _damage(
    result: int, walk: list[int], size_bytes: int, position: int, header: BatchHeader
) -> BatchDamagedError:
    index, at = walk[RECORD], walk[POSITION]
    start = position + HEADER_BYTES
    if index == header.records_count:
        reason = f"{size_bytes - at} bytes follow the last record"
        faults: tuple[RecordFault, ...] = ()
    else:
        reason = f"record {index}: {_REASONS[result]}"
        faults = (RecordFault(index, _REASONS[result]),)
    if header.codec_bits == Codec.NONE:
        error = BatchDamagedError(start + at, reason, position)
    else:
        error = BatchDamagedError(start, f"decompressed byte {at}: {reason}", position)
    error.record_faults = faults
    return error


def _refusal(walk: list[int], start: int, rules: RecordRules) -> InvalidBatchError:
    """As in Kafka, a bad timestamp decides the code of the answer."""
    count = walk[REFUSED]
    faults, late_or_early = [], False
    for at in range(FIELDS, FIELDS + 3 * min(count, MOST_REFUSED), 3):
        kind, index, timestamp = walk[at : at + 3]
        late_or_early |= kind != NO_KEY
        faults.append(RecordFault(index, _refused_for(kind, timestamp, rules)))
    first = faults[0]
    more = f", and {count - 1} more records are refused" if count > 1 else ""
    error_class = InvalidTimestampError if late_or_early else InvalidBatchError
    error = error_class(start, f"record {first.record}: {first.reason}{more}")
    error.record_faults = faults
    return error


def _refused_for(kind: int, timestamp: int, rules: RecordRules) -> str:
    if kind == NO_KEY:
        return "it has no key, but the topic is compacted"
    if kind == EARLY:
        return f"its timestamp {timestamp} is before {rules[0]}"
    return f"its timestamp {timestamp} is after {rules[1]}"
