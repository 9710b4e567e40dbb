"""The reader of the remote tier over logs in memory, for tests of its callers."""

from collections.abc import Sequence
from typing import cast

from stratalog.batch.frames import iter_batches
from stratalog.batch.records import iter_records
from stratalog.control.segments.model import Segment
from stratalog.errors import StratalogError
from stratalog.ids import LeaderEpoch, Offset, SegmentId
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.pieces import PiecesRead, PiecesWanted, Start, TimedRecord
from stratalog.segment.model import AbortedTransaction
from stratalog.segment.reader import SegmentReader


class SegmentsInMemory:
    def __init__(self) -> None:
        self.failure: StratalogError | None = None
        """The failure of every read, if set."""
        self._logs: dict[SegmentId, bytes] = {}
        self._aborted: dict[SegmentId, Sequence[AbortedTransaction]] = {}

    @property
    def reader(self) -> SegmentReader:
        return cast(SegmentReader, self)

    def put(self, segment_id: SegmentId, log: bytes, aborted: Sequence[AbortedTransaction]) -> None:
        self._logs[segment_id] = log
        self._aborted[segment_id] = aborted

    def remove(self, segment: Segment) -> bytes:
        return self._logs.pop(segment.segment_id)

    stale_errors = SegmentReader.stale_errors

    async def locate(self, wanted: Sequence[PiecesWanted[Segment]]) -> list[Start | StratalogError]:
        return [self._locate(want) for want in wanted]

    def _locate(self, want: PiecesWanted[Segment]) -> Start | StratalogError:
        try:
            batches = self._batches(want.pieces, want.offset)
        except StratalogError as error:
            return error
        size_bytes = max(1, sum(len(batch) for _, batch in batches))
        return Start(size_bytes=size_bytes, first_bytes=size_bytes, is_estimate=True)

    async def read(self, wanted: Sequence[PiecesWanted[Segment]]) -> list[PiecesRead]:
        return [self._read(want) for want in wanted]

    async def first_at_time(
        self, segment: Segment, timestamp: int, log_start: Offset
    ) -> TimedRecord | None:
        found = [one for one in self._records(segment, log_start) if one.timestamp >= timestamp]
        return found[0] if found else None

    async def newest(self, segment: Segment, log_start: Offset) -> TimedRecord | None:
        found = self._records(segment, log_start)
        return max(found, key=lambda one: one.timestamp, default=None)

    async def aborted(
        self, segments: Sequence[Segment], first: Offset, end: Offset
    ) -> list[AbortedTransaction]:
        assert all(one.uploaded is not None and one.uploaded.has_aborted for one in segments)
        return [
            one
            for segment in segments
            for one in self._aborted[segment.segment_id]
            if one.last_offset >= first and one.first_offset < end
        ]

    def _read(self, want: PiecesWanted[Segment]) -> PiecesRead:
        answer = PiecesRead(
            parts=[], size_bytes=0, next_offset=want.offset, ended=False, error=self.failure
        )
        if self.failure is not None:
            return answer
        try:
            batches = self._batches(want.pieces, want.offset)
        except StratalogError as error:
            answer.error = error
            return answer
        for last_offset, batch in batches:
            if answer.parts and answer.size_bytes + len(batch) > want.max_bytes:
                return answer
            answer.parts.append(memoryview(batch))
            answer.size_bytes += len(batch)
            answer.next_offset = Offset(last_offset + 1)
        answer.ended = True
        return answer

    def _batches(self, segments: Sequence[Segment], offset: Offset) -> list[tuple[int, bytes]]:
        found = []
        for segment in segments:
            log = self._log(segment)
            found += [
                (header.last_offset, log[position : position + header.size_bytes])
                for position, header in iter_batches(log)
                if header.last_offset >= offset
            ]
        return found

    def _records(self, segment: Segment, log_start: Offset) -> list[TimedRecord]:
        return [
            TimedRecord(Offset(one.offset), one.timestamp, LeaderEpoch(0))
            for one in iter_records(self._log(segment))
            if one.offset >= log_start
        ]

    def _log(self, segment: Segment) -> bytes:
        if segment.segment_id not in self._logs:
            raise ObjectNotFoundError(f"{segment.key_base}.log is gone")
        return self._logs[segment.segment_id]
