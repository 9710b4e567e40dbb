"""The metadata store of segments, as an interface.

Its states are Kafka's: an upload is started, then finished; a deletion is started, then finished.
Nothing here shares a transaction with the rows of blocks, because stores to come cannot: what
makes a finished segment a part of its partition is the control plane's `chain_segment`. The
control plane is also the first implementation; `ControlPlane` says what each of these promises.
Who needs no more than this asks for no more.
"""

from collections.abc import Sequence
from typing import Protocol

from stratalog.control.segment_model import Segment, SegmentToAdd, SegmentUploaded
from stratalog.ids import LeaderEpoch, Offset, SegmentId, TopicPartition


class SegmentMetadata(Protocol):
    async def add_segment(self, segment: SegmentToAdd) -> None: ...

    async def finish_segment(self, segment_id: SegmentId, uploaded: SegmentUploaded) -> None: ...

    async def delete_segments(self, ids: Sequence[SegmentId]) -> None: ...

    async def doomed_segments(
        self, *, grace_ms: int, limit: int, after: Segment | None = None
    ) -> list[Segment]: ...

    async def forget_segments(self, ids: Sequence[SegmentId]) -> None: ...

    async def segments(
        self, partition: TopicPartition, *, after: Offset | None = None, limit: int
    ) -> list[Segment]: ...

    async def find_segment(
        self, partition: TopicPartition, epoch: LeaderEpoch, offset: Offset
    ) -> Segment | None: ...
