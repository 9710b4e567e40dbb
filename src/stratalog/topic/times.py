"""Records by their time, of the tiers that this broker serves."""

from stratalog.block.batch_index import BatchIndex
from stratalog.block.reader import BlockReader
from stratalog.control.segments.model import Segment
from stratalog.ids import Offset
from stratalog.scan.times import Place
from stratalog.scan.times import RecordTimes as AllRecordTimes
from stratalog.segment.reader import SegmentReader
from stratalog.segment.times import TimedRecord
from stratalog.topic.errors import remote_reads_off


class RecordTimes(AllRecordTimes):
    def __init__(
        self,
        *,
        blocks: BlockReader,
        index: BatchIndex,
        segments: SegmentReader,
        remote_reads: bool = True,
    ) -> None:
        super().__init__(blocks=blocks, index=index, segments=segments)
        self._remote_reads = remote_reads

    async def first(self, place: Place, timestamp: int, log_start: Offset) -> TimedRecord | None:
        self._check_reads(place)
        return await super().first(place, timestamp, log_start)

    async def newest(self, place: Place, log_start: Offset) -> TimedRecord | None:
        self._check_reads(place)
        return await super().newest(place, log_start)

    def _check_reads(self, place: Place) -> None:
        if isinstance(place, Segment) and not self._remote_reads:
            raise remote_reads_off()
