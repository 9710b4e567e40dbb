"""The transitions of a group: a heartbeat, a leave, the removal of a member. Pure functions.

Each function returns the state that follows. The caller saves that state before it answers a
client.
"""

from dataclasses import dataclass, replace

from stratalog.groups.consumer.assignment import AssignedMember, AssignmentTask
from stratalog.groups.consumer.assignors import ASSIGNORS
from stratalog.groups.consumer.errors import FencedMemberEpochError, UnreleasedInstanceError
from stratalog.groups.consumer.heartbeat import NOT_CHANGED_MS, Heartbeat, HeartbeatAnswer
from stratalog.groups.consumer.model import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    NO_PARTITIONS,
    GroupState,
    Member,
    MemberState,
    Subscription,
)
from stratalog.groups.consumer.reconcile import Goal, is_settled, reconcile
from stratalog.groups.consumer.subscriptions import TopicsFound, resolve
from stratalog.groups.errors import FencedInstanceError, GroupFullError, UnknownMemberError


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """A group that knows the sender of a heartbeat and its new subscription."""

    before: Member
    state: GroupState
    member_id: str
    resubscribed: bool
    """True if the member is new, or if its subscription or assignor has changed."""


def admit(state: GroupState, beat: Heartbeat, *, max_members: int) -> Admitted:
    """Find or make the member that sends, and take over the fields of its heartbeat."""
    earlier = _sender(state, beat)
    if earlier is None and len(state.members) >= max_members:
        raise GroupFullError(f"group {beat.group_id!r} has {max_members} members: no room for more")
    before = _starting_over(earlier, beat) if beat.joins else earlier
    assert before is not None
    member = _updated(before, beat)
    members = {**state.members, beat.member_id: member}
    target = dict(state.target)
    if earlier is not None and earlier.member_id != beat.member_id:
        del members[earlier.member_id]
        target[beat.member_id] = target.pop(earlier.member_id, NO_PARTITIONS)
    return Admitted(
        before=before,
        state=replace(state, members=members, target=target),
        member_id=beat.member_id,
        resubscribed=earlier is None or _wants(member) != _wants(earlier),
    )


def advance(
    admitted: Admitted, beat: Heartbeat, found: TopicsFound | None
) -> tuple[GroupState, HeartbeatAnswer]:
    """Do the rest of a heartbeat: the group's epoch, the target, the member's step towards it.

    `found` has the topics of the group, or is None if they were not looked up again.
    """
    state = admitted.state
    if found is not None:
        state = refreshed(state, found)
    if admitted.resubscribed and state.group_epoch == admitted.state.group_epoch:
        state = replace(state, group_epoch=state.group_epoch + 1)
    if state.group_epoch > state.assignment_epoch:
        state = _retargeted(state)
    member = _reconciled(state, state.members[admitted.member_id], beat)
    if member is not state.members[member.member_id]:
        state = replace(state, members={**state.members, member.member_id: member})
    told_before = admitted.before.assigned
    assignment = member.assigned if beat.is_full or member.assigned != told_before else None
    answer = HeartbeatAnswer(member_id=member.member_id, epoch=member.epoch, assignment=assignment)
    return state, answer


def refreshed(state: GroupState, found: TopicsFound) -> GroupState:
    """Return the group after a lookup of its topics. It has a new epoch if they have changed."""
    members, shapes = resolve(state.members, found)
    if members == state.members and shapes == state.topics:
        return state
    return replace(state, group_epoch=state.group_epoch + 1, members=members, topics=shapes)


def leave(state: GroupState, beat: Heartbeat) -> tuple[GroupState, HeartbeatAnswer]:
    member = _sender(state, beat)
    assert member is not None
    answer = HeartbeatAnswer(member_id=member.member_id, epoch=beat.epoch, assignment=None)
    if beat.epoch != LEAVE_STATIC_EPOCH:
        return without(state, member.member_id), answer
    # The member is gone and reads nothing, so that the partitions that it was to give up are free.
    # The partitions that it has are kept for it.
    away = replace(
        member, epoch=LEAVE_STATIC_EPOCH, state=MemberState.STABLE, revoking=NO_PARTITIONS
    )
    return replace(state, members={**state.members, member.member_id: away}), answer


def without(state: GroupState, member_id: str) -> GroupState:
    """Return the group after a member has left or was removed. The member's partitions are free."""
    members = {key: member for key, member in state.members.items() if key != member_id}
    target = {key: partitions for key, partitions in state.target.items() if key != member_id}
    wanted = frozenset().union(*(member.topic_ids for member in members.values()))
    topics = {key: topic for key, topic in state.topics.items() if key in wanted}
    epoch = state.group_epoch + 1
    return replace(state, group_epoch=epoch, members=members, target=target, topics=topics)


def _sender(state: GroupState, beat: Heartbeat) -> Member | None:
    """Return the member that sends, or the static member that the sender replaces. None if the
    sender is a new member."""
    member = state.members.get(beat.member_id)
    if beat.instance_id is not None:
        member = _static_sender(state, beat) or (member if beat.joins else None)
    if member is None and not beat.joins:
        raise UnknownMemberError(f"group {beat.group_id!r} has no member {beat.member_id!r}")
    if member is not None and beat.epoch > JOIN_EPOCH:
        _check_epoch(member, beat)
    return member


def _static_sender(state: GroupState, beat: Heartbeat) -> Member | None:
    member = state.static_member(beat.instance_id) if beat.instance_id else None
    if member is None or member.member_id == beat.member_id:
        return member
    if not beat.joins:
        raise FencedInstanceError(
            f"instance {beat.instance_id!r} of group {beat.group_id!r} is now member "
            f"{member.member_id!r}, not {beat.member_id!r}"
        )
    if member.epoch != LEAVE_STATIC_EPOCH:
        raise UnreleasedInstanceError(
            f"instance {beat.instance_id!r} of group {beat.group_id!r} is still member "
            f"{member.member_id!r}: wait until that one has left or its session has ended"
        )
    return member


def _check_epoch(member: Member, beat: Heartbeat) -> None:
    """Raise unless the member is at its epoch. The epoch before is accepted, too, because the
    answer with the newer epoch may have been lost."""
    lost_answer = (
        beat.epoch == member.previous_epoch
        and beat.owned is not None
        and beat.owned <= member.assigned
    )
    if beat.epoch != member.epoch and not lost_answer:
        raise FencedMemberEpochError(
            f"member {member.member_id!r} of group {beat.group_id!r} is at epoch {member.epoch}, "
            f"not {beat.epoch}: it must give up its partitions and join again"
        )


def _starting_over(earlier: Member | None, beat: Heartbeat) -> Member:
    """Return the member at its join. It owns nothing, whatever it had before. A static member gets
    its partitions back because no other member got them, not because it still had them."""
    if earlier is None:
        return Member(member_id=beat.member_id)
    return replace(
        earlier,
        member_id=beat.member_id,
        epoch=JOIN_EPOCH,
        previous_epoch=JOIN_EPOCH,
        state=MemberState.STABLE,
        assigned=NO_PARTITIONS,
        revoking=NO_PARTITIONS,
    )


def _updated(member: Member, beat: Heartbeat) -> Member:
    """Return the member with the fields of its heartbeat."""
    names, pattern = member.subscription.names, member.subscription.pattern
    if beat.topic_names is not None:
        names = beat.topic_names
    if beat.topic_pattern is not None:
        pattern = beat.topic_pattern or None
    timed = beat.rebalance_timeout_ms != NOT_CHANGED_MS
    return replace(
        member,
        instance_id=beat.instance_id or member.instance_id,
        rack_id=beat.rack_id or member.rack_id,
        client_id=beat.client_id,
        client_host=beat.client_host,
        rebalance_timeout_ms=beat.rebalance_timeout_ms if timed else member.rebalance_timeout_ms,
        subscription=Subscription(names=names, pattern=pattern),
        assignor=beat.assignor or member.assignor,
    )


def _wants(member: Member) -> tuple[Subscription, str | None]:
    """Return the properties of a member that the target depends on."""
    return member.subscription, member.assignor


def _retargeted(state: GroupState) -> GroupState:
    task = AssignmentTask(
        members={
            key: AssignedMember(
                topic_ids=member.topic_ids,
                current=state.target.get(key, NO_PARTITIONS),
                instance_id=member.instance_id,
            )
            for key, member in state.members.items()
        },
        partition_counts={key: shape.partition_count for key, shape in state.topics.items()},
    )
    target = ASSIGNORS[state.assignor](task)
    return replace(state, assignment_epoch=state.group_epoch, target=target)


def _reconciled(state: GroupState, member: Member, beat: Heartbeat) -> Member:
    goal = Goal(
        epoch=state.assignment_epoch,
        partitions=state.target.get(member.member_id, NO_PARTITIONS),
    )
    if is_settled(member, goal):
        return member
    taken = set(state.held_by_others(member.member_id))
    return reconcile(member, goal, owned=beat.owned, taken=taken)
