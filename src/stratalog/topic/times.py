"""Records of a partition by their time, over all its tiers."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from stratalog.block.batch_index import BatchIndex
from stratalog.block.reader import BlockReader
from stratalog.block.times import BlockTimes
from stratalog.control.log.model import Span, TimeQuery
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.ids import Offset, TopicPartition
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.pieces import Piece, Tier, TierTimes, TimedRecord
from stratalog.segment.reader import SegmentReader
from stratalog.topic.errors import remote_reads_off

_SPAN_BYTES = 1 << 40
"""How far one look at the pieces reaches. The bounds of the control plane come first."""


class RecordTimes:
    """Records of one piece by their time, whichever tier holds the piece."""

    def __init__(
        self,
        *,
        blocks: BlockReader,
        index: BatchIndex,
        segments: SegmentReader,
        remote_reads: bool = True,
    ) -> None:
        self._tiers: Mapping[Tier, TierTimes[Any]] = {
            Tier.BLOCK: BlockTimes(blocks=blocks, index=index),
            Tier.REMOTE: segments,
        }
        self._remote_reads = remote_reads

    async def first(self, piece: Piece, timestamp: int, log_start: Offset) -> TimedRecord | None:
        """Find the first record, by offset, that is neither older than asked nor deleted."""
        return await self._tier(piece).first_at_time(piece, timestamp, log_start)

    async def newest(self, piece: Piece, log_start: Offset) -> TimedRecord | None:
        """Find the first of the records with the greatest time that are not deleted."""
        return await self._tier(piece).newest(piece, log_start)

    def _tier(self, piece: Piece) -> TierTimes[Any]:
        if piece.tier is Tier.REMOTE and not self._remote_reads:
            raise remote_reads_off()
        return self._tiers[piece.tier]


class TimeSearch:
    """Finds the first record of a partition that is not older than a time, in any tier."""

    def __init__(self, *, control: ControlPlane, times: RecordTimes) -> None:
        self._control = control
        self._times = times

    async def first(self, query: TimeQuery) -> TimedRecord | None:
        try:
            return await self._first(query)
        except ObjectNotFoundError:
            # The object was deleted between the look and the read: look once more.
            return await self._first(query)

    async def _first(self, query: TimeQuery) -> TimedRecord | None:
        [piece] = await self._control.log.find_by_time([query])
        if piece is None:
            return None
        found = await self._first_in(piece, query.timestamp)
        if found is not None:
            return found
        # The record was deleted, and the piece is kept for the records behind it. A later piece may
        # hold another record that is new enough.
        async for later in self.pieces_after(piece):
            if later.max_timestamp >= query.timestamp:
                found = await self._first_in(later, query.timestamp)
                if found is not None:
                    return found
        return None

    async def pieces_after(self, piece: Piece) -> AsyncIterator[Piece]:
        """Yield the pieces behind a piece, however the boundaries move meanwhile.

        Every look is one snapshot, and begins with the offset at which the last one ended.
        """
        offset = piece.end_offset
        while True:
            span = Span(
                topic_id=piece.topic_id,
                partition=piece.partition,
                offset=offset,
                max_bytes=_SPAN_BYTES,
            )
            [found] = await self._control.log.find_batches([span])
            for one in found.pieces:
                yield one
            if found.pieces:
                offset = found.pieces[-1].end_offset
            elif found.state is not None and offset < found.state.log_start:
                # The next pieces have been deleted meanwhile.
                offset = found.state.log_start
            else:
                return

    async def log_start(self, piece: Piece) -> Offset:
        partition = TopicPartition(piece.topic_id, piece.partition)
        states = await self._control.log.partitions([partition])
        if partition not in states:
            raise UnknownTopicError("the topic was deleted")
        return states[partition].log_start

    async def _first_in(self, piece: Piece, timestamp: int) -> TimedRecord | None:
        return await self._times.first(piece, timestamp, await self.log_start(piece))
