"""In which order a task reads its source objects. Pure.

Every partition needs its rows in the order of their offsets, and an object that several partitions
share should be read once. Commits lock the heads of all their partitions until they are done, so
two blocks that share partitions come in the same order in each of them: an order of objects exists
that suits every partition. Split files of different runs may contradict each other. Where no
object can be read whole, one is read in several visits; each byte is still read once.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from stratalog.control.log.model import Coordinates
from stratalog.ids import TopicPartition
from stratalog.objects.ranges import MAX_REQUEST_BYTES, REMOTE_GAP_BYTES, plan_reads
from stratalog.objects.store import Range


class Piece(NamedTuple):
    """A row on its way into the unit of a task that needs it."""

    unit: int
    row: Coordinates


@dataclass(frozen=True, slots=True)
class Visit:
    """What is asked of one object at once: pieces in the order of their bytes."""

    object_key: str
    pieces: Sequence[Piece]

    @property
    def requests(self) -> list[Range]:
        """What a store behind a network is asked for."""
        rows = [piece.row for piece in self.pieces]
        ranges = [Range(row.byte_offset, row.byte_offset + row.byte_size) for row in rows]
        return plan_reads(ranges, REMOTE_GAP_BYTES).requests

    @property
    def cost_bytes(self) -> int:
        """What reading it may take in memory, small gaps between the pieces included."""
        cost_bytes, end = 0, self.pieces[0].row.byte_offset
        for _, row in self.pieces:
            gap_bytes = row.byte_offset - end
            cost_bytes += row.byte_size + (gap_bytes if 0 < gap_bytes <= REMOTE_GAP_BYTES else 0)
            end = row.byte_offset + row.byte_size
        return cost_bytes


def plan_visits(
    units: Sequence[Sequence[Coordinates]], *, max_bytes: int = MAX_REQUEST_BYTES
) -> list[Visit]:
    """Visits after which each partition has had its rows in the order in which they were given.

    A unit is rows of one partition.
    """
    lanes: dict[TopicPartition, list[Piece]] = defaultdict(list)
    for unit, rows in enumerate(units):
        if rows:
            partition = TopicPartition(rows[0].topic_id, rows[0].partition)
            lanes[partition] += [Piece(unit, row) for row in rows]
    walk = _Walk([list(_runs(pieces)) for pieces in lanes.values()])
    return [visit for pieces in walk.steps() for visit in _cut(pieces, max_bytes)]


def _runs(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Consecutive pieces that one read of their object can serve, in the order of its bytes."""
    run: list[Piece] = []
    for piece in pieces:
        if run and not _goes_on(run[-1].row, piece.row):
            yield run
            run = []
        run.append(piece)
    if run:
        yield run


def _goes_on(row: Coordinates, following: Coordinates) -> bool:
    return row.object_key == following.object_key and row.byte_offset < following.byte_offset


class _Walk:
    """A topological walk over the objects, each as soon as it is next in all its lanes."""

    def __init__(self, lanes: Sequence[list[list[Piece]]]) -> None:
        self._lanes = lanes
        self._positions = [0] * len(lanes)
        self._fronts: dict[str, list[int]] = defaultdict(list)
        """The lanes in which an object is next."""
        self._later: dict[str, int] = defaultdict(int)
        """Runs of an object that are not next in their lane."""
        self._ready: list[str] = []
        for lane in lanes:
            for run in lane:
                self._later[run[0].row.object_key] += 1
        for index in range(len(lanes)):
            self._come_forward(index)

    def steps(self) -> Iterator[list[Piece]]:
        while self._fronts:
            key = heappop(self._ready) if self._ready else self._least_bad()
            pieces: list[Piece] = []
            for index in self._fronts.pop(key):
                pieces += self._lanes[index][self._positions[index]]
                self._positions[index] += 1
                self._come_forward(index)
            yield pieces

    def _come_forward(self, index: int) -> None:
        lane, position = self._lanes[index], self._positions[index]
        if position == len(lane):
            return
        key = lane[position][0].row.object_key
        self._fronts[key].append(index)
        self._later[key] -= 1
        if not self._later[key]:
            heappush(self._ready, key)

    def _least_bad(self) -> str:
        """Of the objects that are next somewhere, the one with the fewest runs elsewhere."""
        return min(self._fronts, key=lambda key: (self._later[key], key))


def _cut(pieces: Sequence[Piece], max_bytes: int) -> Iterator[Visit]:
    """Sorted by bytes, in portions that span no more than this, or have one piece only."""
    portion: list[Piece] = []
    for piece in sorted(pieces, key=lambda piece: piece.row.byte_offset):
        end = piece.row.byte_offset + piece.row.byte_size
        if portion and end - portion[0].row.byte_offset > max_bytes:
            yield Visit(portion[0].row.object_key, portion)
            portion = []
        portion.append(piece)
    if portion:
        yield Visit(portion[0].row.object_key, portion)
