"""A partition of a topic as Kafka and its plugin leave it in a store."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from tests.support.golden_topic import finished, put_segment
from tests.unit.segment.layout_golden import (
    PREFIX,
    TOPIC,
    TOPIC_ID,
)

from stratalog.control.segments.model import EpochStart, SegmentToAdd
from stratalog.ids import LeaderEpoch, Offset, PartitionIndex, SegmentId
from stratalog.objects.store import ObjectStore
from stratalog.segment.epoch_checkpoint import encode_checkpoint
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.keys import segment_key_base
from stratalog.segment.metadata_fold import FoldedPartition, FoldedTopics, fold_records
from stratalog.segment.model import SegmentIndexes
from stratalog.segment.producer_snapshot import ProducerEntry, encode_snapshot
from stratalog.segment.remote_log_metadata import (
    RemoteLogRecord,
    SegmentAdded,
    encode_record,
)
from stratalog.topic.adopt import (
    AdoptionPlan,
    PartitionPlan,
    plan_adoption,
)
from stratalog.topic.adopted_objects import AdoptedObjects
from stratalog.topic.adoption_source import (
    SourcePartition,
    SourceTopic,
)


def epoch(number: int, start: int) -> EpochStart:
    return EpochStart(LeaderEpoch(number), Offset(start))


class Kafka:
    """A partition of a topic as Kafka and its plugin leave it in a store."""

    def __init__(self, store: ObjectStore, *, prefix: str = PREFIX) -> None:
        self._store = store
        self._prefix = prefix
        self.records: list[RemoteLogRecord] = []
        self.keys: KeyRing | None = None

    async def tier(
        self,
        base: int,
        last: int,
        epochs: Sequence[EpochStart] = (epoch(0, 0),),
        *,
        producers: Sequence[ProducerEntry] = (),
        partition: int = 0,
        prefix: str | None = None,
        finish: bool = True,
        **changes: Any,
    ) -> SegmentAdded:
        """Upload a segment whose leader knows of these epochs."""
        segment_id = SegmentId(uuid4())
        where = PartitionIndex(partition)
        key_base = segment_key_base(
            self._prefix if prefix is None else prefix,
            TOPIC,
            TOPIC_ID,
            where,
            Offset(base),
            segment_id,
        )
        segment = SegmentToAdd(
            segment_id=segment_id,
            topic_id=TOPIC_ID,
            partition=where,
            base_offset=Offset(base),
            last_offset=Offset(last),
            size_bytes=100,
            max_timestamp=1,
            leader_epochs=_own(epochs, base, last),
            key_base=key_base,
        )
        indexes = SegmentIndexes(
            offset=b"",
            timestamp=b"",
            producer_snapshot=encode_snapshot(producers),
            leader_epoch=encode_checkpoint(epochs),
        )
        added = await put_segment(self._store, segment, b"x" * 100, indexes, keys=self.keys)
        self.records.append(added)
        if finish:
            self.records.append(finished(added, **changes))
        return added

    def folded(self) -> FoldedTopics:
        return fold_records(map(encode_record, self.records))

    def partition(self, index: int = 0) -> FoldedPartition:
        found = self.folded().partitions
        [one] = [each for key, each in found.items() if key.partition == index]
        return one

    async def plan(self, *, keys: KeyRing | None = None, **offsets: Any) -> PartitionPlan:
        """Of partition 0, with what a live source would say."""
        return (await self.plan_topic(keys=keys, **offsets)).partitions[0]

    async def plan_topic(self, *, keys: KeyRing | None = None, **offsets: Any) -> AdoptionPlan:
        metadata = self.partition() if self.records else None
        zero = SourcePartition(partition=PartitionIndex(0), metadata=metadata, **offsets)
        objects = AdoptedObjects(self._store, key_prefix=self._prefix, keys=keys or KeyRing())
        return await plan_adoption(
            SourceTopic(name=TOPIC, topic_id=TOPIC_ID, partitions=[zero]), objects
        )


def _own(epochs: Sequence[EpochStart], base: int, last: int) -> list[EpochStart]:
    """Those with records in the segment, the first one's start moved to its base."""
    started = [one for one in epochs if one.start_offset <= last]
    before = [one for one in started if one.start_offset <= base][-1:]
    inside = [one for one in started if one.start_offset > base]
    return [*(epoch(one.epoch, base) for one in before), *inside]


def bases(plan: PartitionPlan) -> list[tuple[int, int]]:
    segments = [one.segment for one in plan.to_adopt.segments]
    return [(one.base_offset, one.last_offset) for one in segments]
