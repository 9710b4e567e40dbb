"""Consumer groups as the control plane keeps them: coordinator, agreed state, committed offsets."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from stratalog.control.brokers.model import BrokerInfo
from stratalog.ids import Offset, PartitionIndex, TopicId, TopicPartition


class GroupKind(StrEnum):
    CLASSIC = "classic"
    """The members join and synchronise, one of them assigns."""
    CONSUMER = "consumer"
    """The members send heartbeats, the coordinator assigns (KIP-848)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """A group as its coordinator saved it. `state` is the coordinator's own encoding."""

    group_id: str
    term: int
    """Grows with every change of coordinator. Whoever writes names the term it was given."""
    kind: GroupKind
    state_name: str
    """For ListGroups: Empty, Stable, and so on."""
    protocol_type: str
    state: bytes
    """Empty for a group that was never saved."""
    empty_since_ms: int | None
    """When the last member left; None while there are members, or never were any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    group_id: str
    kind: GroupKind
    state_name: str
    protocol_type: str
    coordinator: BrokerInfo | None
    """None if it is dead: the next who asks for the group gets another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetToCommit:
    topic_id: TopicId
    partition: PartitionIndex
    offset: Offset
    leader_epoch: int
    metadata: str

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic_id, self.partition)


LeftOut: TypeAlias = frozenset[TopicPartition]
"""Partitions whose offsets were not stored, because they do not exist (any more)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffsets:
    """One OffsetCommit, to be committed together with those of other groups."""

    group_id: str
    term: int
    offsets: Sequence[OffsetToCommit]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    topic_id: TopicId
    partition: PartitionIndex
    offset: Offset
    leader_epoch: int
    metadata: str
    committed_ms: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic_id, self.partition)
