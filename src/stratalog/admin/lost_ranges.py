"""Ranges of offsets that are lost: marked, so that readers go on behind them, and listed."""

import logging
from collections.abc import Sequence

from stratalog.admin.authorizer import Authorizer
from stratalog.admin.entries import PartitionName, partition_in
from stratalog.admin.errors import StillReadableError
from stratalog.admin.principal import Principal
from stratalog.admin.rights import DELETE_TOPIC, DESCRIBE_TOPIC
from stratalog.admin.topics import TopicAdmin
from stratalog.checks.lost_objects import LostPart, plan_object_loss
from stratalog.checks.lost_ranges import LossPlan, mark_lost, plan_loss
from stratalog.checks.lost_segments import SegmentLoss, mark_segment_lost, plan_segment_loss
from stratalog.checks.remote_tier import RemoteTier
from stratalog.clock import SYSTEM_CLOCK, Clock
from stratalog.control.lost.model import LostRange
from stratalog.control.plane import ControlPlane
from stratalog.control.writers.model import WriterKind
from stratalog.ids import Entropy, Offset, WriterTag, system_entropy
from stratalog.objects.store import ObjectStore
from stratalog.opening.writers import announced_writer
from stratalog.segment.chunk_encoding import Encoding
from stratalog.segment.keys import LOG_SUFFIX

log = logging.getLogger(__name__)


class LostRangeAdmin:
    def __init__(
        self,
        *,
        control: ControlPlane,
        topics: TopicAdmin,
        authorizer: Authorizer,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = system_entropy,
    ) -> None:
        self._control = control
        self._topics = topics
        self._authorizer = authorizer
        self._clock = clock
        self._entropy = entropy

    async def all(self, principal: Principal, topic: str) -> list[LostRange]:
        """Return the lost ranges of a topic, by partition and offset."""
        return await self._control.lost.of_topic((await self._topics.find(principal, topic)).id)

    async def plan(
        self,
        principal: Principal,
        store: ObjectStore,
        name: PartitionName,
        first_offset: Offset,
        end_offset: Offset,
    ) -> LossPlan:
        """Return the range as it would be marked, with the rows that can still be read."""
        topic = await self._topics.find(principal, name.topic)
        key = partition_in({topic.name: topic}, name)
        return await plan_loss(self._control, store, key, first_offset, end_offset)

    async def plan_object(
        self, principal: Principal, store: ObjectStore, key: str
    ) -> list[LostPart]:
        """Return all ranges that would be marked if the object with this key were given up."""
        parts = await plan_object_loss(self._control, store, key)
        for part in parts:
            self._authorizer.authorize(principal, DESCRIBE_TOPIC, part.topic_name)
        return parts

    async def mark(
        self,
        principal: Principal,
        store: ObjectStore,
        topic: str,
        plan: LossPlan,
        *,
        reason: str,
        force: bool = False,
    ) -> None:
        """Give the records of a range up. Its offsets stay, and consumers go on behind them.

        Raises `StillReadableError` if some of the records can be read, unless `force` is given.
        """
        parts = [LostPart(topic, plan)]
        await self.mark_parts(principal, store, parts, reason=reason, force=force)

    async def mark_parts(
        self,
        principal: Principal,
        store: ObjectStore,
        parts: Sequence[LostPart],
        *,
        reason: str,
        force: bool = False,
    ) -> None:
        """Give up ranges of several partitions, one after the other.

        Nothing is given up if a record of any can be read, unless `force` is given. If one fails,
        the ranges before it are marked, and a new plan has the others.
        """
        for topic, plan in parts:
            self._authorizer.authorize(principal, DELETE_TOPIC, topic)
            if plan.readable and not force:
                row = plan.readable[0]
                raise StillReadableError(
                    f"offsets {row.base_offset} to {row.last_offset} of partition {row.partition}"
                    f" of {topic} can be read: name a smaller range, or give --force to lose them,"
                    " too"
                )
        async with announced_writer(self._control, WriterKind.REPAIR) as writer:
            for topic, plan in parts:
                await self._mark(principal, store, topic, plan, reason, writer)

    async def plan_segment(self, principal: Principal, tier: RemoteTier, key: str) -> SegmentLoss:
        """Return the segment that would be given up with the log of this key."""
        loss = await plan_segment_loss(self._control, tier, key)
        self._authorizer.authorize(principal, DESCRIBE_TOPIC, loss.topic_name)
        return loss

    async def mark_segment(
        self,
        principal: Principal,
        tier: RemoteTier,
        encoding: Encoding,
        loss: SegmentLoss,
        *,
        reason: str,
        force: bool = False,
    ) -> None:
        """Give the records of a segment up. Its offsets stay, and consumers go on behind them.

        Raises `StillReadableError` if its log is in the store, unless `force` is given.
        """
        self._authorizer.authorize(principal, DELETE_TOPIC, loss.topic_name)
        segment = loss.segment
        if loss.has_log and not force:
            raise StillReadableError(
                f"{segment.key_base}{LOG_SUFFIX} is in the store: `stratalog fsck --deep` says what"
                " of it cannot be read; give --force to lose all of it"
            )
        async with announced_writer(self._control, WriterKind.REPAIR) as writer:
            await mark_segment_lost(
                self._control,
                tier,
                encoding,
                loss,
                reason=reason,
                noted_by=str(principal),
                writer=writer,
                clock=self._clock,
                entropy=self._entropy,
            )
        log.warning(
            "%s marked offsets %d to %d of partition %d of topic %r as lost, with their segment:"
            " %s",
            principal,
            segment.base_offset,
            segment.last_offset,
            segment.partition,
            loss.topic_name,
            reason,
        )

    async def _mark(
        self,
        principal: Principal,
        store: ObjectStore,
        topic: str,
        plan: LossPlan,
        reason: str,
        writer: WriterTag,
    ) -> None:
        await mark_lost(
            self._control,
            store,
            plan,
            topic_name=topic,
            reason=reason,
            noted_by=str(principal),
            writer=writer,
            clock=self._clock,
            entropy=self._entropy,
        )
        log.warning(
            "%s marked offsets %d to %d of partition %d of topic %r as lost: %s",
            principal,
            plan.first_offset,
            plan.end_offset - 1,
            plan.partition.partition,
            topic,
            reason,
        )
