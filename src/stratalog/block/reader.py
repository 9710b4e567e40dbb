"""The read path of the block tier: from coordinates to stamped record batches.

Rows of one object are read together, objects in parallel. Every batch that comes from the object
store has its CRC checked before it is handed out. A bad batch ends its partition's answer after
the good ones before it; other partitions do not notice.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from stratalog.batch.frames import check_crc, iter_batches
from stratalog.batch.header import TimestampType
from stratalog.batch.stamp import stamp, stamp_append_time
from stratalog.block.cache import FreshBlocks, StampedBatch
from stratalog.control.model import Coordinates
from stratalog.errors import DamagedError, StratalogError
from stratalog.ids import ObjectId, Offset
from stratalog.objects.store import Buffer, ObjectStore, Range


class RowDamagedError(DamagedError):
    """The bytes that a row points at are not the batches that it speaks of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsWanted:
    """Consecutive rows of one partition, to be answered from `offset` on with `max_bytes`.

    A first batch that is larger is answered nevertheless: else its reader never moves on.
    """

    offset: Offset
    max_bytes: int
    rows: Sequence[Coordinates]


@dataclass(slots=True)
class RowsRead:
    parts: list[memoryview | bytearray] = field(default_factory=list)
    size_bytes: int = 0
    error: StratalogError | None = None
    """What kept the answer from going on. Worth telling only if there are no parts."""

    def take(self, batch: StampedBatch, max_bytes: int) -> bool:
        """Add a batch, unless it is not the first and the answer would grow too large by it."""
        size = batch.size_bytes
        if self.parts and self.size_bytes + size > max_bytes:
            return False
        self.parts.extend(batch.parts)
        self.size_bytes += size
        return True


@dataclass(slots=True)
class _Row:
    """A row's batches, as far as they are good, and what is wrong with the rest."""

    batches: Sequence[StampedBatch] = ()
    error: StratalogError | None = None


_Place = tuple[ObjectId, int]


class BlockReader:
    def __init__(self, *, store: ObjectStore, cache: FreshBlocks) -> None:
        self._store = store
        self._cache = cache

    def is_fresh(self, row: Coordinates) -> bool:
        """Whether it is in memory."""
        return row.object_id in self._cache

    async def read(self, wanted: Sequence[RowsWanted]) -> list[RowsRead]:
        """The batches of each partition, from the one that holds its offset."""
        rows: dict[_Place, _Row] = {}
        cold: dict[ObjectId, list[Coordinates]] = defaultdict(list)
        for row in (row for want in wanted for row in want.rows):
            end = row.byte_offset + row.byte_size
            fresh = self._cache.find(row.object_id, row.byte_offset, end)
            if fresh is None:
                cold[row.object_id].append(row)
            else:
                rows[row.object_id, row.byte_offset] = _Row(fresh)
        for answer in await asyncio.gather(*(self._read_object(rows) for rows in cold.values())):
            rows.update(answer)
        return [_assemble(want, rows) for want in wanted]

    async def _read_object(self, rows: Sequence[Coordinates]) -> dict[_Place, _Row]:
        ranges = [Range(row.byte_offset, row.byte_offset + row.byte_size) for row in rows]
        try:
            buffers = await self._store.get_ranges(rows[0].object_key, ranges)
        except StratalogError as error:
            return {(row.object_id, row.byte_offset): _Row(error=error) for row in rows}
        return {
            (row.object_id, row.byte_offset): _read_row(row, buffer)
            for row, buffer in zip(rows, buffers, strict=True)
        }


def _assemble(want: RowsWanted, rows: dict[_Place, _Row]) -> RowsRead:
    answer = RowsRead()
    for coordinates in want.rows:
        row = rows[coordinates.object_id, coordinates.byte_offset]
        for batch in row.batches:
            if batch.last_offset >= want.offset and not answer.take(batch, want.max_bytes):
                return answer
        if row.error is not None:
            answer.error = row.error
            return answer
    return answer


def _read_row(row: Coordinates, buffer: Buffer) -> _Row:
    data = memoryview(buffer)
    if data.readonly:
        data = memoryview(bytearray(data))
    batches: list[StampedBatch] = []
    try:
        _stamp_row(row, data, batches)
    except DamagedError as error:
        where = f"object {row.object_key}, bytes {row.byte_offset} to {row.byte_offset + len(data)}"
        return _Row(batches, RowDamagedError(f"{where}, offset {row.base_offset}: {error}"))
    return _Row(batches)


def _stamp_row(row: Coordinates, data: memoryview, batches: list[StampedBatch]) -> None:
    """Check and stamp the row's batches one by one, adding each to `batches` when it is good."""
    offset = row.base_offset
    for position, header in iter_batches(data):
        check_crc(data, position, header)
        last = offset + header.last_offset_delta
        if last > row.last_offset:
            raise RowDamagedError(f"a batch ends at offset {last}, after {row.last_offset}")
        if not row.stamped:
            if row.timestamp_type is TimestampType.LOG_APPEND_TIME:
                stamp_append_time(data, position, header, row.committed_ms)
            stamp(data, position, base_offset=offset, leader_epoch=row.leader_epoch)
        elif header.base_offset != offset:
            raise RowDamagedError(f"a batch says offset {header.base_offset}, not {offset}")
        whole = data[position : position + header.size_bytes]
        batches.append(StampedBatch(last_offset=last, parts=[whole]))
        offset = Offset(last + 1)
    if offset != row.last_offset + 1:
        raise RowDamagedError(f"the batches end at offset {offset - 1}, not {row.last_offset}")
