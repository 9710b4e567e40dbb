"""A consumer group in the memory of its coordinator: its state, its deadlines, its revision."""

import logging
from dataclasses import dataclass

from stratalog.control.groups.model import GroupKind
from stratalog.groups.consumer import transitions
from stratalog.groups.consumer.codec import decode_state, encode_state
from stratalog.groups.consumer.deadlines import Deadlines
from stratalog.groups.consumer.errors import OldCommitError, StaleMemberEpochError
from stratalog.groups.consumer.heartbeat import Heartbeat, HeartbeatAnswer
from stratalog.groups.consumer.model import GroupState, names_bytes
from stratalog.groups.consumer.subscriptions import (
    TopicsFound,
    TopicsWanted,
    patterns_of,
    topic_names,
)
from stratalog.groups.errors import UnknownMemberError
from stratalog.groups.group import CONSUMER, Answer, Committer, Group, GroupDescription
from stratalog.groups.limits import MEMBER_BYTES

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    session_ms: int
    max_members: int
    look_ms: int
    """The time after which the topics are looked up again."""


class ConsumerGroup:
    """Implements `Group`."""

    kind = GroupKind.CONSUMER
    protocol_type = CONSUMER

    def __init__(
        self,
        group_id: str,
        limits: Limits,
        *,
        state: GroupState,
        now_s: float,
        revision: int = 0,
    ) -> None:
        self.group_id = group_id
        self.state = state
        self._limits = limits
        self._deadlines = Deadlines(limits.session_ms)
        self._look_s = now_s
        self._revision = revision
        self._given_to_save = self._saved = state
        self._measured = state, state.size_bytes
        self.setbacks = 0
        """The number of times that the group went back to an earlier state. Answers that were
        prepared before are void."""
        for member in state.members.values():
            self._deadlines.heard(member, now_s)

    @classmethod
    def succeeding(
        cls, group_id: str, limits: Limits, *, earlier: Group, now_s: float
    ) -> "ConsumerGroup":
        """Make a group without members. Its epoch continues the one of the earlier group of the
        same name."""
        state = GroupState(group_epoch=earlier.epoch, assignment_epoch=earlier.epoch)
        return cls(group_id, limits, state=state, now_s=now_s, revision=earlier.revision + 1)

    @classmethod
    def load(cls, group_id: str, limits: Limits, *, data: bytes, now_s: float) -> "ConsumerGroup":
        return cls(group_id, limits, state=decode_state(data), now_s=now_s)

    def set_session_ms(self, session_ms: int) -> None:
        self._deadlines.set_session_ms(session_ms)

    @property
    def state_name(self) -> str:
        return self.state.name

    @property
    def epoch(self) -> int:
        return self.state.group_epoch

    @property
    def is_empty(self) -> bool:
        return not self.state.members

    @property
    def revision(self) -> int:
        return self._revision

    @property
    def deadline_s(self) -> float | None:
        return self._deadlines.earliest_s

    @property
    def size_bytes(self) -> int:
        if self._measured[0] is not self.state:
            self._measured = self.state, self.state.size_bytes
        return self._measured[1]

    def added_bytes(self, beat: Heartbeat) -> int:
        """About the memory by which a heartbeat makes the group grow, without its assignment."""
        names = names_bytes(beat.topic_names or ()) + len(beat.topic_pattern or "")
        member = self.state.members.get(beat.member_id)
        if member is not None:
            return names - member.subscription.size_bytes
        texts = len(beat.member_id) + len(beat.client_id) + len(beat.instance_id or "")
        return MEMBER_BYTES + texts + names if beat.joins else 0

    def to_state(self) -> bytes:
        self._saved, self._given_to_save = self._given_to_save, self.state
        return encode_state(self.state)

    def unsaved(self, error: Exception, now_s: float) -> None:  # noqa: ARG002
        """Go back to the state that was saved last. No answer has gone out since."""
        self._given_to_save = self._saved
        # The save may have taken effect after all, so the old state has to be saved again.
        self._enter(self._saved, now_s)
        self._revision += 1
        self.setbacks += 1

    def take_answers(self) -> list[Answer]:
        """Return nothing, because heartbeats are answered at once."""
        return []

    def describe(self) -> GroupDescription:
        return GroupDescription(
            kind=self.kind,
            state_name=self.state_name,
            protocol_type=self.protocol_type,
            protocol_name=self.state.assignor,
            members=(),
        )

    def is_subscribed_to(self, topic: str) -> bool:
        return any(each.name == topic for each in self.state.topics.values())

    def validate_commit(self, committer: Committer, now_s: float) -> None:  # noqa: ARG002
        if committer.epoch < 0 and self.is_empty:
            return
        self._check_epoch(committer)

    def validate_fetch(self, committer: Committer) -> None:
        """Allow fetches of clients that are no members. A client that claims to be a member must be
        one, at its present epoch."""
        if not committer.member_id and committer.epoch < 0:
            return
        self._check_epoch(committer)

    def _check_epoch(self, committer: Committer) -> None:
        member = self.state.members.get(committer.member_id)
        if member is None:
            raise UnknownMemberError(
                f"group {self.group_id!r} has no member {committer.member_id!r}"
            )
        if not committer.knows_member_epochs:
            raise OldCommitError(
                f"group {self.group_id!r} has member epochs: commit by version 9 or later"
            )
        if committer.epoch != member.epoch:
            raise StaleMemberEpochError(
                f"member {member.member_id!r} of group {self.group_id!r} is at epoch "
                f"{member.epoch}, not {committer.epoch}"
            )

    def wants(self, beat: Heartbeat) -> TopicsWanted:
        """Return the topics that the group depends on once it has had this heartbeat."""
        members = self.state.members.values()
        names = topic_names(members) | (beat.topic_names or frozenset())
        patterns = patterns_of(members) | ({beat.topic_pattern} if beat.topic_pattern else set())
        return TopicsWanted(names=frozenset(names), patterns=frozenset(patterns))

    def must_look(self, beat: Heartbeat, now_s: float) -> bool:
        """Return whether the topics must be looked up for this heartbeat."""
        subscribes = beat.topic_names is not None or beat.topic_pattern is not None
        return subscribes or now_s >= self._look_s

    def heartbeat(
        self, beat: Heartbeat, found: TopicsFound | None, now_s: float
    ) -> HeartbeatAnswer:
        """Apply a heartbeat. `found` has the topics that `wants` names, or is None if the topics
        need not be looked up."""
        if beat.leaves:
            state, answer = transitions.leave(self.state, beat)
            self._enter(state, now_s)
            if answer.member_id in state.members:
                self._deadlines.away(answer.member_id)
            return answer
        admitted = transitions.admit(self.state, beat, max_members=self._limits.max_members)
        assert found is None or self.wants(beat) <= found.asked
        if found is not None:
            self._look_s = now_s + self._limits.look_ms / 1000
        state, answer = transitions.advance(admitted, beat, found)
        self._enter(state, now_s)
        self._deadlines.heard(state.members[answer.member_id], now_s)
        return answer

    def tick(self, now_s: float) -> None:
        for member_id in self._deadlines.missed(now_s):
            log.info("Group %r loses member %r: its time is up", self.group_id, member_id)
            self._enter(transitions.without(self.state, member_id), now_s)

    def _enter(self, state: GroupState, now_s: float) -> None:
        if state == self.state:
            return
        earlier, self.state = self.state, state
        self._revision += 1
        self._deadlines.keep_only(state.members)
        for member_id in state.members.keys() - earlier.members.keys():
            self._deadlines.heard(state.members[member_id], now_s)
