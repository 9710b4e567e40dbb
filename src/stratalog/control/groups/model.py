"""Consumer groups as the control plane keeps them: coordinator, agreed state, committed offsets."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from stratalog.control.brokers.model import BROKERS, BrokerInfo
from stratalog.control.sql.table import Expression, Selection, Table
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
    """Grows with every change of coordinator. Every write names the term of its coordinator."""
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
    """None if it is dead: the next request for the group gives the group another."""


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
    """One OffsetCommit, to be committed together with the offsets of other groups."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    group_id: str
    name: str
    value: str


GROUPS = Table(
    "groups",
    group_id="text",
    kind="text",
    state_name="text",
    protocol_type="text",
    state="bytea",
    term="bigint",
    coordinator_id="integer",
    coordinator_incarnation="uuid",
    empty_since_ms="bigint null",
    changed_ms="bigint",
)
GROUP_RECORD = Selection(GroupRecord, GROUPS)
GROUP_SUMMARY = Selection(
    GroupSummary,
    GROUPS,
    # Of a join with the brokers that are alive.
    coordinator=Selection(
        BrokerInfo, BROKERS, alive=Expression("true", "boolean"), none_without="broker_id"
    ),
)

GROUP_OFFSETS = Table(
    "group_offsets",
    group_id="text",
    topic_id="uuid",
    partition="integer",
    committed_offset="bigint",
    leader_epoch="integer",
    metadata="bytea",
    committed_ms="bigint",
)
COMMITTED_OFFSET = Selection(
    CommittedOffset,
    GROUP_OFFSETS,
    offset=GROUP_OFFSETS["committed_offset"],
    metadata=GROUP_OFFSETS["metadata"].decoded(lambda metadata: bytes(metadata).decode()),
)

GROUP_CONFIGS = Table("group_configs", group_id="text", name="text", value="text")
GROUP_CONFIG = Selection(GroupConfig, GROUP_CONFIGS)
