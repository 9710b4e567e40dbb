"""Records by their time, of the tiers that this broker reads."""

from stratalog.block.batch_index import BatchIndex
from stratalog.block.reader import BlockReader
from stratalog.pieces import Tier
from stratalog.scan.times import RecordTimes as AllRecordTimes
from stratalog.segment.reader import SegmentReader
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
        super().__init__(
            blocks=blocks,
            index=index,
            segments=segments,
            refusals={} if remote_reads else {Tier.REMOTE: remote_reads_off()},
        )
