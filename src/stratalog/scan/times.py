"""Records by their time: inside one segment or one row, and of a partition over all its tiers."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import TypeAlias

from stratalog.batch.frames import iter_batches
from stratalog.batch.records import decode_records
from stratalog.block.batch_index import BatchIndex, joined
from stratalog.block.reader import BlockReader
from stratalog.control.log.model import Coordinates, Span, TimeQuery
from stratalog.control.plane import ControlPlane
from stratalog.control.segments.model import Segment
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.ids import LeaderEpoch, Offset, TopicPartition
from stratalog.objects.store import ObjectNotFoundError
from stratalog.pieces import PiecesWanted
from stratalog.segment.reader import SegmentReader
from stratalog.segment.times import TimedRecord

Place: TypeAlias = Segment | Coordinates
"""What holds a range of offsets."""

_WALK_BYTES = 1 << 40
"""How far one look of a walk reaches. The control plane's own bounds come first."""


class RecordTimes:
    def __init__(self, *, blocks: BlockReader, index: BatchIndex, segments: SegmentReader) -> None:
        self._blocks = blocks
        self._index = index
        self._segments = segments

    async def first(self, place: Place, timestamp: int, log_start: Offset) -> TimedRecord | None:
        """The first record that is neither older than asked nor deleted, by offset."""
        if isinstance(place, Segment):
            return await self._segments.first_at_time(place, timestamp, log_start)
        batches = [place] if self._blocks.is_fresh(place) else await self._index.batches(place)
        candidates = [
            batch
            for batch in batches
            if batch.max_timestamp >= timestamp and batch.last_offset >= log_start
        ]
        # Usually the first one has it. It does not if the record was deleted, or if the producer
        # has claimed a time that no record has: then all others are read at once.
        for part in (candidates[:1], candidates[1:]):
            if part:
                data = await self._batches(joined(part))
                found = await asyncio.to_thread(_first, data, timestamp, log_start)
                if found is not None:
                    return found
        return None

    async def newest(self, place: Place, log_start: Offset) -> TimedRecord | None:
        """The first of the records with the greatest time among those that are not deleted."""
        if isinstance(place, Segment):
            return await self._segments.newest(place, log_start)
        data = await self._batches(place)
        return await asyncio.to_thread(_newest, data, log_start)

    async def _batches(self, row: Coordinates) -> bytes:
        want = PiecesWanted(offset=row.base_offset, max_bytes=row.byte_size, pieces=[row])
        read = (await self._blocks.read([want]))[0]
        if read.error is not None:
            raise read.error
        return b"".join(read.parts)


class TimeSearch:
    """The first record of a partition that is not older than a time, wherever it lies."""

    def __init__(self, *, control: ControlPlane, times: RecordTimes) -> None:
        self._control = control
        self._times = times

    async def first(self, query: TimeQuery) -> TimedRecord | None:
        """An object that is gone was deleted between the look and the read: look once more."""
        try:
            return await self._first(query)
        except ObjectNotFoundError:
            return await self._first(query)

    async def _first(self, query: TimeQuery) -> TimedRecord | None:
        """Usually the first place holds the record. It does not if the record was deleted and the
        place stays for what comes after; then a later one may."""
        [place] = await self._control.log.find_by_time([query])
        if place is None:
            return None
        found = await self._first_in(place, query.timestamp)
        if found is not None:
            return found
        async for later in self.places_after(place):
            if later.max_timestamp >= query.timestamp:
                found = await self._first_in(later, query.timestamp)
                if found is not None:
                    return found
        return None

    async def places_after(self, place: Place) -> AsyncIterator[Place]:
        """What holds the offsets behind a place, however the boundary moves meanwhile: every look
        is one snapshot and begins with the offset at which the last one ended."""
        offset = Offset(place.last_offset + 1)
        while True:
            span = Span(
                topic_id=place.topic_id,
                partition=place.partition,
                offset=offset,
                max_bytes=_WALK_BYTES,
            )
            [found] = await self._control.log.find_batches([span])
            places: list[Place] = [*found.segments, *found.rows]
            for one in places:
                yield one
            if places:
                offset = Offset(places[-1].last_offset + 1)
            elif found.state is not None and offset < found.state.log_start:
                # What was to come next has been deleted meanwhile.
                offset = found.state.log_start
            else:
                return

    async def log_start(self, place: Place) -> Offset:
        partition = TopicPartition(place.topic_id, place.partition)
        states = await self._control.log.partitions([partition])
        if partition not in states:
            raise UnknownTopicError("the topic was deleted")
        return states[partition].log_start

    async def _first_in(self, place: Place, timestamp: int) -> TimedRecord | None:
        return await self._times.first(place, timestamp, await self.log_start(place))


def _first(data: bytes, timestamp: int, log_start: Offset) -> TimedRecord | None:
    return next(_not_older(data, timestamp, log_start), None)


def _newest(data: bytes, log_start: Offset) -> TimedRecord | None:
    return max(_not_older(data, -1, log_start), key=lambda one: one.timestamp, default=None)


def _not_older(data: bytes, timestamp: int, log_start: Offset) -> Iterator[TimedRecord]:
    """The records that are not older than asked and not deleted, by offset."""
    for position, header in iter_batches(data):
        if header.max_timestamp < timestamp or header.last_offset < log_start:
            continue
        for record in decode_records(data, position):
            if record.timestamp >= timestamp and record.offset >= log_start:
                yield TimedRecord(
                    Offset(record.offset), record.timestamp, LeaderEpoch(header.leader_epoch)
                )
