"""A consumer group and its members, as immutable values: each transition makes new ones.

Three epochs measure progress. The group's epoch grows with every change of members, subscriptions
or topics. The assignment's epoch is the group epoch for which the target was computed. A member's
epoch is the assignment epoch that it has reached.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from stratalog.groups.limits import MEMBER_BYTES, NAME_BYTES, PARTITION_BYTES
from stratalog.ids import TopicId, TopicPartition

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
"""Sent by a static member that leaves and will be back: its partitions are kept for it."""

DEFAULT_ASSIGNOR = "uniform"

Partitions: TypeAlias = frozenset[TopicPartition]

NO_PARTITIONS: Partitions = frozenset()


class MemberState(StrEnum):
    STABLE = "stable"
    """The member has all partitions that the target of its epoch gives to it."""
    UNREVOKED = "unrevoked"
    """The member has yet to report that it gave up some partitions."""
    UNRELEASED = "unreleased"
    """Other members have yet to give up partitions that the target gives to this member."""


def names_bytes(names: Collection[str]) -> int:
    return sum(map(len, names)) + NAME_BYTES * len(names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The topics that a member wants, as names or as a pattern."""

    names: frozenset[str] = frozenset()
    pattern: str | None = None

    @property
    def size_bytes(self) -> int:
        return names_bytes(self.names) + len(self.pattern or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    subscription: Subscription = field(default_factory=Subscription)
    assignor: str | None = None
    topic_ids: frozenset[TopicId] = frozenset()
    """The topics that match the subscription, as of the last lookup."""
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    """The partitions that the member has, as of its last answer."""
    revoking: Partitions = NO_PARTITIONS
    """The partitions that the member is to give up, and may still be reading."""

    @property
    def held(self) -> Partitions:
        """The partitions that no other member may have."""
        return self.assigned | self.revoking

    @property
    def size_bytes(self) -> int:
        """About the memory of the member."""
        texts = len(self.member_id) + len(self.client_id) + len(self.instance_id or "")
        partitions = len(self.assigned) + len(self.revoking)
        return MEMBER_BYTES + texts + self.subscription.size_bytes + PARTITION_BYTES * partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicShape:
    """The properties of a topic that an assignment depends on."""

    topic_id: TopicId
    name: str
    partition_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    group_epoch: int = 0
    assignment_epoch: int = 0
    members: Mapping[str, Member] = field(default_factory=dict)
    target: Mapping[str, Partitions] = field(default_factory=dict)
    topics: Mapping[TopicId, TopicShape] = field(default_factory=dict)
    """The topics that any member subscribes to, as of the last lookup."""

    @property
    def size_bytes(self) -> int:
        """About the memory of the members."""
        return sum(member.size_bytes for member in self.members.values())

    @property
    def name(self) -> str:
        """The name that Kafka gives to the state."""
        if not self.members:
            return "Empty"
        if self.group_epoch > self.assignment_epoch:
            return "Assigning"
        settled = all(
            member.state is MemberState.STABLE and member.epoch == self.assignment_epoch
            for member in self.members.values()
        )
        return "Stable" if settled else "Reconciling"

    @property
    def assignor(self) -> str:
        """The assignor that most members ask for. Among equals, the first by name."""
        votes = Counter(member.assignor for member in self.members.values() if member.assignor)
        if not votes:
            return DEFAULT_ASSIGNOR
        return min(votes, key=lambda name: (-votes[name], name))

    def static_member(self, instance_id: str) -> Member | None:
        found = (each for each in self.members.values() if each.instance_id == instance_id)
        return next(found, None)

    def held_by_others(self, member_id: str) -> Iterator[TopicPartition]:
        for other in self.members.values():
            if other.member_id != member_id:
                yield from other.assigned
                yield from other.revoking
