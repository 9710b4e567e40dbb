"""The batches in the bytes of a segment's log that answer a read. Pure.

The CRC of every answered batch is checked. Offsets must rise and stay inside the segment. In a
segment that Stratalog wrote they are also dense: a missing batch is damage. Kafka's own segments
may have gaps, which compaction and deleted transactions leave. A read of an offset in a gap is
answered from the next batch above it, as by Kafka.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from crc32c import crc32c

from stratalog.batch.frames import crc_mismatch
from stratalog.batch.header import CRC_START, HEADER_BYTES, LOG_OVERHEAD_BYTES
from stratalog.batch.log_place import LogBounds, LogPlace, load_log_walk
from stratalog.control.segments.model import Segment
from stratalog.errors import StratalogError
from stratalog.ids import Offset
from stratalog.objects.store import Buffer
from stratalog.segment.errors import LogDamagedError, OldRecordFormatError

_FIELDS = struct.Struct(">qiibIhi")
"""The base offset, length, leader epoch, magic, CRC, attributes and last offset delta."""
_OLD_MAGICS = (0, 1)


class Stop(Enum):
    """The reason why a selection ended."""

    DONE = auto()
    """The bytes ended with a batch."""
    FULL = auto()
    """The next batch would make the answer too large."""
    SHORT = auto()
    """The bytes ended inside a batch."""
    DAMAGED = auto()


@dataclass(frozen=True, slots=True)
class BatchQuery:
    """The wanted batches of a segment. The same for all its bytes that one read goes through."""

    segment: Segment
    offset: Offset
    """The answer begins with the batch that holds this offset or, in a gap, with the next batch."""
    max_bytes: int
    """The most bytes of the answer."""
    at_least_one: bool = True
    """Answer a first batch even if it is larger than `max_bytes`."""


@dataclass(slots=True)
class BatchAnswer:
    part: memoryview
    """The batches of the answer, one after the other."""
    stop: Stop
    position: int
    """The position in the log at which the next batch begins."""
    next_offset: Offset
    """The offset after the last batch that was seen."""
    needed_bytes: int = 0
    """The bytes from `position` on that are needed to go on, if the bytes were too short."""
    error: StratalogError | None = None


def is_dense(segment: Segment) -> bool:
    """Tell if the segment must hold every one of its offsets.

    A segment that Stratalog wrote must. An adopted one need not, even if its objects were copied
    into the cluster's own store later.
    """
    return segment.owned and not segment.store_url


def joined(parts: Sequence[Buffer]) -> memoryview:
    """Return one buffer. Bytes are copied only if there are several parts."""
    return memoryview(parts[0] if len(parts) == 1 else b"".join(parts))


def select_batches(
    parts: Sequence[Buffer], position: int, query: BatchQuery, *, expected: Offset | None
) -> BatchAnswer:
    """Select the batches that answer a query, from bytes of the log that begin at `position`.

    A batch begins there. `expected` is the least offset that it may have, and in a dense segment
    the offset that it must have. None if only the index says that a batch begins there.
    """
    data = joined(parts) if parts else memoryview(b"")
    selection = _Selection(data, position, query, expected)
    try:
        stop = selection.run()
    except LogDamagedError as error:
        return selection.result(Stop.DAMAGED, error)
    return selection.result(stop)


class _Selection:
    def __init__(
        self, data: memoryview, position: int, query: BatchQuery, expected: Offset | None
    ) -> None:
        self._data = data
        self._position = position
        self._query = query
        self._dense = is_dense(query.segment)
        self._place = LogPlace(
            expected=query.segment.base_offset if expected is None else expected,
            is_exact=expected is not None,
        )
        self._needed_bytes = 0

    def run(self) -> Stop:
        """Walk over all that is right, and look at the rest batch by batch."""
        data, query, place = self._data, self._query, self._place
        # A log that is longer than its row says is odd from there on.
        in_log = data[: max(0, query.segment.size_bytes - self._position)]
        load_log_walk()(in_log, place, self._bounds(), None)
        while place.at < len(data):
            at = place.at
            if len(data) - at < HEADER_BYTES:
                return self._short(HEADER_BYTES)
            base, length, _, magic, crc, _, delta = _FIELDS.unpack_from(data, at)
            size = LOG_OVERHEAD_BYTES + length
            self._check(base, size, magic, delta)
            if base + delta >= query.offset:
                if self._is_full(at + size):
                    return Stop.FULL
                if at + size > len(data):
                    return self._short(size)
                self._check_answered(base, size, crc)
                if place.start is None:
                    place.start = at
            place.at = at + size
            place.expected = base + delta + 1
            place.is_exact = True
        self._check_end()
        return Stop.DONE if place.at == len(data) else self._short(HEADER_BYTES)

    def _bounds(self) -> LogBounds:
        query = self._query
        return LogBounds(
            wanted=query.offset,
            last_offset=query.segment.last_offset,
            max_bytes=query.max_bytes,
            at_least_one=query.at_least_one,
            is_dense=self._dense,
            may_begin_anywhere=self._position == 0,
        )

    def result(self, stop: Stop, error: StratalogError | None = None) -> BatchAnswer:
        place = self._place
        answered = b"" if place.start is None else self._data[place.start : place.at]
        return BatchAnswer(
            part=memoryview(answered),
            stop=stop,
            position=self._position + place.at,
            next_offset=Offset(place.expected),
            needed_bytes=self._needed_bytes,
            error=error,
        )

    def _is_full(self, end: int) -> bool:
        """Tell if the answer would be too large if it ended here."""
        place = self._place
        if place.start is None and self._query.at_least_one:
            return False
        start = place.at if place.start is None else place.start
        return end - start > self._query.max_bytes

    def _short(self, needed_bytes: int) -> Stop:
        end = self._position + self._place.at
        if end < self._query.segment.size_bytes < end + needed_bytes:
            raise self._damaged("the log ends inside a batch")
        self._needed_bytes = needed_bytes
        return Stop.SHORT

    def _check(self, base: int, size: int, magic: int, delta: int) -> None:
        segment, place = self._query.segment, self._place
        # Stratalog never writes old formats: in its own segments they are damage like any other.
        if magic in _OLD_MAGICS and not self._dense:
            raise OldRecordFormatError(
                f"{self._where()}: records of message format {magic}, which Kafka wrote before"
                " 0.11 and Kafka 4 cannot read either; let an older Kafka rewrite the topic"
            )
        if magic != 2:
            raise self._damaged(f"magic {magic} is not 2")
        if size < HEADER_BYTES or self._position + place.at + size > segment.size_bytes:
            raise self._damaged(f"a batch of {size} bytes in a log of {segment.size_bytes}")
        if delta < 0 or base + delta > segment.last_offset:
            raise self._damaged(
                f"a batch of offsets {base} to {base + delta} in a segment that ends at"
                f" {segment.last_offset}"
            )
        is_due = base == place.expected
        if base < place.expected or (place.is_exact and self._dense and not is_due):
            raise self._damaged(f"a batch says offset {base}, not {place.expected}")
        if not place.is_exact and self._position and base > self._query.offset:
            # An index entry never leads beyond the wanted offset, even if there are gaps.
            raise self._damaged(f"a batch of offset {base}, beyond {self._query.offset}")

    def _check_answered(self, base: int, size: int, crc: int) -> None:
        query, place = self._query, self._place
        if place.start is None and self._dense and base > query.offset:
            raise self._damaged(f"no batch holds offset {query.offset}, the next one is {base}")
        actual = crc32c(self._data[place.at + CRC_START : place.at + size])
        if actual != crc:
            reason = crc_mismatch(self._position + place.at, crc, actual).reason
            raise self._damaged(f"the batch of offset {base}: {reason}")

    def _check_end(self) -> None:
        segment, place = self._query.segment, self._place
        at_end = self._position + place.at == segment.size_bytes
        if at_end and self._dense and place.expected != segment.end_offset:
            last = place.expected - 1
            raise self._damaged(f"the log ends with offset {last}, not {segment.last_offset}")

    def _damaged(self, reason: str) -> LogDamagedError:
        found_by = "" if self._place.is_exact else ", where its offset index points"
        return LogDamagedError(f"{self._where()}{found_by}: {reason}")

    def _where(self) -> str:
        return f"object {self._query.segment.key_base}.log, byte {self._position + self._place.at}"
