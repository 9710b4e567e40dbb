"""A consumer group and its members, as values that are never changed: each step makes new ones.

Three epochs tell how far everybody is. The group's epoch grows with every change of members,
subscriptions or topics. The assignment's epoch is the group epoch for which the target was
computed. A member's epoch is the assignment epoch that it has reached.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from stratalog.ids import TopicId, TopicPartition

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
"""A static member goes and will be back: its partitions are kept for it."""

DEFAULT_ASSIGNOR = "uniform"

Partitions: TypeAlias = frozenset[TopicPartition]

NO_PARTITIONS: Partitions = frozenset()


class MemberState(StrEnum):
    STABLE = "stable"
    """The member has all that it was meant to have at its epoch."""
    UNREVOKED = "unrevoked"
    """The member has yet to acknowledge that it gave up some partitions."""
    UNRELEASED = "unreleased"
    """Others have yet to give up partitions that the member is meant to have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What a member wants, in its own words."""

    names: frozenset[str] = frozenset()
    pattern: str | None = None


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
    """The topics that the subscription stands for, when last looked."""
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    """What the member was told that it has."""
    revoking: Partitions = NO_PARTITIONS
    """What the member was told to give up and may still be reading."""

    @property
    def held(self) -> Partitions:
        """What nobody else may have."""
        return self.assigned | self.revoking


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicShape:
    """Of a topic, what an assignment depends on."""

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
    """The topics that any member subscribes to, when last looked."""

    @property
    def name(self) -> str:
        """The state's name as Kafka tells it."""
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
        """The one that most members ask for; the first by name if several are equal."""
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
