"""The metadata store of segments, as an interface.

Its states are Kafka's: an upload is started, then finished; a deletion is started, then finished.
No operation shares a transaction with the rows of blocks, because other stores cannot do that. The
control plane's `segments.chain` makes a finished segment a part of its partition. The control plane
is also the first implementation: `SegmentsLedger` documents each operation. Code that needs only
these operations asks for this interface.
"""

from collections.abc import Sequence
from typing import Protocol

from stratalog.control.segments.model import Segment, SegmentToAdd, SegmentUploaded
from stratalog.ids import LeaderEpoch, Offset, SegmentId, TopicPartition


class SegmentMetadata(Protocol):
    async def add(self, segment: SegmentToAdd) -> None: ...

    async def finish(self, segment_id: SegmentId, uploaded: SegmentUploaded) -> None: ...

    async def delete(self, ids: Sequence[SegmentId]) -> None: ...

    async def doomed(
        self, *, grace_ms: int, window_ms: int = 0, limit: int, after: Segment | None = None
    ) -> list[Segment]: ...

    async def forget(self, ids: Sequence[SegmentId]) -> None: ...

    async def chained(
        self, partition: TopicPartition, *, after: Offset | None = None, limit: int
    ) -> list[Segment]: ...

    async def find(
        self, partition: TopicPartition, epoch: LeaderEpoch, offset: Offset
    ) -> Segment | None: ...
