"""Search by time: the first record of a segment at or after a timestamp, or the newest record.

The time index gives the start. From there, batches are read in order, in windows that grow: if
records at the start were deleted, the length of the search is not known.
"""

from collections.abc import AsyncIterator, Iterator

from stratalog.batch.frames import iter_batches
from stratalog.batch.header import parse_header
from stratalog.batch.records import iter_times
from stratalog.control.segments.model import Segment
from stratalog.ids import LeaderEpoch, Offset
from stratalog.pieces import TimedRecord
from stratalog.segment.index_bytes import IndexBytes
from stratalog.segment.log_batches import BatchQuery, Stop, select_batches
from stratalog.segment.log_bytes import LogBytes
from stratalog.segment.open_segment_cache import OpenSegmentCache
from stratalog.segment.thread_offload import offload
from stratalog.segment.time_index import NO_TIMESTAMP

_FIRST_WINDOW_BYTES = 64 * 1024
"""The first window has some entries of the index, which usually end the search."""
_MOST_WINDOW_BYTES = 4 * 1024 * 1024
_LAST_TIMESTAMP = 2**63 - 1


class TimeSearch:
    def __init__(self, opened: OpenSegmentCache, indexes: IndexBytes, logs: LogBytes) -> None:
        self._opened = opened
        self._indexes = indexes
        self._logs = logs

    async def first(
        self, segment: Segment, timestamp: int, log_start: Offset
    ) -> TimedRecord | None:
        if segment.max_timestamp < timestamp or segment.last_offset < log_start:
            return None
        begins = (await self._indexes.time_index(segment)).lookup(timestamp)
        begins = max(begins, log_start)
        if begins > segment.last_offset:
            return None
        async for batches in self._batches(segment, begins):
            found = await offload(len(batches), _first_record, batches, timestamp, log_start)
            if found is not None:
                return found
        return None

    async def newest(self, segment: Segment, log_start: Offset) -> TimedRecord | None:
        """Find the newest record, usually in the batch of the last entry of the time index.

        If that record was deleted, the rest of the segment is read to its end.
        """
        if segment.last_offset < log_start:
            return None
        times = await self._indexes.time_index(segment)
        greatest = Offset(times.lookup(_LAST_TIMESTAMP) - 1)
        begins = max(log_start, segment.base_offset, greatest)
        ceiling = None if len(times) else NO_TIMESTAMP
        found: TimedRecord | None = None
        async for batches in self._batches(segment, begins):
            if begins == greatest and ceiling is None:
                ceiling = parse_header(batches).max_timestamp
            least = NO_TIMESTAMP if found is None else found.timestamp + 1
            better = await offload(len(batches), _newest_record, batches, least, log_start)
            found = better or found
            if found is not None and found.timestamp == ceiling:
                break
        return found

    async def _batches(self, segment: Segment, offset: Offset) -> AsyncIterator[memoryview]:
        """Yield all batches from the one that holds the offset, some at a time, checked."""
        log = await self._opened.open(segment)
        position = (await self._indexes.offset_index(segment)).lookup(offset)
        expected: Offset | None = None
        window_bytes = _FIRST_WINDOW_BYTES
        while position < segment.size_bytes:
            end = min(position + window_bytes, segment.size_bytes)
            read = await self._logs.read(log, position, end)
            offset = max(offset, offset if expected is None else expected)
            query = BatchQuery(segment=segment, offset=offset, max_bytes=segment.size_bytes)
            selected = await offload(
                read.size_bytes, select_batches, read.parts, position, query, expected=expected
            )
            if len(selected.part):
                yield selected.part
            error = selected.error or read.error
            if selected.error is not None:
                self._indexes.forget(segment)
                self._logs.forget(log, position, end)
            if error is not None:
                raise error
            position, expected = selected.position, selected.next_offset
            window_bytes = max(selected.needed_bytes, min(4 * window_bytes, _MOST_WINDOW_BYTES))
            assert selected.stop is not Stop.FULL, "the answer may be as large as the log"


def _first_record(batches: memoryview, timestamp: int, log_start: Offset) -> TimedRecord | None:
    return next(_timed(batches, timestamp, log_start), None)


def _newest_record(batches: memoryview, timestamp: int, log_start: Offset) -> TimedRecord | None:
    return max(_timed(batches, timestamp, log_start), key=lambda one: one.timestamp, default=None)


def _timed(batches: memoryview, timestamp: int, log_start: Offset) -> Iterator[TimedRecord]:
    """Yield the records that are not older than asked and not deleted, by offset."""
    for position, header in iter_batches(batches):
        if header.max_timestamp < timestamp or header.last_offset < log_start:
            continue
        for offset, time in iter_times(batches, position, header):
            if time >= timestamp and offset >= log_start:
                yield TimedRecord(Offset(offset), time, LeaderEpoch(header.leader_epoch))
