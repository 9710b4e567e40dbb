"""Segments: listing them, finding the one that holds an offset, adopting, exporting, owning."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from stratalog.admin.authorizer import Authorizer
from stratalog.admin.principal import Principal
from stratalog.admin.rights import ALTER_CLUSTER, ALTER_TOPIC, CREATE_TOPIC, DESCRIBE_TOPIC
from stratalog.admin.topics import TopicAdmin
from stratalog.control.log.model import PartitionState
from stratalog.control.plane import ControlPlane
from stratalog.control.segments.lifecycle import epoch_at
from stratalog.control.segments.model import Segment
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.control.topics.migration_state import Tier, tier_of
from stratalog.control.topics.model import Topic
from stratalog.ids import LeaderEpoch, Offset, PartitionIndex, TopicPartition
from stratalog.objects.store import ObjectStore
from stratalog.opening.segment_store import note_moved
from stratalog.segment.keys import LOG_SUFFIX
from stratalog.segment.remote_log_metadata import export_records
from stratalog.topic.adopt import AdoptionPlan, check_free, open_for_writes, plan_adoption
from stratalog.topic.adopted_objects import AdoptedObjects
from stratalog.topic.adoption_source import SourceTopic

_PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionConsent:
    """Losses and risks that the admin accepts, and how far the adoption shall go."""

    lose_untiered: bool = False
    accept_open_transactions: bool = False
    read_only: bool = False
    """Leave the topic closed for writes."""
    dry_run: bool = False
    """Plan and check, and change nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedRecord:
    """A record that tells Kafka about a segment, for its topic `__remote_log_metadata`."""

    partition: TopicPartition
    """The partition that the segment belongs to."""
    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetLocation:
    """The tier that holds an offset, and the stored range around it."""

    tier: Tier
    state: PartitionState
    stored: "StoredRange | None"
    """None if the tier is none, local, or the range was removed a moment ago."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRange:
    """Adjoining records in one object."""

    leader_epoch: LeaderEpoch
    first: Offset
    last: Offset
    store_url: str | None
    """None: the cluster's own store."""
    object_key: str
    byte_offset: int | None = None
    """With `byte_size`, the place in a block. A segment is one object of its own."""
    byte_size: int | None = None


class SegmentAdmin:
    def __init__(
        self, *, control: ControlPlane, topics: TopicAdmin, authorizer: Authorizer
    ) -> None:
        self._control = control
        self._topics = topics
        self._authorizer = authorizer

    async def list_segments(
        self,
        principal: Principal,
        name: str,
        partition: PartitionIndex | None = None,
        *,
        unchained: bool = False,
    ) -> list[Segment]:
        """List the segments of a topic, or of one partition, by partition and offset.

        With `unchained` also the segments that do not yet, or no longer, serve reads.
        """
        topic = await self._describable(principal, name)
        keys = _keys(topic, partition)
        if not unchained:
            return [segment for key in keys async for segment in self._chain(key)]
        found = [one async for one in self._all() if one.topic_partition in keys]
        return sorted(found, key=lambda one: (one.partition, one.base_offset, one.added_ms))

    async def locate(
        self, principal: Principal, name: str, partition: PartitionIndex, offset: Offset
    ) -> OffsetLocation:
        """Find the tier and the object that hold an offset. The offset need not exist."""
        topic = await self._describable(principal, name)
        (key,) = _keys(topic, partition)
        state = (await self._control.log.partitions([key])).get(key)
        if state is None:
            raise _no_partition(topic, partition)
        tier = tier_of(state, offset)
        stored = None
        if tier is Tier.REMOTE:
            stored = await self._in_segments(key, offset)
        elif tier is Tier.BLOCK:
            stored = await self._in_blocks(key, offset)
        return OffsetLocation(tier=tier, state=state, stored=stored)

    async def adopt(
        self,
        principal: Principal,
        source: SourceTopic,
        objects: AdoptedObjects,
        consent: AdoptionConsent,
        progress: Callable[[str, int, int], None] = lambda *_: None,
    ) -> AdoptionPlan:
        """Adopt a tiered topic of a Kafka cluster, and open it for writes unless `read_only`."""
        self._authorizer.authorize(principal, CREATE_TOPIC, source.name)
        plan = await plan_adoption(source, objects, progress)
        if consent.dry_run:
            return plan
        if not consent.lose_untiered:
            plan.check_sealed()
        if not consent.accept_open_transactions:
            plan.check_transactions()
        await self._control.topics.adopt(plan.topic)
        if not consent.read_only:
            await open_for_writes(self._control, source.topic_id)
        return plan

    async def check_adoptable(self, principal: Principal, source: SourceTopic) -> None:
        """Raise if the name or the id of the topic is taken here."""
        self._authorizer.authorize(principal, CREATE_TOPIC, source.name)
        await check_free(self._control, source.name, source.topic_id)

    async def export(self, principal: Principal, name: str) -> list[ExportedRecord]:
        """Return the records that tell Kafka about a topic's segments, two for each segment.

        From then on the sweeper spares segments that Kafka may store beside the exported ones.
        """
        self._authorizer.authorize(principal, ALTER_TOPIC, name)
        topic = await self._topics.find(principal, name)
        await self._control.segments.mark_exported(topic.id)
        return [
            ExportedRecord(partition=key, value=value)
            for key in _keys(topic, None)
            async for segment in self._chain(key)
            for value in export_records(segment, name)
        ]

    async def own(self, principal: Principal, name: str) -> int:
        """Have the objects of an adopted topic deleted here from now on. Returns their number."""
        self._authorizer.authorize(principal, ALTER_TOPIC, name)
        topic = await self._topics.find(principal, name)
        return await self._control.segments.own(topic.id)

    async def note_moved(
        self, principal: Principal, store: ObjectStore, segment_store: ObjectStore
    ) -> int:
        """Note that the cluster's own segments lie in `segment_store`, if all of them do.

        Returns the number of segments.
        """
        self._authorizer.authorize_on_cluster(principal, ALTER_CLUSTER)
        return await note_moved(self._control, store, segment_store)

    async def _describable(self, principal: Principal, name: str) -> Topic:
        self._authorizer.authorize(principal, DESCRIBE_TOPIC, name)
        return await self._topics.find(principal, name)

    async def _chain(self, key: TopicPartition) -> AsyncIterator[Segment]:
        after: Offset | None = None
        while page := await self._control.segments.chained(key, after=after, limit=_PAGE):
            for segment in page:
                yield segment
            after = page[-1].last_offset

    async def _all(self) -> AsyncIterator[Segment]:
        after = None
        while page := await self._control.segments.all(after=after, limit=_PAGE):
            for segment in page:
                yield segment
            after = page[-1].segment_id

    async def _in_segments(self, key: TopicPartition, offset: Offset) -> StoredRange | None:
        epoch = epoch_at(await self._control.log.epochs(key), offset)
        if epoch is None:
            return None
        segment = await self._control.segments.find(key, epoch, offset)
        if segment is None:
            return None
        return StoredRange(
            leader_epoch=epoch,
            first=segment.base_offset,
            last=segment.last_offset,
            store_url=segment.store_url,
            object_key=segment.key_base + LOG_SUFFIX,
        )

    async def _in_blocks(self, key: TopicPartition, offset: Offset) -> StoredRange | None:
        rows = await self._control.log.all_coordinates(key, after=Offset(offset - 1), limit=1)
        if not rows or rows[0].base_offset > offset:
            return None
        [row] = rows
        return StoredRange(
            leader_epoch=row.leader_epoch,
            first=row.base_offset,
            last=row.last_offset,
            store_url=None,
            object_key=row.object_key,
            byte_offset=row.byte_offset,
            byte_size=row.byte_size,
        )


def _keys(topic: Topic, partition: PartitionIndex | None) -> list[TopicPartition]:
    """The given partition of the topic, or all."""
    if partition is not None and not 0 <= partition < topic.partition_count:
        raise _no_partition(topic, partition)
    wanted = range(topic.partition_count) if partition is None else [partition]
    return [TopicPartition(topic.id, PartitionIndex(index)) for index in wanted]


def _no_partition(topic: Topic, partition: int) -> UnknownTopicError:
    return UnknownTopicError(
        f"{topic.name} has no partition {partition}, only 0 to {topic.partition_count - 1}"
    )
