"""The read path of the block tier: from coordinates to stamped record batches.

Rows of one object are read together, objects in parallel. Every batch that comes from the object
store has its CRC checked before it is handed out. A bad batch ends its partition's answer after
the good ones before it; other partitions do not notice.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from stratalog.batch.frames import check_crc, iter_batches
from stratalog.batch.header import TimestampType
from stratalog.batch.stamp import stamp, stamp_append_time
from stratalog.block.errors import RowDamagedError
from stratalog.block.fresh_blocks import FreshBlocks, StampedBatch
from stratalog.control.log.model import Coordinates
from stratalog.errors import DamagedError, StratalogError
from stratalog.ids import ObjectId, Offset
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.objects.store import Buffer, ObjectStore, Range
from stratalog.pieces import PiecesRead, PiecesWanted, Start


@dataclass(slots=True)
class _Row:
    """The good batches of a row up to the first bad one, and the error of the bad one."""

    batches: Sequence[StampedBatch] = ()
    error: StratalogError | None = None


_Place = tuple[ObjectId, int]


class BlockReader:
    stale_errors: ClassVar[tuple[type[StratalogError], ...]] = (ObjectNotFoundError,)

    def __init__(self, *, store: ObjectStore, cache: FreshBlocks) -> None:
        self._store = store
        self._cache = cache

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
        chosen = [rows_within(want.pieces, max(want.max_bytes, 1), want.end) for want in wanted]
        rows: dict[_Place, _Row] = {}
        cold: dict[ObjectId, list[Coordinates]] = defaultdict(list)
        for row in (row for each in chosen for row in each):
            end = row.byte_offset + row.byte_size
            fresh = self._cache.find(row.object_id, row.byte_offset, end)
            if fresh is None:
                cold[row.object_id].append(row)
            else:
                rows[row.object_id, row.byte_offset] = _Row(fresh)
        for answer in await asyncio.gather(*(self._read_object(rows) for rows in cold.values())):
            rows.update(answer)
        return [_assemble(*pair, rows) for pair in zip(wanted, chosen, strict=True)]

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


def _assemble(
    want: PiecesWanted[Coordinates], chosen: Sequence[Coordinates], rows: dict[_Place, _Row]
) -> PiecesRead:
    answer = PiecesRead(next_offset=want.offset)
    for coordinates in chosen:
        row = rows[coordinates.object_id, coordinates.byte_offset]
        for batch in row.batches:
            if batch.last_offset >= want.offset and not _take(answer, batch, want.max_bytes):
                return answer
        if row.error is not None:
            answer.error = row.error
            return answer
    answer.ended = len(chosen) == len(want.pieces)
    return answer


def _take(answer: PiecesRead, batch: StampedBatch, max_bytes: int) -> bool:
    """Add a batch, unless it is not the first and the answer would grow too large by it."""
    size = batch.size_bytes
    if answer.parts and answer.size_bytes + size > max_bytes:
        return False
    answer.parts.extend(batch.parts)
    answer.size_bytes += size
    answer.next_offset = Offset(batch.last_offset + 1)
    return True


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
