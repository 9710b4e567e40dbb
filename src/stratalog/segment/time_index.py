"""The time index of a segment (`.timeindex`): the offset from which a timestamp may occur.

An entry has 12 bytes: a timestamp (int64) and an offset relative to the segment's base (int32). An
entry (T, O) is written when a batch is indexed: T is the greatest timestamp of the log so far, and
O the last offset of the first batch that reached it. So an entry says:

- no record up to and including O has a timestamp greater than T;
- T itself occurs in the batch that ends at O, perhaps before O.
"""

import struct
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from stratalog.batch.header import BytesLike
from stratalog.ids import Offset
from stratalog.segment.errors import IndexDamagedError

NO_TIMESTAMP = -1

_ENTRY = struct.Struct(">qi")
_TIMESTAMP = struct.Struct(">q")
_INT = struct.Struct(">i")
_OFFSET_AT = 8


class TimeIndexWriter:
    def __init__(self, base_offset: Offset) -> None:
        self._base_offset = base_offset
        self._data = bytearray()
        self._last_timestamp = NO_TIMESTAMP

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Append the greatest timestamp so far and its offset, unless it has an entry already."""
        if timestamp > self._last_timestamp:
            self._data += _ENTRY.pack(timestamp, offset - self._base_offset)
            self._last_timestamp = timestamp

    def to_bytes(self) -> bytes:
        return bytes(self._data)


class TimeIndex:
    """Searches the bytes as they are. Call `check` once before you rely on the answers."""

    def __init__(self, data: BytesLike, base_offset: Offset) -> None:
        if len(data) % _ENTRY.size:
            reason = f"{len(data)} bytes are not a multiple of {_ENTRY.size}"
            raise IndexDamagedError(f"time index of the segment at {base_offset}: {reason}")
        self._data = data
        self._base_offset = base_offset

    def __len__(self) -> int:
        return len(self._data) // _ENTRY.size

    def lookup(self, timestamp: int) -> Offset:
        """Return the offset from which to look for the first record at or after the timestamp.

        This is the offset after the greatest entry whose timestamp is *less* than the given one:
        every record up to that entry is earlier. Kafka uses an entry of exactly the given
        timestamp, but its offset is the last one of the batch in which the timestamp occurs first.
        Kafka then begins with that whole batch, while a search by records from that offset would
        miss the record. Without any lesser entry, the search begins at the segment's base.
        """
        lesser = bisect_left(range(len(self)), timestamp, key=self._timestamp)
        if lesser == 0:
            return self._base_offset
        (relative,) = _INT.unpack_from(self._data, (lesser - 1) * _ENTRY.size + _OFFSET_AT)
        return Offset(self._base_offset + relative + 1)

    def check(self, last_offset: Offset) -> None:
        """Raise unless timestamps rise, offsets do not fall, and all lie within the segment."""
        entries: list[tuple[int, int]] = list(_ENTRY.iter_unpack(self._data))
        fault = _fault(entries, last_offset - self._base_offset)
        if fault is not None:
            raise IndexDamagedError(f"time index of the segment at {self._base_offset}: {fault}")

    def _timestamp(self, entry: int) -> int:
        return int(_TIMESTAMP.unpack_from(self._data, entry * _ENTRY.size)[0])


def _fault(entries: Sequence[tuple[int, int]], relative_last: int) -> str | None:
    if not entries:
        return None
    if entries[-1] == (0, 0) and len(entries) > 1:
        return "it ends in zeros: it was copied before it was trimmed"
    timestamp, relative = entries[0]
    if timestamp < 0 or relative < 0:
        return f"entry 0 has timestamp {timestamp} and relative offset {relative}"
    for number, (before, after) in enumerate(pairwise(entries), 1):
        if not (before[0] < after[0] and before[1] <= after[1]):
            return f"entry {number} is {after}, which does not rise above {before}"
    relative = entries[-1][1]
    if relative > relative_last:
        return f"relative offset {relative} is beyond the segment's last, {relative_last}"
    return None
