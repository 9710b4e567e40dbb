"""The offset index of a segment (`.index`): the position in the log at which to look for an offset.

An entry has 8 bytes: the offset relative to the segment's base, and a position in the log, both
int32. An entry names the *last* offset of a batch and the byte at which that batch begins. Kafka
before 4.1 wrote one entry for several batches that were appended together, with the last offset of
all and the position of the first. This code handles such entries as well.
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import islice, pairwise
from operator import lt

from stratalog.batch.header import BytesLike
from stratalog.ids import Offset
from stratalog.segment.errors import IndexDamagedError

_ENTRY = struct.Struct(">ii")
_INT = struct.Struct(">i")
_POSITION_AT = 4


class OffsetIndexWriter:
    """Collects entries. The caller decides when to append, as the rule counts the log's bytes."""

    def __init__(self, base_offset: Offset) -> None:
        self._base_offset = base_offset
        self._data = bytearray()

    def append(self, last_offset: int, position: int) -> None:
        self.extend([last_offset - self._base_offset, position])

    def extend(self, entries: Sequence[int]) -> None:
        """Append several entries: in turn an offset, relative to the base, and a position."""
        self._data += struct.pack(f">{len(entries)}i", *entries)

    def to_bytes(self) -> bytes:
        return bytes(self._data)


class OffsetIndex:
    """Searches the bytes as they are. Call `check` once before you rely on the answers."""

    def __init__(self, data: BytesLike, base_offset: Offset) -> None:
        if len(data) % _ENTRY.size:
            reason = f"{len(data)} bytes are not a multiple of {_ENTRY.size}"
            raise IndexDamagedError(f"offset index of the segment at {base_offset}: {reason}")
        self._data = data
        self._base_offset = base_offset

    def __len__(self) -> int:
        return len(self._data) // _ENTRY.size

    def lookup(self, offset: Offset) -> int:
        """Return a position from which a read finds the batch that holds the offset."""
        return self.span(offset)[0]

    def span(self, offset: Offset) -> tuple[int, int | None]:
        """Return a position at or before the batch of an offset, and one at or after its end.

        The first entry beyond the offset may belong to the batch that holds it, because entries
        name last offsets. Only the entry after that one is sure to begin a later batch. Without
        it, the end of the log is the only bound: None.
        """
        entries = len(self)
        beyond = bisect_right(range(entries), offset - self._base_offset, key=self._relative)
        start = self._position(beyond - 1) if beyond else 0
        return start, self._position(beyond + 1) if beyond + 1 < entries else None

    def entry_from(self, position: int, log_size_bytes: int) -> int:
        """Return the first indexed start of a batch that is not before this byte of the log.

        Every byte between two entries leads to the same entry, so that ranges of a log that were
        cut anywhere meet at the same batch. Behind the last entry it is the end of the log.
        """
        if position <= 0:
            return 0
        entry = bisect_left(range(len(self)), position, key=self._position)
        return self._position(entry) if entry < len(self) else log_size_bytes

    def check(self, log_size_bytes: int) -> None:
        """Raise unless every entry lies beyond the one before it, and all lie within the log."""
        # A GiB has a quarter of a million entries. So they are first compared column by column,
        # which is several times as fast. Only a failure is then searched entry by entry.
        columns = array("i", bytes(self._data))
        if sys.byteorder == "little":
            columns.byteswap()
        relatives, positions = columns[0::2], columns[1::2]
        if _rise(relatives) and _rise(positions) and _within(relatives, positions, log_size_bytes):
            return
        fault = _fault(list(zip(relatives, positions, strict=True)), log_size_bytes)
        if fault is not None:
            raise IndexDamagedError(f"offset index of the segment at {self._base_offset}: {fault}")

    def _relative(self, entry: int) -> int:
        return int(_INT.unpack_from(self._data, entry * _ENTRY.size)[0])

    def _position(self, entry: int) -> int:
        return int(_INT.unpack_from(self._data, entry * _ENTRY.size + _POSITION_AT)[0])


def _rise(column: "array[int]") -> bool:
    return all(map(lt, column, islice(column, 1, None)))


def _within(relatives: "array[int]", positions: "array[int]", log_size_bytes: int) -> bool:
    if not positions:
        return True
    return relatives[0] >= 0 and positions[0] >= 0 and 0 < positions[-1] < log_size_bytes


def _fault(entries: Sequence[tuple[int, int]], log_size_bytes: int) -> str | None:
    if not entries:
        return None
    if entries[-1] == (0, 0):
        # The first batch is never indexed, so no real entry looks like this.
        return "it ends in zeros: it was copied before it was trimmed"
    relative, position = entries[0]
    if relative < 0 or position < 0:
        return f"entry 0 has relative offset {relative} and position {position}"
    for number, (before, after) in enumerate(pairwise(entries), 1):
        if not (before[0] < after[0] and before[1] < after[1]):
            return f"entry {number} is {after}, which does not rise above {before}"
    position = entries[-1][1]
    if position >= log_size_bytes:
        return f"position {position} is not within the log's {log_size_bytes} bytes"
    return None
