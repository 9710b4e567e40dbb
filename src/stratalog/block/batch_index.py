"""The positions of the batches of a row in its block, for readers of a part of a row.

A row may have 1 MiB, and a batch some kilobytes. The footer of a block says where each batch
begins, how many offsets it has and how new it is. It has a few kilobytes at the end of the object,
and a CRC of its own. A footer that is missing or damaged is no error: the row is then read whole,
and any damage shows in its own bytes. Split files have no such index, because each entry of their
footer is a row.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from stratalog.batch.header import TimestampType
from stratalog.block.errors import FooterDamagedError
from stratalog.block.footer import (
    TRAILER_BYTES,
    BlockFooter,
    FooterEntry,
    decode_footer,
    parse_trailer,
)
from stratalog.control.log.model import Coordinates
from stratalog.control.plane import ControlPlane
from stratalog.errors import DamagedError
from stratalog.ids import ObjectId, Offset
from stratalog.objects.store import Buffer, ObjectStore, Range

LEAST_ROW_BYTES = 128 * 1024
"""Smaller rows are read whole: one more request would cost about as much."""
_TAIL_BYTES = 16 * 1024
"""The size of the first read. The footer of a full block, in batches of 16 KiB, has 12 KiB."""
_LARGEST_PART = 4
"""A footer that is larger than this part (a fourth) of the row is not worth reading."""
_KEPT_FOOTERS = 16
"""A plan searches for a time, and then for the offset that it found: the footer is used twice."""


class BatchIndex:
    def __init__(self, *, control: ControlPlane, store: ObjectStore) -> None:
        self._control = control
        self._store = store
        self._footers: OrderedDict[ObjectId, BlockFooter] = OrderedDict()
        """Objects never change, so that cached footers stay right."""

    async def batches(self, row: Coordinates) -> Sequence[Coordinates]:
        """Return the batches of a row as rows of their own, or the row if there is no footer."""
        if row.stamped or row.byte_size < LEAST_ROW_BYTES:
            return [row]
        try:
            footer = await self._footer(row)
        except DamagedError:
            return [row]
        return [row] if footer is None else _batches(row, footer)

    async def _footer(self, row: Coordinates) -> BlockFooter | None:
        footer = self._footers.get(row.object_id)
        if footer is None:
            footer = await self._read(row)
            if footer is None:
                return None
            self._footers[row.object_id] = footer
        self._footers.move_to_end(row.object_id)
        if len(self._footers) > _KEPT_FOOTERS:
            self._footers.popitem(last=False)
        return footer

    async def _read(self, row: Coordinates) -> BlockFooter | None:
        """Read the footer. None if the object is gone by now, or if its footer is too large."""
        size_bytes = (await self._control.objects.sizes([row.object_id])).get(row.object_id, 0)
        if size_bytes < TRAILER_BYTES:
            return None
        tail = await self._tail(row, max(0, size_bytes - _TAIL_BYTES), size_bytes)
        footer_bytes = parse_trailer(tail[-TRAILER_BYTES:])[0] + TRAILER_BYTES
        if footer_bytes > len(tail):
            if footer_bytes > row.byte_size // _LARGEST_PART:
                return None
            if footer_bytes > size_bytes:
                raise FooterDamagedError(f"{footer_bytes} bytes of footer in {size_bytes}")
            tail = await self._tail(row, size_bytes - footer_bytes, size_bytes)
        return decode_footer(tail[len(tail) - footer_bytes :])

    async def _tail(self, row: Coordinates, start: int, end: int) -> memoryview:
        data: Buffer
        (data,) = await self._store.get_ranges(row.object_key, [Range(start, end)])
        return memoryview(data)


def _batches(row: Coordinates, footer: BlockFooter) -> Sequence[Coordinates]:
    found = list(_placed(row, _entries(row, footer)))
    byte_end, last_offset = row.byte_offset + row.byte_size, row.last_offset
    is_whole = (
        bool(found)
        and found[-1].byte_offset + found[-1].byte_size == byte_end
        and found[-1].last_offset == last_offset
        and sum(each.byte_size for each in found) == row.byte_size
    )
    return found if is_whole else [row]


def _entries(row: Coordinates, footer: BlockFooter) -> Iterator[FooterEntry]:
    byte_end = row.byte_offset + row.byte_size
    for entry in footer.partitions:
        if (entry.topic_id, entry.partition) == (row.topic_id, row.partition):
            for batch in entry.batches:
                if row.byte_offset <= batch.byte_offset < byte_end:
                    yield batch


def _placed(row: Coordinates, entries: Iterator[FooterEntry]) -> Iterator[Coordinates]:
    offset = int(row.base_offset)
    for entry in entries:
        # Log-append time is the time of the commit, and the same for the whole row. A batch without
        # a known time may be as new as the row.
        max_timestamp = entry.max_timestamp
        if max_timestamp is None or row.timestamp_type is TimestampType.LOG_APPEND_TIME:
            max_timestamp = row.max_timestamp
        yield row._replace(
            base_offset=Offset(offset),
            last_offset=Offset(offset + entry.record_count - 1),
            byte_offset=entry.byte_offset,
            byte_size=entry.byte_size,
            max_timestamp=max_timestamp,
        )
        offset += entry.record_count


def joined(batches: Sequence[Coordinates]) -> Coordinates:
    """Join adjoining batches of a row into one row again."""
    first, last = batches[0], batches[-1]
    return first._replace(
        last_offset=last.last_offset,
        byte_size=last.byte_offset + last.byte_size - first.byte_offset,
        max_timestamp=max(batch.max_timestamp for batch in batches),
    )
