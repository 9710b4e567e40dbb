"""The read path of the block tier: from coordinates to stamped record batches.

Fresh blocks lie in memory, checked and stamped. Of others, the bytes that an answer has room for
are read: the rows of one object together, objects in parallel, but not too many of them. Every
batch that comes from the object store has its CRC checked before it is handed out. A bad batch ends
its partition's answer after the good ones before it; other partitions do not notice. The answer
from a row is one piece of memory, however many batches are in it.
"""

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeAlias

from stratalog.block.fresh_blocks import FreshBlocks, FreshRow
from stratalog.block.row_batches import RowAnswer, select_from_row
from stratalog.control.log.model import Coordinates
from stratalog.errors import StratalogError
from stratalog.ids import ObjectId, Offset, PartitionIndex, TopicId
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.objects.store import Buffer, ObjectStore, Range
from stratalog.pieces import Part, PiecesRead, PiecesWanted, Start

_MOST_PLACES = 4096
"""The number of places that are remembered. One costs a few hundred bytes."""


_MOST_OBJECTS = 128
"""An answer ends where it would need another object, if every partition has a row by then. A quiet
topic has a few hundred bytes in each block: a megabyte of it would take thousands of requests at
once, and would come too late for a client with a deadline, which would ask for the same again."""


_LAST_SHARE = 8
"""An answer ends with a row if less than this part of it, an eighth, is left for the next one. Few
batches would fit in, and of batches of a megabyte none: each would be read twice."""


@dataclass(slots=True)
class _Stored:
    """A row in the object store, from the batch on at which an earlier read ended, if one did."""

    row: Coordinates
    read_bytes: int
    data: Buffer | StratalogError = b""


_Source: TypeAlias = FreshRow | _Stored


class _PlaceKey(NamedTuple):
    object_id: ObjectId
    topic_id: TopicId
    partition: PartitionIndex
    offset: Offset


class _Places:
    """The positions in objects at which reads ended inside of rows. Objects never change, so a
    position stays right, and the consumer that comes back for the rest of the row need not read
    its beginning again."""

    def __init__(self) -> None:
        self._positions: OrderedDict[_PlaceKey, int] = OrderedDict()

    def find(self, row: Coordinates, offset: Offset) -> int | None:
        return self._positions.get(_PlaceKey(row.object_id, row.topic_id, row.partition, offset))

    def ended(self, row: Coordinates, answer: RowAnswer) -> None:
        key = _PlaceKey(row.object_id, row.topic_id, row.partition, answer.next_offset)
        self._positions[key] = row.byte_offset + answer.position
        self._positions.move_to_end(key)
        if len(self._positions) > _MOST_PLACES:
            self._positions.popitem(last=False)


class BlockReader:
    stale_errors: ClassVar[tuple[type[StratalogError], ...]] = (ObjectNotFoundError,)

    def __init__(self, *, store: ObjectStore, cache: FreshBlocks) -> None:
        self._store = store
        self._cache = cache
        self._places = _Places()

    def is_fresh(self, row: Coordinates) -> bool:
        """Tell whether the row is in memory."""
        return row.object_id in self._cache

    async def locate(
        self, wanted: Sequence[PiecesWanted[Coordinates]]
    ) -> list[Start | StratalogError]:
        """Count the bytes of the rows. A row says its size, and is read from its beginning."""
        return [
            Start(
                size_bytes=sum([row.byte_size for row in want.pieces]),
                first_bytes=want.pieces[0].byte_size,
            )
            for want in wanted
        ]

    async def read(self, wanted: Sequence[PiecesWanted[Coordinates]]) -> list[PiecesRead]:
        """Read the batches of each partition, from the one that holds its offset."""
        stored: dict[ObjectId, list[_Stored]] = defaultdict(list)
        sources = [self._sources(want, stored) for want in wanted]
        objects = list(stored.values())
        # One object is the usual case, and needs no task.
        if len(objects) == 1:
            await self._read_object(objects[0])
        else:
            for start in range(0, len(objects), _MOST_OBJECTS):
                page = objects[start : start + _MOST_OBJECTS]
                await asyncio.gather(*map(self._read_object, page))
        return [self._assemble(*pair) for pair in zip(wanted, sources, strict=True)]

    def _sources(
        self, want: PiecesWanted[Coordinates], stored: dict[ObjectId, list[_Stored]]
    ) -> list[_Source]:
        """Choose the rows of an answer, and note in `stored` which are in the object store. The
        last one is read as far as there is room: a batch that does not end there would be too
        large."""
        sources: list[_Source] = []
        room = max(want.max_bytes, 1)
        first, *others = want.pieces
        for row in rows_within([self._from_offset(first, want.offset), *others], room, want.end):
            end = row.byte_offset + row.byte_size
            source: _Source | None = self._cache.find(row.object_id, row.byte_offset, end)
            if source is None:
                if sources and room < min(row.byte_size, want.max_bytes // _LAST_SHARE):
                    break
                if sources and row.object_id not in stored and len(stored) >= _MOST_OBJECTS:
                    break
                source = _Stored(row, min(row.byte_size, room) if sources else row.byte_size)
                stored[row.object_id].append(source)
            sources.append(source)
            room -= row.byte_size
        return sources

    def _from_offset(self, row: Coordinates, offset: Offset) -> Coordinates:
        """The part of a row from the batch that holds the offset, if its position is known."""
        if offset <= row.base_offset:
            return row
        end = row.byte_offset + row.byte_size
        position = self._cache.position(row.object_id, row.byte_offset, end, offset)
        if position is not None:
            return row._replace(byte_offset=position, byte_size=end - position)
        position = self._places.find(row, offset)
        if position is None:
            return row
        return row._replace(base_offset=offset, byte_offset=position, byte_size=end - position)

    async def _read_object(self, stored: Sequence[_Stored]) -> None:
        rows = [(one.row.byte_offset, one.read_bytes) for one in stored]
        ranges = [Range(start, start + size_bytes) for start, size_bytes in rows]
        try:
            buffers = await self._store.get_ranges(stored[0].row.object_key, ranges)
        except StratalogError as error:
            for one in stored:
                one.data = error
            return
        for one, buffer in zip(stored, buffers, strict=True):
            one.data = buffer

    def _assemble(self, want: PiecesWanted[Coordinates], sources: Sequence[_Source]) -> PiecesRead:
        answer = PiecesRead(next_offset=want.offset)
        for source in sources:
            if isinstance(source, FreshRow):
                goes_on = _take_fresh(answer, want, source)
            else:
                goes_on = self._take_stored(answer, want, source)
            if not goes_on:
                return answer
        answer.ended = len(sources) == len(want.pieces)
        return answer

    def _take_stored(
        self, answer: PiecesRead, want: PiecesWanted[Coordinates], stored: _Stored
    ) -> bool:
        """Add the batches of a row. False if the answer ends with them."""
        row, data = stored.row, stored.data
        if isinstance(data, StratalogError):
            answer.error = data
            return False
        room, is_first = want.max_bytes - answer.size_bytes, not answer.parts
        found = select_from_row(row, data, want.offset, room, at_least_one=is_first)
        if len(found.part):
            _add(answer, [found.part], len(found.part), found.next_offset)
        if found.error is not None:
            answer.error = found.error
            return False
        if found.position < row.byte_size:
            self._places.ended(row, found)
            return False
        return True


def rows_within(
    rows: Sequence[Coordinates], max_bytes: int, end: Offset | None
) -> list[Coordinates]:
    """Choose the rows that begin inside `max_bytes` and below `end`."""
    chosen: list[Coordinates] = []
    for row in rows:
        if max_bytes <= 0 or (end is not None and row.base_offset >= end):
            break
        chosen.append(row)
        max_bytes -= row.byte_size
    return chosen


def _take_fresh(answer: PiecesRead, want: PiecesWanted[Coordinates], row: FreshRow) -> bool:
    """Add the batches of a row. False if the answer has no room for all of them."""
    room = want.max_bytes - answer.size_bytes
    found = row.select(want.offset, room, at_least_one=not answer.parts)
    if found.parts:
        _add(answer, found.parts, found.size_bytes, found.next_offset)
    return found.reaches_end


def _add(answer: PiecesRead, parts: list[Part], size_bytes: int, next_offset: Offset) -> None:
    answer.parts += parts
    answer.size_bytes += size_bytes
    answer.next_offset = next_offset
