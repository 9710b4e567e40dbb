"""From bytes of a segment's log to the batches that answer a read. Pure.

Every batch that is answered has its CRC checked. Offsets must rise and stay inside the segment.
In a segment that we wrote they are also dense: a batch that is missing there is damage. Kafka's
own may have gaps, which compaction and deleted transactions leave; whoever asks for an offset in
a gap is answered from the next batch above it, as by Kafka.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from crc32c import crc32c

from stratalog.batch.frames import crc_mismatch
from stratalog.batch.header import CRC_START, HEADER_BYTES, LOG_OVERHEAD_BYTES
from stratalog.control.segments.model import Segment
from stratalog.errors import StratalogError
from stratalog.ids import Offset
from stratalog.objects.store import Buffer
from stratalog.segment.errors import LogDamagedError, OldRecordFormatError

_FIELDS = struct.Struct(">qiibIhi")
"""Base offset, length, leader epoch, magic, CRC, attributes, last offset delta."""
_OLD_MAGICS = (0, 1)


class Stop(Enum):
    """Why a walk ended."""

    DONE = auto()
    """The bytes ended with a batch."""
    FULL = auto()
    """The next batch would make the answer too large."""
    SHORT = auto()
    """The bytes ended inside a batch."""
    DAMAGED = auto()


@dataclass(frozen=True, slots=True)
class BatchQuery:
    """What to look for. The same for all the bytes of a segment that are walked for one read."""

    segment: Segment
    offset: Offset
    """The answer begins with the batch that contains this one, or in a gap with the next."""
    max_bytes: int
    """Of the answer."""
    at_least_one: bool = True
    """Whether a first batch that is larger is answered nevertheless."""


@dataclass(slots=True)
class BatchAnswer:
    part: memoryview
    """The batches of the answer, one after the other."""
    stop: Stop
    position: int
    """Of the log, at which the next batch begins."""
    next_offset: Offset
    """After the last batch that was seen."""
    needed_bytes: int = 0
    """How many bytes from `position` on are needed to see more, if the bytes were too short."""
    error: StratalogError | None = None


def is_dense(segment: Segment) -> bool:
    """Whether the segment must hold every one of its offsets.

    One that we wrote does. An adopted one need not, even when its objects were made ours later.
    """
    return segment.owned and not segment.store_url


def joined(parts: Sequence[Buffer]) -> memoryview:
    """One buffer; copied only if there are several."""
    return memoryview(parts[0] if len(parts) == 1 else b"".join(parts))


def select_batches(
    parts: Sequence[Buffer], position: int, walk: BatchQuery, *, expected: Offset | None
) -> BatchAnswer:
    """BatchQuery the bytes of the log that begin at `position`, with a batch.

    `expected` is the first offset that the batch there may have, and must have in a dense
    segment; None, if only the index says that a batch begins there.
    """
    data = joined(parts) if parts else memoryview(b"")
    steps = _Steps(data, position, walk, expected)
    try:
        stop = steps.run()
    except LogDamagedError as error:
        return steps.result(Stop.DAMAGED, error)
    return steps.result(stop)


class _Steps:
    def __init__(
        self, data: memoryview, position: int, walk: BatchQuery, expected: Offset | None
    ) -> None:
        self._data = data
        self._position = position
        self._walk = walk
        self._dense = is_dense(walk.segment)
        self._exact = expected is not None
        """Whether the next batch's offset is known, and not only its least."""
        self._expected = walk.segment.base_offset if expected is None else expected
        self._start: int | None = None
        self._at = 0
        self._needed_bytes = 0

    def run(self) -> Stop:
        data, walk = self._data, self._walk
        while self._at < len(data):
            at = self._at
            if len(data) - at < HEADER_BYTES:
                return self._short(HEADER_BYTES)
            base, length, _, magic, crc, _, delta = _FIELDS.unpack_from(data, at)
            size = LOG_OVERHEAD_BYTES + length
            self._check(base, size, magic, delta)
            if base + delta >= walk.offset:
                if self._is_full(at + size):
                    return Stop.FULL
                if at + size > len(data):
                    return self._short(size)
                self._check_answered(base, size, crc)
                if self._start is None:
                    self._start = at
            self._at = at + size
            self._expected = Offset(base + delta + 1)
            self._exact = True
        self._check_end()
        return Stop.DONE if self._at == len(data) else self._short(HEADER_BYTES)

    def result(self, stop: Stop, error: StratalogError | None = None) -> BatchAnswer:
        answered = self._data[self._start : self._at] if self._start is not None else b""
        return BatchAnswer(
            part=memoryview(answered),
            stop=stop,
            position=self._position + self._at,
            next_offset=self._expected,
            needed_bytes=self._needed_bytes,
            error=error,
        )

    def _is_full(self, end: int) -> bool:
        """Whether the answer would be too large if it went up to here."""
        if self._start is None and self._walk.at_least_one:
            return False
        start = self._at if self._start is None else self._start
        return end - start > self._walk.max_bytes

    def _short(self, needed_bytes: int) -> Stop:
        end = self._position + self._at
        if end < self._walk.segment.size_bytes < end + needed_bytes:
            raise self._damaged("the log ends inside a batch")
        self._needed_bytes = needed_bytes
        return Stop.SHORT

    def _check(self, base: int, size: int, magic: int, delta: int) -> None:
        segment = self._walk.segment
        # We never write them: in a segment of ours it is damage like any other.
        if magic in _OLD_MAGICS and not self._dense:
            raise OldRecordFormatError(
                f"{self._where()}: records of message format {magic}, which Kafka wrote before"
                " 0.11 and Kafka 4 cannot read either; let an older Kafka rewrite the topic"
            )
        if magic != 2:
            raise self._damaged(f"magic {magic} is not 2")
        if size < HEADER_BYTES or self._position + self._at + size > segment.size_bytes:
            raise self._damaged(f"a batch of {size} bytes in a log of {segment.size_bytes}")
        if delta < 0 or base + delta > segment.last_offset:
            raise self._damaged(
                f"a batch of offsets {base} to {base + delta} in a segment that ends at"
                f" {segment.last_offset}"
            )
        if base < self._expected or (self._exact and self._dense and base != self._expected):
            raise self._damaged(f"a batch says offset {base}, not {self._expected}")
        if not self._exact and self._position and base > self._walk.offset:
            # An entry of an index never leads beyond the asked offset, whatever the gaps are.
            raise self._damaged(f"a batch of offset {base}, beyond {self._walk.offset}")

    def _check_answered(self, base: int, size: int, crc: int) -> None:
        walk = self._walk
        if self._start is None and self._dense and base > walk.offset:
            raise self._damaged(f"no batch holds offset {walk.offset}, the next one is {base}")
        actual = crc32c(self._data[self._at + CRC_START : self._at + size])
        if actual != crc:
            reason = crc_mismatch(self._position + self._at, crc, actual).reason
            raise self._damaged(f"the batch of offset {base}: {reason}")

    def _check_end(self) -> None:
        segment = self._walk.segment
        at_end = self._position + self._at == segment.size_bytes
        if at_end and self._dense and self._expected != segment.end_offset:
            last = self._expected - 1
            raise self._damaged(f"the log ends with offset {last}, not {segment.last_offset}")

    def _damaged(self, reason: str) -> LogDamagedError:
        found_by = "" if self._exact else ", where its offset index points"
        return LogDamagedError(f"{self._where()}{found_by}: {reason}")

    def _where(self) -> str:
        return f"object {self._walk.segment.key_base}.log, byte {self._position + self._at}"
