"""The order in which a task reads its source objects. Pure.

Every partition needs its rows in the order of their offsets, and an object that several partitions
share should be read once. Commits lock the heads of all their partitions until they are done, so
two blocks that share partitions come in the same order in each of them: an order of objects exists
that suits every partition. Split files of different runs may contradict each other. Where no
object can be read whole, one is read in several steps; each byte is still read once.
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


class SourceRow(NamedTuple):
    """A row to be read, and the part of the task that needs it."""

    part: int
    """The position of the part in the task."""
    row: Coordinates


@dataclass(frozen=True, slots=True)
class ObjectRead:
    """The rows that are read from one object at once, in the order of their bytes."""

    object_key: str
    sources: Sequence[SourceRow]

    @property
    def requests(self) -> list[Range]:
        """The requests to a store behind a network."""
        rows = [source.row for source in self.sources]
        ranges = [Range(row.byte_offset, row.byte_offset + row.byte_size) for row in rows]
        return plan_reads(ranges, REMOTE_GAP_BYTES).requests

    @property
    def cost_bytes(self) -> int:
        """The memory that the read may take, with the small gaps between the rows."""
        cost_bytes, end = 0, self.sources[0].row.byte_offset
        for _, row in self.sources:
            gap_bytes = row.byte_offset - end
            cost_bytes += row.byte_size + (gap_bytes if 0 < gap_bytes <= REMOTE_GAP_BYTES else 0)
            end = row.byte_offset + row.byte_size
        return cost_bytes


def plan_object_reads(
    parts: Sequence[Sequence[Coordinates]], *, max_bytes: int = MAX_REQUEST_BYTES
) -> list[ObjectRead]:
    """Plan reads that give each partition its rows in the order in which they stand in the parts.

    A part is rows of one partition.
    """
    lanes: dict[TopicPartition, list[SourceRow]] = defaultdict(list)
    for part, rows in enumerate(parts):
        if rows:
            partition = TopicPartition(rows[0].topic_id, rows[0].partition)
            lanes[partition] += [SourceRow(part, row) for row in rows]
    order = _ObjectOrder([list(_runs(sources)) for sources in lanes.values()])
    return [read for sources in order.steps() for read in _cut(sources, max_bytes)]


def _runs(sources: Iterable[SourceRow]) -> Iterator[list[SourceRow]]:
    """Group consecutive rows that one read of their object can serve, in the order of its bytes."""
    run: list[SourceRow] = []
    for source in sources:
        if run and not _goes_on(run[-1].row, source.row):
            yield run
            run = []
        run.append(source)
    if run:
        yield run


def _goes_on(row: Coordinates, following: Coordinates) -> bool:
    return row.object_key == following.object_key and row.byte_offset < following.byte_offset


class _ObjectOrder:
    """A topological order of the objects: each comes as soon as it is next in all its lanes.

    A lane is the rows of one partition, in runs that lie in one object each.
    """

    def __init__(self, lanes: Sequence[list[list[SourceRow]]]) -> None:
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

    def steps(self) -> Iterator[list[SourceRow]]:
        while self._fronts:
            key = heappop(self._ready) if self._ready else self._least_bad()
            sources: list[SourceRow] = []
            for index in self._fronts.pop(key):
                sources += self._lanes[index][self._positions[index]]
                self._positions[index] += 1
                self._come_forward(index)
            yield sources

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
        """Return the object that is next somewhere and has the fewest runs further behind."""
        return min(self._fronts, key=lambda key: (self._later[key], key))


def _cut(sources: Sequence[SourceRow], max_bytes: int) -> Iterator[ObjectRead]:
    """Sort by bytes, and cut into reads that span up to `max_bytes`, or have one row only."""
    portion: list[SourceRow] = []
    for source in sorted(sources, key=lambda source: source.row.byte_offset):
        end = source.row.byte_offset + source.row.byte_size
        if portion and end - portion[0].row.byte_offset > max_bytes:
            yield ObjectRead(portion[0].row.object_key, portion)
            portion = []
        portion.append(source)
    if portion:
        yield ObjectRead(portion[0].row.object_key, portion)
