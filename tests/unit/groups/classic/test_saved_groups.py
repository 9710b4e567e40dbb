"""Classic groups that are saved, and continued by another broker."""

import pytest
from tests.unit.groups.classic.rig import LIMITS, REBALANCE_MS, SESSION_MS, Rig

from stratalog.groups.classic.group import ClassicGroup
from stratalog.groups.errors import (
    GroupStateDamagedError,
    RebalanceInProgressError,
)


def resumed(rig: Rig) -> Rig:
    other = Rig(rig.limits)
    other.group = ClassicGroup.resumed(rig.group.to_state(), rig.limits, other.now_s)
    return other


def test_another_broker_goes_on_with_the_same_generation(rig: Rig) -> None:
    members = rig.stable(3, statics=1)
    other = resumed(rig)
    assert other.group.describe() == rig.group.describe()
    for member in members:
        instance = "i0" if member == members[0] else None
        other.beat(member, rig.group.generation, instance)
        ticket = other.sync(member, rig.group.generation, instance=instance)
        assert other.assigned(ticket) == member.encode()
    other.advance(SESSION_MS / 1000 - 0.001)
    assert other.group.state_name == "Stable"
    other.advance(0.001)
    assert other.group.is_empty


def test_another_broker_finishes_a_rebalance_that_had_begun(rig: Rig) -> None:
    leader, follower = rig.stable(2)
    ticket = rig.join(leader)
    rig.join(follower)
    generation = rig.joined(ticket).generation
    other = resumed(rig)
    assert other.group.state_name == "CompletingRebalance"
    assert other.joined(other.join(leader)).generation == generation
    other.sync(leader, generation, {follower: b"F"})
    assert other.assigned(other.sync(follower, generation)) == b"F"


def test_a_group_saved_in_the_midst_of_joining_lets_members_join(rig: Rig) -> None:
    leader, follower = rig.stable(2)
    rig.join()
    other = resumed(rig)
    with pytest.raises(RebalanceInProgressError):
        other.beat(leader, rig.group.generation)
    ticket = other.join(leader)
    other.join(follower)
    other.advance(REBALANCE_MS / 1000)
    assert other.joined(ticket).generation > rig.group.generation


def test_an_empty_group_keeps_its_generation_elsewhere(rig: Rig) -> None:
    rig.leave(*rig.stable(1))
    other = resumed(rig)
    assert other.group.is_empty
    assert other.group.generation == rig.group.generation


@pytest.mark.parametrize("state", [b"{", b"{}", b"[]", b'{"state": "Odd"}', b"[" * 100_000])
def test_a_damaged_state_is_recognised(state: bytes) -> None:
    with pytest.raises(GroupStateDamagedError):
        ClassicGroup.resumed(state, LIMITS, 0)


def test_every_generation_and_every_assignment_has_to_be_saved(rig: Rig) -> None:
    revisions = [rig.group.revision]

    def grew() -> bool:
        revisions.append(rig.group.revision)
        return revisions[-1] > revisions[-2]

    member = rig.joined(rig.join()).member_id
    assert grew()
    rig.sync(member, 1, {member: b"all"})
    assert grew()
    rig.beat(member, 1)
    rig.commit(member, 1)
    rig.sync(member, 1)
    assert not grew()
    rig.leave(member)
    assert grew()


def test_what_could_not_be_saved_is_done_again_under_a_higher_generation(rig: Rig) -> None:
    members = rig.stable(2)
    generation = rig.group.generation
    rig.group.unsaved(RuntimeError("no database"), rig.now_s)
    with pytest.raises(RebalanceInProgressError):
        rig.beat(members[0], generation)
    tickets = [rig.join(member) for member in members]
    assert rig.joined(tickets[0]).generation == generation + 1
    assert rig.assigned(rig.sync(members[0], generation + 1, {members[0]: b"x"})) == b"x"
    assert rig.group.describe().members[1].assignment == b""
