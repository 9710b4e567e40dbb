"""Fakes that answer only the requests of the janitor, and can refuse them."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import cast
from uuid import UUID

from tests.support.ledgers import FakeControlPlane

from stratalog.control.identity.model import Cluster
from stratalog.control.log.model import PartitionState, WriteTier
from stratalog.control.objects.model import ObjectKind, StoredObjectRow
from stratalog.control.segments.model import ChainOutcome, Segment, SegmentState
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.control.topics.model import Topic
from stratalog.errors import StratalogError
from stratalog.ids import (
    LeaderEpoch,
    ObjectId,
    Offset,
    PartitionIndex,
    SegmentId,
    TopicId,
    TopicPartition,
)
from stratalog.objects.errors import ObjectNotFoundError, StoreAccessError
from stratalog.objects.store import ObjectInfo, ObjectStore, StoredObject
from stratalog.opening.marker import MARKER_KEY, StoreMarker, encode_marker

CLUSTER = Cluster(cluster_id=UUID(int=99), generation=1)
MARKER = StoreMarker(cluster_id=CLUSTER.cluster_id, generation=CLUSTER.generation)


def topic(number: int, *, partition_count: int = 1) -> Topic:
    return Topic(
        id=TopicId(UUID(int=number)),
        name=f"topic-{number}",
        partition_count=partition_count,
        configs={},
        created_ms=0,
    )


def object_row(number: int) -> StoredObjectRow:
    return StoredObjectRow(
        object_id=ObjectId(UUID(int=number)),
        key=f"k{number}",
        kind=ObjectKind.BLOCK,
        size_bytes=1,
        committed_ms=0,
        marked_ms=0,
    )


def segment(
    number: int,
    *,
    state: SegmentState = SegmentState.DELETE_STARTED,
    owned: bool = True,
    store_url: str = "",
) -> Segment:
    return Segment(
        segment_id=SegmentId(UUID(int=number)),
        topic_id=TopicId(UUID(int=1)),
        partition=PartitionIndex(0),
        base_offset=Offset(10 * number),
        last_offset=Offset(10 * number + 9),
        size_bytes=1,
        max_timestamp=0,
        leader_epochs=(),
        key_base=f"s{number}",
        store_url=store_url,
        state=state,
        chained=False,
        owned=owned,
        added_ms=0,
        changed_ms=0,
        uploaded=None,
    )


@dataclass
class FakeControl(FakeControlPlane):
    all_topics: list[Topic] = field(default_factory=list)
    expired: dict[TopicPartition, int] = field(default_factory=dict)
    """Rows that retention finds in each partition."""
    unwritten: set[TopicPartition] = field(default_factory=set)
    trimmed: set[TopicPartition] = field(default_factory=set)
    gone: set[TopicId] = field(default_factory=set)
    marked: list[StoredObjectRow] = field(default_factory=list)
    doomed: list[Segment] = field(default_factory=list)
    unchained: list[Segment] = field(default_factory=list)
    purgeable: int = 0
    idle_producers: int = 0
    old_offsets: int = 0
    old_answers: int = 0
    calls: list[str] = field(default_factory=list)
    failing: dict[str, Exception] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if name in self.failing:
            raise self.failing[name]

    async def topics_all(self) -> list[Topic]:
        self._called("topics.all")
        return self.all_topics

    async def log_topic_partitions(self, topic_id: TopicId) -> list[PartitionState]:
        (found,) = (topic for topic in self.all_topics if topic.id == topic_id)
        return [self._state(topic_id, number) for number in range(found.partition_count)]

    def _state(self, topic_id: TopicId, number: int) -> PartitionState:
        partition = TopicPartition(topic_id, PartitionIndex(number))
        end = Offset(0 if partition in self.unwritten else 10)
        start = end if partition in self.trimmed else Offset(0)
        return PartitionState(
            topic_id=topic_id,
            partition=partition.partition,
            log_start=start,
            remote_end=start,
            block_start=start,
            block_end=end,
            high_watermark=end,
            last_stable=end,
            write_tier=WriteTier.BLOCK,
            leader_epoch=LeaderEpoch(0),
            size_bytes=0,
            last_commit_ms=0,
        )

    async def log_enforce_retention(
        self,
        partition: TopicPartition,
        *,
        retention_ms: int | None,
        retention_bytes: int | None,
        max_rows: int,
    ) -> int:
        self._called(
            f"retain {partition.topic_id.int}-{partition.partition} {retention_ms} "
            f"{retention_bytes}"
        )
        if partition.topic_id in self.gone:
            raise UnknownTopicError("gone")
        removed = min(max_rows, self.expired.get(partition, 0))
        self.expired[partition] = self.expired.get(partition, 0) - removed
        return removed

    async def identity_cluster(self) -> Cluster:
        return CLUSTER

    async def objects_marked(
        self, *, grace_ms: int, limit: int, after: StoredObjectRow | None = None
    ) -> list[StoredObjectRow]:
        self._called("objects.marked")
        first = UUID(int=0) if after is None else UUID(int=after.object_id.int + 1)
        return [row for row in self.marked if row.object_id >= first][:limit]

    async def objects_forget(self, ids: Sequence[ObjectId]) -> None:
        self._called("objects.forget")
        self.marked = [row for row in self.marked if row.object_id not in ids]

    async def topics_purge_deleted(self, *, window_ms: int, max_rows: int) -> int:
        self._called("topics.purge_deleted")
        removed = min(max_rows, self.purgeable)
        self.purgeable -= removed
        return removed

    async def log_forget_answers(self, *, older_than_ms: int) -> int:
        self._called("log.forget_answers")
        removed, self.old_answers = self.old_answers, 0
        return removed

    async def writers_forget(self, *, older_than_ms: int) -> int:
        self._called("writers.forget")
        return 0

    async def log_expire_producers(self, *, idle_ms: int, max_rows: int) -> int:
        self._called("log.expire_producers")
        removed = min(max_rows, self.idle_producers)
        self.idle_producers -= removed
        return removed

    async def segments_doomed(
        self, *, grace_ms: int, window_ms: int = 0, limit: int, after: Segment | None = None
    ) -> list[Segment]:
        self._called("segments.doomed")
        first = UUID(int=0) if after is None else UUID(int=after.segment_id.int + 1)
        return [row for row in self.doomed if row.segment_id >= first][:limit]

    async def segments_forget(self, ids: Sequence[SegmentId]) -> None:
        self._called("segments.forget")
        self.doomed = [row for row in self.doomed if row.segment_id not in ids]

    async def segments_unchained(self, *, older_than_ms: int, limit: int) -> list[Segment]:
        self._called("segments.unchained")
        return self.unchained[:limit]

    async def segments_chain(self, segment_id: SegmentId) -> ChainOutcome:
        self._called(f"chain {segment_id.int}")
        self._leave(segment_id)
        return ChainOutcome.CHAINED

    async def segments_delete(self, ids: Sequence[SegmentId]) -> None:
        for segment_id in ids:
            self._called(f"delete {segment_id.int}")
            self._leave(segment_id)

    def _leave(self, segment_id: SegmentId) -> None:
        self.unchained = [row for row in self.unchained if row.segment_id != segment_id]

    async def groups_expire_offsets(self, *, retention_ms: int, max_rows: int) -> int:
        self._called("groups.expire_offsets")
        removed = min(max_rows, self.old_offsets)
        self.old_offsets -= removed
        return removed


@dataclass
class FakeStore:
    keys: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    """Keys that cannot be deleted, such as those under a legal hold."""
    failure: StratalogError | None = None
    requests: int = 0
    asked: list[list[str]] = field(default_factory=list)
    """The keys of each request."""
    url: str = "fake:"

    marker: StoreMarker | None = MARKER

    async def get(self, key: str) -> StoredObject:
        if key != MARKER_KEY or self.marker is None:
            raise ObjectNotFoundError(key)
        data = encode_marker(self.marker)
        info = ObjectInfo(key=key, size_bytes=len(data), modified_ms=0, etag="e", metadata={})
        return StoredObject(info=info, data=data)

    @property
    def store(self) -> ObjectStore:
        return cast(ObjectStore, self)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        for key in sorted(self.keys):
            if key.startswith(prefix):
                yield ObjectInfo(key=key, size_bytes=1, modified_ms=0, etag="")

    async def delete(self, keys: Sequence[str]) -> None:
        self.requests += 1
        self.asked.append(sorted(keys))
        if self.failure is not None:
            raise self.failure
        self.keys -= set(keys) - self.held
        if self.held & set(keys):
            raise StoreAccessError("held")
