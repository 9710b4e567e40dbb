"""Rebalancing: moves a classic group from one generation to the next.

    Empty ─join→ PreparingRebalance ─all joined, or time is up→ CompletingRebalance ─leader syncs→
    Stable ─a member joins, leaves, dies or changes→ PreparingRebalance ─no member left→ Empty

The generation only grows. The generation, its members and their assignments must survive this
broker: `revision` grows with each change of them.
"""

from collections.abc import Iterable
from math import inf

from stratalog.errors import StratalogError
from stratalog.groups.classic.member import ClassicMember, elected_protocol
from stratalog.groups.classic.members import Members
from stratalog.groups.classic.model import (
    ClassicLimits,
    ClassicState,
    JoinAnswer,
    JoinedMember,
    SyncAnswer,
)
from stratalog.groups.errors import RebalanceInProgressError, UnknownMemberError
from stratalog.groups.group import Answer

REBALANCING = "the group is being rebalanced"


class Rebalancing:
    """The base of `ClassicGroup`: the members, the generation, the deadlines, the answers."""

    def __init__(self, limits: ClassicLimits, *, generation: int) -> None:
        self._limits = limits
        self.state = ClassicState.EMPTY
        self.generation = generation
        self.protocol_type = ""
        self.protocol_name: str | None = None
        self.members = Members()
        self.revision = 0
        self._pending: dict[str, float] = {}
        """The ids that were given out and have not joined yet, with the times at which they
        lapse."""
        self._unsynced: set[str] = set()
        """The members that know the generation and have not asked for their assignment yet."""
        self._join_deadline_s = inf
        self._sync_deadline_s = inf
        self._is_first_rebalance = False
        """True if the group was empty before. It then waits a while for more members."""
        self._first_rebalance_left_s = 0.0
        self._more_came = False
        self._answers: list[Answer] = []

    # Time.

    @property
    def deadline_s(self) -> float | None:
        first = min(
            self.members.deadline_s,
            min(self._pending.values(), default=inf),
            self._join_deadline_s,
            self._sync_deadline_s,
        )
        return None if first == inf else first

    def tick(self, now_s: float) -> None:
        for member_id in [key for key, end_s in self._pending.items() if end_s <= now_s]:
            self._forget_pending(member_id, now_s)
        for member in self.members:
            # Looked up again, because the removal of one member may have removed or answered
            # others.
            if member.member_id in self.members and member.expires_s <= now_s:
                self._remove(member, now_s)
        if self._join_deadline_s <= now_s:
            self._end_joining(now_s)
        if self._sync_deadline_s <= now_s:
            self._drop_unsynced(now_s)

    # Rebalancing.

    def _prepare_or_complete(self, now_s: float) -> None:
        if self.state is ClassicState.PREPARING:
            self._complete_if_all_joined(now_s)
        else:
            self._prepare(now_s)

    def _prepare(self, now_s: float) -> None:
        """Begin to gather the members of the next generation."""
        if self.state is ClassicState.COMPLETING:
            self._fail_syncs(RebalanceInProgressError(REBALANCING))
        self._unsynced.clear()
        self._sync_deadline_s = inf
        self._is_first_rebalance = self.state is ClassicState.EMPTY
        self.state = ClassicState.PREPARING
        timeout_s = self.members.rebalance_timeout_s
        if not self._is_first_rebalance:
            self._join_deadline_s = now_s + timeout_s
            self._complete_if_all_joined(now_s)
            return
        delay_s = self._limits.initial_rebalance_delay_ms / 1000
        self._join_deadline_s = now_s + delay_s
        self._first_rebalance_left_s = max(timeout_s - delay_s, 0.0)
        self._more_came = False
        if not delay_s:
            self._end_joining(now_s)

    def _complete_if_all_joined(self, now_s: float) -> None:
        if (
            self.state is ClassicState.PREPARING
            and not self._is_first_rebalance
            and not self._pending
            and self.members.all_joined
        ):
            self._complete(now_s)

    def _end_joining(self, now_s: float) -> None:
        """Complete the rebalance when its time is up. A first rebalance is extended as long as more
        members have come."""
        left_s = self._first_rebalance_left_s
        if self._is_first_rebalance and self._more_came and left_s > 0:
            delay_s = min(self._limits.initial_rebalance_delay_ms / 1000, left_s)
            self._first_rebalance_left_s = left_s - delay_s
            self._more_came = False
            self._join_deadline_s = now_s + delay_s
            return
        self._complete(now_s)

    def _complete(self, now_s: float) -> None:
        """Make the next generation of the members that joined, and of all static members, because a
        static member may come back."""
        for member in self.members:
            if member.joining is None and member.instance_id is None:
                self.members.remove(member)
        self._is_first_rebalance = False
        if not len(self.members):
            self._become_empty()
        elif not self.members.elect_joined_leader():
            # Only static members are left, and none has joined. The group waits until one does, or
            # until all of them expire.
            self._join_deadline_s = now_s + self.members.rebalance_timeout_s
        else:
            self._begin_generation(now_s)

    def _become_empty(self) -> None:
        self._join_deadline_s = inf
        self.generation += 1
        self.state = ClassicState.EMPTY
        self.protocol_name = None
        self._changed()

    def _begin_generation(self, now_s: float) -> None:
        self._join_deadline_s = inf
        self.generation += 1
        self.state = ClassicState.COMPLETING
        self.protocol_name = elected_protocol(list(self.members))
        self._unsynced = {member.member_id for member in self.members}
        self._sync_deadline_s = now_s + self.members.rebalance_timeout_s
        self._changed()
        for member in self.members:
            member.assignment = b""
            member.is_new = False
            member.touch(now_s)
            if member.joining is not None:
                self._answer(member.joining, self._joined(member))
                member.joining = None
        self.members.measure(*self.members)

    def _forget_pending(self, member_id: str, now_s: float) -> None:
        del self._pending[member_id]
        self._complete_if_all_joined(now_s)

    def _remove(self, member: ClassicMember, now_s: float) -> None:
        self._fail_waiting([member], UnknownMemberError("the member was removed"))
        self.members.remove(member)
        self._unsynced.discard(member.member_id)
        self._prepare_or_complete(now_s)

    def _drop_unsynced(self, now_s: float) -> None:
        """Remove the members that did not ask for their assignment in time."""
        self._sync_deadline_s = inf
        for member_id in list(self._unsynced):
            self._remove(self.members[member_id], now_s)

    def _resume(self, now_s: float) -> None:
        """Set the deadlines of a group that another broker, or an earlier process, had begun."""
        timeout_s = self.members.rebalance_timeout_s
        if self.state is ClassicState.PREPARING:
            self._join_deadline_s = now_s + timeout_s
        elif self.state is ClassicState.COMPLETING:
            self._unsynced = {member.member_id for member in self.members}
            self._sync_deadline_s = now_s + timeout_s

    # Answering.

    def take_answers(self) -> list[Answer]:
        taken, self._answers = self._answers, []
        return taken

    def _joined(
        self,
        member: ClassicMember,
        *,
        leader: str | None = None,
        with_members: bool | None = None,
        skip_assignment: bool = False,
    ) -> JoinAnswer:
        leads = self.members.leader == member.member_id
        return JoinAnswer(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=leader or self.members.leader or "",
            skip_assignment=skip_assignment,
            members=self._all_joined() if (leads if with_members is None else with_members) else (),
        )

    def _all_joined(self) -> list[JoinedMember]:
        return [
            JoinedMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                metadata=member.metadata_of(self.protocol_name),
            )
            for member in self.members
        ]

    def _fail_waiting(self, members: Iterable[ClassicMember], error: StratalogError) -> None:
        for member in members:
            if member.joining is not None:
                answer = JoinAnswer(error=error, member_id=member.member_id)
                self._answer(member.joining, answer)
                member.joining = None
            if member.syncing is not None:
                self._answer(member.syncing, SyncAnswer(error=error))
                member.syncing = None

    def _fail_syncs(self, error: StratalogError) -> None:
        self._fail_waiting([each for each in self.members if each.joining is None], error)

    def _answer(self, ticket: int, value: JoinAnswer | SyncAnswer) -> None:
        self._answers.append(Answer(ticket, value))

    def _changed(self) -> None:
        self.revision += 1
