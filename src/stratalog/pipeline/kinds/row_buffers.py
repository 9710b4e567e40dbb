"""Memory for a log's rows, in which they lie as they will lie in the log.

Rows come in pieces of some kilobytes. To handle each by itself on its way into the store costs more
than to write it, so neighbours are read into one slab, and leave it together.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from stratalog.control.log.model import Coordinates
from stratalog.ids import Offset
from stratalog.objects.memory import memory_for


class SlabPiece(NamedTuple):
    """The bytes of some rows, which lie side by side."""

    rows: list[Coordinates]
    data: memoryview


class _Plan(NamedTuple):
    """A slab: where it begins in the log, its size, and its last row."""

    position: int
    size_bytes: int
    last: Offset


class _Place(NamedTuple):
    slab: int
    start: int


class Slabs:
    """The memory of one log. A slab is there from its first row's reading to its last one's end."""

    def __init__(self, rows: Sequence[Coordinates], slab_bytes: int) -> None:
        self._plans: list[_Plan] = []
        self._places: dict[Offset, _Place] = {}
        self._slabs: dict[int, memoryview] = {}
        position = 0
        for slab in _cut(rows, slab_bytes):
            start = 0
            for row in slab:
                self._places[row.base_offset] = _Place(len(self._plans), start)
                start += row.byte_size
            self._plans.append(_Plan(position, start, slab[-1].base_offset))
            position += start

    def memory(self, row: Coordinates) -> memoryview:
        """Where to read a row to."""
        number, start = self._places[row.base_offset]
        slab = self._slabs.get(number)
        if slab is None:
            plan = self._plans[number]
            slab = self._slabs[number] = memory_for(plan.size_bytes, plan.position)
        return slab[start : start + row.byte_size]

    def joined(self, rows: Iterable[tuple[Coordinates, memoryview]]) -> list[SlabPiece]:
        """Rows that follow each other, in few pieces. They do not come again.

        A row that did not come in the memory that was meant for it is a piece of its own.
        """
        pieces: list[SlabPiece] = []
        last_number, piece_start = -1, 0
        for row, data in rows:
            number, start = self._places[row.base_offset]
            slab = self._slabs.get(number)
            if slab is None or data.obj is not slab.obj:
                pieces.append(SlabPiece([row], data))
                last_number = -1
            elif number == last_number:
                held = pieces[-1].rows
                held.append(row)
                pieces[-1] = SlabPiece(held, slab[piece_start : start + len(data)])
            else:
                pieces.append(SlabPiece([row], data))
                last_number, piece_start = number, start
            if row.base_offset == self._plans[number].last:
                self._slabs.pop(number, None)
        return pieces

    def close(self) -> None:
        self._slabs.clear()


def _cut(rows: Sequence[Coordinates], slab_bytes: int) -> Iterator[list[Coordinates]]:
    slab: list[Coordinates] = []
    size_bytes = 0
    for row in rows:
        if slab and size_bytes + row.byte_size > slab_bytes:
            yield slab
            slab, size_bytes = [], 0
        slab.append(row)
        size_bytes += row.byte_size
    if slab:
        yield slab
