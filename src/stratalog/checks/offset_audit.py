"""The comparison of a segment's offset index with its log. Pure: fed batch by batch.

The index of a segment that Stratalog wrote must equal, byte by byte, the index that a new build
would give. The interval between entries is not stored anywhere. So the check accepts any interval
that explains each entry and each batch without an entry. Kafka's rules for entries changed over the
years: in a segment of Kafka, every entry must be true.
"""

import struct
from collections import deque
from collections.abc import Iterator

from stratalog.batch.header import BatchHeader
from stratalog.control.segments.model import Segment
from stratalog.segment.build import INT32_LAST
from stratalog.segment.log_batches import is_dense
from stratalog.segment.offset_index import OffsetIndex

_ENTRY = struct.Struct(">ii")


class OffsetAudit:
    def __init__(self, segment: Segment, data: bytes) -> None:
        OffsetIndex(data, segment.base_offset).check(segment.size_bytes)
        self._segment = segment
        self._dense = is_dense(segment)
        self._entries = deque(enumerate(_ENTRY.iter_unpack(data)))
        self._owed: int | None = None
        """The offset of the last entry, until a batch ends with it."""
        self._since_bytes = 0
        self._most_without, self._least_with = 0, INT32_LAST
        """Bytes since the last entry: the most at a batch without one, the least at one with it."""

    def step(self, position: int, header: BatchHeader) -> Iterator[str]:
        """Yield the problems of the next batch."""
        if self.names(position):
            yield from self._enter(header)
        else:
            self._most_without = max(self._most_without, self._since_bytes)
        while self._entries and self._entries[0][1][1] < position + header.size_bytes:
            number, (_, inside) = self._entries.popleft()
            yield f"entry {number} points at byte {inside}, where no batch begins"
        self._since_bytes += header.size_bytes
        yield from self._pay(header.last_offset)

    def names(self, position: int) -> bool:
        """Tell if the next entry is for the batch at this position."""
        return bool(self._entries) and self._entries[0][1][1] == position

    def finish(self) -> Iterator[str]:
        if self._owed is not None:
            yield f"its last entry names offset {self._owed}, with which no batch ends"
        if self._dense and self._most_without >= self._least_with:
            yield (
                f"there are entries after {self._least_with} bytes, but none after "
                f"{self._most_without}"
            )

    def _enter(self, header: BatchHeader) -> Iterator[str]:
        number, (relative, _) = self._entries.popleft()
        named = self._segment.base_offset + relative
        if self._owed is not None:
            yield f"entry {number - 1} names offset {self._owed}, with which no batch ends"
        self._owed = named
        if self._dense and named != header.last_offset:
            yield f"entry {number} names offset {named}, its batch ends with {header.last_offset}"
            self._owed = None
        self._least_with = min(self._least_with, self._since_bytes)
        self._since_bytes = 0

    def _pay(self, last_offset: int) -> Iterator[str]:
        """Clear the owed offset if the batch ends with it.

        Before 4.1, Kafka's entries name the last offset of several batches appended at once.
        """
        if self._owed is None or last_offset < self._owed:
            return
        if last_offset > self._owed:
            yield f"an entry names offset {self._owed}, with which no batch ends"
        self._owed = None
