"""Buffers for the rows of a log, in which they lie as they will lie in the log.

Rows have some kilobytes. To handle each by itself on its way into the store costs more than to
write it, so neighbouring rows are read into one buffer, and leave it together.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from stratalog.control.log.model import Coordinates
from stratalog.ids import Offset
from stratalog.objects.memory import memory_for


class AdjoiningRows(NamedTuple):
    """The bytes of some rows, which lie side by side in memory."""

    rows: list[Coordinates]
    data: memoryview


class _Plan(NamedTuple):
    """A buffer: the position in the log where it begins, its size, and its last row."""

    position: int
    size_bytes: int
    last: Offset


class _RowPosition(NamedTuple):
    buffer: int
    start: int


class RowBuffers:
    """The buffers of one log. A buffer exists from its first row's read to its last row's end."""

    def __init__(self, rows: Sequence[Coordinates], buffer_bytes: int) -> None:
        self._plans: list[_Plan] = []
        self._positions: dict[Offset, _RowPosition] = {}
        self._buffers: dict[int, memoryview] = {}
        position = 0
        for group in _cut(rows, buffer_bytes):
            start = 0
            for row in group:
                self._positions[row.base_offset] = _RowPosition(len(self._plans), start)
                start += row.byte_size
            self._plans.append(_Plan(position, start, group[-1].base_offset))
            position += start

    def memory(self, row: Coordinates) -> memoryview:
        """Return the memory that a row is to be read into."""
        number, start = self._positions[row.base_offset]
        buffer = self._buffers.get(number)
        if buffer is None:
            plan = self._plans[number]
            buffer = self._buffers[number] = memory_for(plan.size_bytes, plan.position)
        return buffer[start : start + row.byte_size]

    def joined(self, rows: Iterable[tuple[Coordinates, memoryview]]) -> list[AdjoiningRows]:
        """Join rows that follow each other. They do not come again.

        A row that did not come in the memory that was meant for it is not joined with others.
        """
        found: list[AdjoiningRows] = []
        last_number, first_start = -1, 0
        for row, data in rows:
            number, start = self._positions[row.base_offset]
            buffer = self._buffers.get(number)
            if buffer is None or data.obj is not buffer.obj:
                found.append(AdjoiningRows([row], data))
                last_number = -1
            elif number == last_number:
                joined = found[-1].rows
                joined.append(row)
                found[-1] = AdjoiningRows(joined, buffer[first_start : start + len(data)])
            else:
                found.append(AdjoiningRows([row], data))
                last_number, first_start = number, start
            if row.base_offset == self._plans[number].last:
                self._buffers.pop(number, None)
        return found

    def close(self) -> None:
        self._buffers.clear()


def _cut(rows: Sequence[Coordinates], buffer_bytes: int) -> Iterator[list[Coordinates]]:
    group: list[Coordinates] = []
    size_bytes = 0
    for row in rows:
        if group and size_bytes + row.byte_size > buffer_bytes:
            yield group
            group, size_bytes = [], 0
        group.append(row)
        size_bytes += row.byte_size
    if group:
        yield group
