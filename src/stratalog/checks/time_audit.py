"""The comparison of a segment's time index with its log. Pure: fed batch by batch.

The index of a segment that Stratalog wrote must equal, byte by byte, the index that a new build
would give. In a segment that Kafka wrote, every entry must be true.
"""

import struct
from collections import deque
from collections.abc import Iterator

from stratalog.batch.header import BatchHeader
from stratalog.control.segments.model import Segment
from stratalog.segment.log_batches import is_dense
from stratalog.segment.time_index import NO_TIMESTAMP, TimeIndex, TimeIndexWriter

_ENTRY = struct.Struct(">qi")


class TimeAudit:
    def __init__(self, segment: Segment, data: bytes) -> None:
        TimeIndex(data, segment.base_offset).check(segment.last_offset)
        self._segment = segment
        self._data = data
        self._dense = is_dense(segment)
        self._entries = deque(enumerate(_ENTRY.iter_unpack(data)))
        self._rebuilt = TimeIndexWriter(segment.base_offset)
        self._newest = NO_TIMESTAMP, int(segment.base_offset)

    def step(self, header: BatchHeader, *, indexed: bool) -> Iterator[str]:
        if header.max_timestamp > self._newest[0]:
            self._newest = header.max_timestamp, header.last_offset
        if indexed:
            self._rebuilt.maybe_append(*self._newest)
        if self._dense:
            return
        relative = header.last_offset - self._segment.base_offset
        while self._entries and self._entries[0][1][1] < relative:
            self._entries.popleft()
        if self._entries and self._entries[0][1][0] < header.max_timestamp:
            number, (timestamp, _) = self._entries[0]
            yield (
                f"entry {number} says that nothing before it is newer than {timestamp}, but "
                f"offset {header.last_offset} ends a batch of {header.max_timestamp}"
            )

    def finish(self) -> Iterator[str]:
        self._rebuilt.maybe_append(*self._newest)
        if self._dense and self._rebuilt.to_bytes() != self._data:
            stored = [*_ENTRY.iter_unpack(self._data)]
            made = [*_ENTRY.iter_unpack(self._rebuilt.to_bytes())]
            number = next(
                (at for at, pair in enumerate(zip(stored, made, strict=False)) if len({*pair}) > 1),
                min(len(stored), len(made)),
            )
            yield f"entry {number} is not the one that its log makes"
