"""A classic group: members join, agree on a protocol, and the leader assigns partitions to them.

The group is a pure state machine, which follows Kafka's coordinator in every answer. A request
comes with a ticket. Its answer comes out under the same ticket, at once or after later requests,
for example when all members have joined.
"""

from collections.abc import Mapping, Sequence
from math import inf
from uuid import UUID

from stratalog.control.groups.model import GroupKind
from stratalog.errors import StratalogError
from stratalog.groups.classic.codec import SavedGroup, decode, encode
from stratalog.groups.classic.member import (
    NEW_MEMBER_TIMEOUT_S,
    ClassicMember,
    common_protocols,
    elected_protocol,
    protocols_bytes,
)
from stratalog.groups.classic.model import (
    ClassicLimits,
    ClassicState,
    JoinAnswer,
    JoinRequest,
    Leaving,
    SyncAnswer,
    SyncRequest,
)
from stratalog.groups.classic.rebalancing import REBALANCING, Rebalancing
from stratalog.groups.classic.subscription import subscribed_topics
from stratalog.groups.errors import (
    FencedInstanceError,
    GroupFullError,
    IllegalGenerationError,
    InconsistentProtocolError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    SessionTimeoutError,
    UnknownMemberError,
)
from stratalog.groups.group import CONSUMER, Committer, GroupDescription, MemberDescription
from stratalog.groups.limits import MEMBER_BYTES
from stratalog.ids import Entropy, system_entropy


class ClassicGroup(Rebalancing):
    """Implements `Group`."""

    kind = GroupKind.CLASSIC

    def __init__(
        self, limits: ClassicLimits, *, entropy: Entropy = system_entropy, generation: int = 0
    ) -> None:
        super().__init__(limits, generation=generation)
        self._entropy = entropy

    @classmethod
    def resumed(
        cls, state: bytes, limits: ClassicLimits, now_s: float, *, entropy: Entropy = system_entropy
    ) -> "ClassicGroup":
        """Continue a group that this or another broker saved. Every member's session starts
        over."""
        saved = decode(state)
        group = cls(limits, entropy=entropy, generation=saved.generation)
        group.state = saved.state
        group.protocol_type = saved.protocol_type
        group.protocol_name = saved.protocol_name
        for member in saved.members:
            member.touch(now_s)
            group.members.add(member)
        group.members.leader = saved.leader
        group._resume(now_s)
        return group

    # Requests of members.

    def join(self, ticket: int, request: JoinRequest, now_s: float) -> None:
        try:
            self._join(ticket, request, now_s)
        except GroupFullError as error:
            self._answer(ticket, JoinAnswer(error=error))
        except StratalogError as error:
            self._answer(ticket, JoinAnswer(error=error, member_id=request.member_id))

    def sync(self, ticket: int, request: SyncRequest, now_s: float) -> None:
        try:
            self._sync(ticket, request, now_s)
        except StratalogError as error:
            self._answer(ticket, SyncAnswer(error=error))

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now_s: float
    ) -> None:
        """Note a sign of life. Raises if the member is to join again."""
        member = self._of_generation(member_id, instance_id, generation)
        member.touch(now_s)
        if self.state is ClassicState.PREPARING:
            raise RebalanceInProgressError(REBALANCING)

    def leave(self, leaving: Sequence[Leaving], now_s: float) -> list[StratalogError | None]:
        """Remove members. Return an error, or None, for each of them."""
        return [self._leave(each, now_s) for each in leaving]

    # Requests of the coordinator.

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def epoch(self) -> int:
        return self.generation

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY and not self._pending

    def unsaved(self, error: Exception, now_s: float) -> None:  # noqa: ARG002
        """Let the members join again: no member has got its assignment yet."""
        if self.state in (ClassicState.COMPLETING, ClassicState.STABLE):
            for member in self.members:
                member.assignment = b""
            self.members.measure(*self.members)
            self._prepare(now_s)

    @property
    def size_bytes(self) -> int:
        return self.members.size_bytes + sum(map(len, self._pending))

    def added_bytes(self, request: JoinRequest) -> int:
        """About the memory by which a member's request makes the group grow."""
        member = self.members.get(request.member_id)
        asked = protocols_bytes(request.protocols)
        if member is not None:
            return asked - protocols_bytes(member.protocols)
        return MEMBER_BYTES + 2 * len(request.client_id) + len(request.instance_id or "") + asked

    def added_by_assignments(self, assignments: Mapping[str, bytes]) -> int:
        return sum(
            len(assignments.get(member.member_id, b"")) - len(member.assignment)
            for member in self.members
        )

    def to_state(self) -> bytes:
        saved = SavedGroup(
            state=self.state,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.members.leader,
            members=list(self.members),
        )
        return encode(saved)

    def describe(self) -> GroupDescription:
        stable = self.state is ClassicState.STABLE
        return GroupDescription(
            kind=self.kind,
            state_name=self.state_name,
            protocol_type=self.protocol_type,
            protocol_name=(self.protocol_name or "") if stable else "",
            members=[
                MemberDescription(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    metadata=member.metadata_of(self.protocol_name) if stable else b"",
                    assignment=member.assignment if stable else b"",
                )
                for member in self.members
            ],
        )

    def is_subscribed_to(self, topic: str) -> bool:
        if self.protocol_type != CONSUMER:
            return False
        subscriptions = [
            subscribed_topics(metadata)
            for member in self.members
            for metadata in member.protocols.values()
        ]
        return any(topics is None or topic in topics for topics in subscriptions)

    def validate_commit(self, committer: Committer, now_s: float) -> None:
        member_id, instance_id, generation = committer[:3]
        empty = self.state is ClassicState.EMPTY
        if generation < 0 and empty:
            return
        if generation >= 0 and empty and self.generation == 0:
            raise IllegalGenerationError(f"the group has never had a generation {generation}")
        if generation < 0 and not member_id and instance_id is None:
            raise UnknownMemberError("only members can commit while the group has members")
        self._of_generation(member_id, instance_id, generation).touch(now_s)
        if self.state is ClassicState.COMPLETING:
            raise RebalanceInProgressError(REBALANCING)

    def validate_fetch(self, committer: Committer) -> None:
        """Allow every fetch: committed offsets are open to all clients."""

    # Joining.

    def _join(self, ticket: int, request: JoinRequest, now_s: float) -> None:
        limits = self._limits
        if not (
            limits.min_session_timeout_ms
            <= request.session_timeout_ms
            <= limits.max_session_timeout_ms
        ):
            raise SessionTimeoutError(
                f"session timeout {request.session_timeout_ms} ms: must be from"
                f" {limits.min_session_timeout_ms} to {limits.max_session_timeout_ms} ms"
            )
        self._check_room(request.member_id, now_s)
        self._check_protocols(request)
        if not request.member_id:
            self._join_as_new(ticket, request, now_s)
        elif request.member_id in self._pending:
            self._add(ticket, request, request.member_id, now_s)
        else:
            self._join_again(ticket, request, now_s)

    def _check_room(self, member_id: str, now_s: float) -> None:
        """Raise if the group is full. Of a group that is too large, the members that join last are
        removed."""
        member = self.members.get(member_id)
        if self.state is ClassicState.PREPARING:
            is_in = member is not None and member.joining is not None
            taken = self.members.joining_count
        else:
            is_in = member is not None
            taken = len(self.members)
        if is_in or taken < self._limits.max_size:
            return
        if member is not None:
            self._remove(member, now_s)
        self._pending.pop(member_id, None)
        raise GroupFullError(f"the group has {self._limits.max_size} members, which is the most")

    def _check_protocols(self, request: JoinRequest) -> None:
        if not len(self.members):
            fits = bool(request.protocol_type and request.protocols)
        else:
            common = common_protocols(self.members)
            fits = request.protocol_type == self.protocol_type and any(
                name in common for name in request.protocols
            )
        if not fits:
            raise InconsistentProtocolError(
                f"{request.protocol_type!r} with {list(request.protocols)} does not go together"
                f" with the group's other members ({self.protocol_type!r})"
            )

    def _join_as_new(self, ticket: int, request: JoinRequest, now_s: float) -> None:
        name = request.client_id if request.instance_id is None else request.instance_id
        member_id = f"{name}-{UUID(bytes=self._entropy(16), version=4)}"
        if request.instance_id is not None:
            known = self.members.static_id(request.instance_id)
            if known is not None:
                self._replace_static(ticket, request, self.members[known], member_id, now_s)
                return
        elif request.requires_known_id:
            if len(self._pending) >= self._limits.max_size:
                raise GroupFullError(f"{len(self._pending)} members are about to join")
            self._pending[member_id] = now_s + request.session_timeout_ms / 1000
            error = MemberIdRequiredError("join again with the id that you get here")
            self._answer(ticket, JoinAnswer(error=error, member_id=member_id))
            return
        self._add(ticket, request, member_id, now_s)

    def _add(self, ticket: int, request: JoinRequest, member_id: str, now_s: float) -> None:
        self._pending.pop(member_id, None)
        self.protocol_type = request.protocol_type
        self._more_came = True
        self.members.add(
            ClassicMember(
                member_id=member_id,
                instance_id=request.instance_id,
                client_id=request.client_id,
                client_host=request.client_host,
                session_timeout_ms=request.session_timeout_ms,
                rebalance_timeout_ms=request.rebalance_timeout_ms,
                protocols=request.protocols,
                deadline_s=now_s + NEW_MEMBER_TIMEOUT_S,
                joining=ticket,
            )
        )
        self._prepare_or_complete(now_s)

    def _join_again(self, ticket: int, request: JoinRequest, now_s: float) -> None:
        member = self.members.validated(request.member_id, request.instance_id)
        same = member.has_same_protocols(request.protocols)
        # The leader joins again with the same protocols when topics changed.
        settled = self.state is ClassicState.COMPLETING or (
            self.state is ClassicState.STABLE and self.members.leader != member.member_id
        )
        if same and settled:
            # The member may have missed the first answer. The generation is still valid.
            member.touch(now_s)
            self._answer(ticket, self._joined(member))
            return
        self._update(member, ticket, request)
        self._prepare_or_complete(now_s)

    def _update(self, member: ClassicMember, ticket: int, request: JoinRequest) -> None:
        self._fail_waiting([member], RebalanceInProgressError("the member has joined again"))
        member.client_id = request.client_id
        member.client_host = request.client_host
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.protocols = request.protocols
        member.joining = ticket
        self.members.measure(member)

    def _replace_static(
        self,
        ticket: int,
        request: JoinRequest,
        member: ClassicMember,
        member_id: str,
        now_s: float,
    ) -> None:
        """Give the place of a static member to its new process."""
        leader_before = self.members.leader
        self._fail_waiting(
            [member], FencedInstanceError(f"instance id {request.instance_id!r} has a newer member")
        )
        if member.member_id in self._unsynced:
            self._unsynced = self._unsynced - {member.member_id} | {member_id}
        self.members.rename(member, member_id)
        self._update(member, ticket, request)
        member.touch(now_s)
        if self.state is not ClassicState.STABLE:
            self._prepare_or_complete(now_s)
        elif elected_protocol(list(self.members)) != self.protocol_name:
            self._prepare(now_s)
        else:
            # The assignment stays as it is. A returning leader must not assign again, because the
            # other members would not ask for a new assignment. If its client is too old for
            # `skip_assignment`, the answer names the leader's former id, so that the client takes
            # another member for the leader.
            member.joining = None
            member.is_new = False
            leads = self.members.leader == member_id
            self._changed()
            skips = request.can_skip_assignment
            answer = self._joined(
                member,
                leader=self.members.leader if skips else leader_before,
                with_members=leads and skips,
                skip_assignment=leads and skips,
            )
            self._answer(ticket, answer)

    # Synchronising.

    def _sync(self, ticket: int, request: SyncRequest, now_s: float) -> None:
        member = self._of_generation(request.member_id, request.instance_id, request.generation)
        self._check_agreed(request)
        if self.state is ClassicState.PREPARING:
            raise RebalanceInProgressError(REBALANCING)
        self._unsynced.discard(member.member_id)
        if not self._unsynced:
            self._sync_deadline_s = inf
        member.touch(now_s)
        if self.state is ClassicState.STABLE:
            self._answer(ticket, self._synced(member))
            return
        self._fail_waiting([member], RebalanceInProgressError("the member has asked again"))
        member.syncing = ticket
        if member.member_id == self.members.leader:
            self._become_stable(request, now_s)

    def _check_agreed(self, request: SyncRequest) -> None:
        if request.protocol_type not in (None, self.protocol_type) or (
            request.protocol_name not in (None, self.protocol_name)
        ):
            raise InconsistentProtocolError(
                f"the group has agreed on {self.protocol_type!r} with {self.protocol_name!r}"
            )

    def _become_stable(self, request: SyncRequest, now_s: float) -> None:
        self.state = ClassicState.STABLE
        for member in self.members:
            member.assignment = request.assignments.get(member.member_id, b"")
            self.members.measure(member)
        self._changed()
        for member in self.members:
            if member.syncing is not None:
                self._answer(member.syncing, self._synced(member))
                member.syncing = None
                member.touch(now_s)

    # Leaving.

    def _leave(self, leaving: Leaving, now_s: float) -> StratalogError | None:
        try:
            if leaving.member_id in self._pending:
                self._forget_pending(leaving.member_id, now_s)
                return None
            member_id = leaving.member_id
            if not member_id and leaving.instance_id is not None:
                member_id = self.members.static_id(leaving.instance_id) or ""
            self._remove(self.members.validated(member_id, leaving.instance_id), now_s)
        except StratalogError as error:
            return error
        return None

    # Answering.

    def _of_generation(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> ClassicMember:
        member = self.members.validated(member_id, instance_id)
        if generation != self.generation:
            raise IllegalGenerationError(
                f"the group is at generation {self.generation}, not {generation}"
            )
        return member

    def _synced(self, member: ClassicMember) -> SyncAnswer:
        return SyncAnswer(
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )
