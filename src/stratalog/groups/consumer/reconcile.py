"""Reconciliation: one step of one member towards its target.

A member first gives partitions up, and then takes partitions that other members have given up. A
partition that a member is to give up stays with it until its next report shows that it let go. A
partition that another member holds is never handed out. So no partition is ever with two members,
however slow, unreachable or dead one of them is.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from stratalog.groups.consumer.model import NO_PARTITIONS, Member, MemberState, Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The epoch and the partitions that a member is to reach."""

    epoch: int
    partitions: Partitions


def is_settled(member: Member, goal: Goal) -> bool:
    return member.state is MemberState.STABLE and member.epoch == goal.epoch


def reconcile(
    member: Member, goal: Goal, *, owned: Partitions | None, taken: Collection[object]
) -> Member:
    """Return the member after a heartbeat. `owned` are the partitions that the heartbeat reports,
    or None for no change since the last report; `taken` are the partitions that other members hold.
    """
    if is_settled(member, goal):
        return member
    if member.state is not MemberState.UNREVOKED:
        return _next_step(member, goal, member.epoch, owned=owned, taken=taken)
    if _still_owns(member.revoking, owned):
        return member
    # The member gets a new epoch for its acknowledgement. Requests that it sent before, such as
    # commits for the partitions that it gave up, are recognised by their old epoch.
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
    """Return whether the member may still own one of the partitions. A member that does not report
    its partitions may own all that it had."""
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
