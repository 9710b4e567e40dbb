"""Records by their time, inside one segment or one row."""

import asyncio
from collections.abc import Iterator

from stratalog.batch.frames import iter_batches
from stratalog.batch.records import decode_records
from stratalog.block.reader import BlockReader, RowsWanted
from stratalog.control.model import Coordinates
from stratalog.control.segment_model import Segment
from stratalog.ids import Offset
from stratalog.segment.reader import SegmentReader
from stratalog.segment.times import TimedRecord
from stratalog.topic.errors import remote_reads_off
from stratalog.topic.model import TimedOffset

Place = Segment | Coordinates
"""What holds a range of offsets."""


class RecordTimes:
    def __init__(
        self, *, blocks: BlockReader, segments: SegmentReader, remote_reads: bool = True
    ) -> None:
        self._blocks = blocks
        self._segments = segments
        self._remote_reads = remote_reads

    async def first(self, place: Place, timestamp: int, log_start: Offset) -> TimedOffset | None:
        """The first record that is neither older than asked nor deleted, by offset."""
        if isinstance(place, Segment):
            self._check_reads()
            return _timed(await self._segments.first_at_time(place, timestamp, log_start))
        data = await self._batches(place)
        return await asyncio.to_thread(_first, data, timestamp, log_start)

    async def newest(self, place: Place, log_start: Offset) -> TimedOffset | None:
        """The first of the records with the greatest time among those that are not deleted."""
        if isinstance(place, Segment):
            self._check_reads()
            return _timed(await self._segments.newest(place, log_start))
        data = await self._batches(place)
        return await asyncio.to_thread(_newest, data, log_start)

    def _check_reads(self) -> None:
        if not self._remote_reads:
            raise remote_reads_off()

    async def _batches(self, row: Coordinates) -> bytes:
        want = RowsWanted(offset=row.base_offset, max_bytes=row.byte_size, rows=[row])
        read = (await self._blocks.read([want]))[0]
        if read.error is not None:
            raise read.error
        return b"".join(read.parts)


def _timed(record: TimedRecord | None) -> TimedOffset | None:
    if record is None:
        return None
    return TimedOffset(
        offset=record.offset, timestamp=record.timestamp, leader_epoch=record.leader_epoch
    )


def _first(data: bytes, timestamp: int, log_start: Offset) -> TimedOffset | None:
    return next(_not_older(data, timestamp, log_start), None)


def _newest(data: bytes, log_start: Offset) -> TimedOffset | None:
    return max(_not_older(data, -1, log_start), key=lambda one: one.timestamp, default=None)


def _not_older(data: bytes, timestamp: int, log_start: Offset) -> Iterator[TimedOffset]:
    """The records that are not older than asked and not deleted, by offset."""
    for position, header in iter_batches(data):
        if header.max_timestamp < timestamp or header.last_offset < log_start:
            continue
        for record in decode_records(data, position):
            if record.timestamp >= timestamp and record.offset >= log_start:
                yield TimedOffset(
                    offset=Offset(record.offset),
                    timestamp=record.timestamp,
                    leader_epoch=header.leader_epoch,
                )
