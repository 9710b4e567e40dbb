"""One step of one member towards its target: first give up, then, when others have, take.

What a member is told to give up stays held by it until its next report shows that it let go. A
partition that anybody else holds is never handed out. So no partition is ever with two members,
however slow, deaf or dead one of them is.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from stratalog.groups.consumer.model import NO_PARTITIONS, Member, MemberState, Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Where a member shall get to."""

    epoch: int
    partitions: Partitions


def is_settled(member: Member, goal: Goal) -> bool:
    return member.state is MemberState.STABLE and member.epoch == goal.epoch


def reconcile(
    member: Member, goal: Goal, *, owned: Partitions | None, taken: Collection[object]
) -> Member:
    """The member after a heartbeat that reports `owned`, or None for no change since the last.

    `taken` is what the other members hold.
    """
    if is_settled(member, goal):
        return member
    if member.state is not MemberState.UNREVOKED:
        return _next_step(member, goal, member.epoch, owned=owned, taken=taken)
    if _still_owns(member.revoking, owned):
        return member
    # The acknowledgement is worth an epoch of its own: what the member may have had under way
    # with the partitions it gave up, such as commits, is recognised by the old one.
    return _next_step(member, goal, member.epoch + 1, owned=owned, taken=taken)


def _next_step(
    member: Member,
    goal: Goal,
    epoch: int,
    *,
    owned: Partitions | None,
    taken: Collection[object],
) -> Member:
    keeping = member.assigned & goal.partitions
    revoking = member.assigned - goal.partitions
    if revoking and _still_owns(revoking, owned):
        return _moved(member, epoch, MemberState.UNREVOKED, keeping, revoking)
    available = frozenset(each for each in goal.partitions - keeping if each not in taken)
    assigned = keeping | available
    state = MemberState.STABLE if assigned == goal.partitions else MemberState.UNRELEASED
    return _moved(member, goal.epoch, state, assigned, NO_PARTITIONS)


def _still_owns(revoking: Partitions, owned: Partitions | None) -> bool:
    """A member that does not say what it owns may own what it had."""
    return owned is None or not owned.isdisjoint(revoking)


def _moved(
    member: Member, epoch: int, state: MemberState, assigned: Partitions, revoking: Partitions
) -> Member:
    previous_epoch = member.previous_epoch if epoch == member.epoch else member.epoch
    return replace(
        member,
        epoch=epoch,
        previous_epoch=previous_epoch,
        state=state,
        assigned=assigned,
        revoking=revoking,
    )
