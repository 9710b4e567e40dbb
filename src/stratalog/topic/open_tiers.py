"""The tiers that a broker reads."""

from typing import Any

from stratalog.block.reader import BlockReader
from stratalog.pieces import Tier, TierReader
from stratalog.segment.reader import SegmentReader
from stratalog.topic.errors import remote_reads_off
from stratalog.topic.tiers import Tiers


def open_tiers(*, blocks: BlockReader, segments: SegmentReader, remote_reads: bool = True) -> Tiers:
    readers: dict[Tier, TierReader[Any]] = {Tier.BLOCK: blocks, Tier.REMOTE: segments}
    return Tiers(readers, refusals={} if remote_reads else {Tier.REMOTE: remote_reads_off()})
