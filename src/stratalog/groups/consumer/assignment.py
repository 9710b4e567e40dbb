"""The input of an assignor. Its output is the target: the partitions that each member
should have."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from stratalog.groups.consumer.model import NO_PARTITIONS, Partitions
from stratalog.ids import PartitionIndex, TopicId, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedMember:
    topic_ids: frozenset[TopicId]
    current: Partitions = NO_PARTITIONS
    """The member's partitions in the last target. No partition is current for two members."""
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentTask:
    members: Mapping[str, AssignedMember]
    partition_counts: Mapping[TopicId, int]
    """The numbers of partitions of all topics that exist. Members may subscribe to other topics."""

    def partitions_of(self, topic_id: TopicId) -> Iterator[TopicPartition]:
        for index in range(self.partition_counts.get(topic_id, 0)):
            yield TopicPartition(topic_id, PartitionIndex(index))

    def may_keep(self, member: AssignedMember) -> Partitions:
        """Return the current partitions that still exist and are still subscribed to."""
        return frozenset(
            each
            for each in member.current
            if each.topic_id in member.topic_ids
            and each.partition < self.partition_counts.get(each.topic_id, 0)
        )

    @property
    def subscribed(self) -> frozenset[TopicId]:
        return frozenset().union(*(member.topic_ids for member in self.members.values()))


Assignor: TypeAlias = Callable[[AssignmentTask], dict[str, Partitions]]
