"""Static members of classic groups: processes that come back under the same instance id."""

import pytest
from tests.unit.groups.classic.rig import REBALANCE_MS, SESSION_MS, Rig

from stratalog.groups.errors import (
    FencedInstanceError,
    RebalanceInProgressError,
    UnknownMemberError,
)


def test_a_static_member_that_comes_back_causes_no_rebalance(rig: Rig) -> None:
    leader, old = rig.stable(2, statics=2)
    generation = rig.group.generation
    revision = rig.group.revision
    answer = rig.joined(rig.join(instance="i1"))
    assert answer.member_id != old
    assert (answer.generation, answer.leader, answer.skip_assignment) == (
        generation,
        leader,
        False,
    )
    assert rig.group.revision > revision, "the new member id has to be saved"
    ticket = rig.sync(answer.member_id, generation, instance="i1")
    assert rig.assigned(ticket) == old.encode()
    with pytest.raises(FencedInstanceError):
        rig.beat(old, generation, "i1")
    rig.beat(answer.member_id, generation, "i1")


def test_a_static_leader_that_comes_back_is_told_not_to_assign(rig: Rig) -> None:
    old, _ = rig.stable(2, statics=1)
    answer = rig.joined(rig.join(instance="i0", skips=True))
    assert answer.leader == answer.member_id
    assert answer.skip_assignment
    assert len(answer.members) == 2
    elder = rig.joined(rig.join(instance="i0", skips=False))
    assert elder.leader == answer.member_id != elder.member_id
    assert elder.members == ()
    assert not elder.skip_assignment
    assert old not in rig.group.members


def test_a_static_member_that_prefers_another_protocol_causes_a_rebalance(rig: Rig) -> None:
    rig.join(instance="i0", protocols={"a": b"", "b": b""})
    rig.assign([each.member_id for each in rig.group.members])
    answer = rig.joined(rig.join(instance="i0", protocols={"b": b"", "a": b""}))
    assert (answer.generation, answer.protocol_name) == (2, "b")


def test_a_static_member_that_comes_back_too_late_causes_a_rebalance(rig: Rig) -> None:
    leader, _ = rig.stable(2, statics=2)
    for _ in range(SESSION_MS // 1000):
        rig.beat(leader, rig.group.generation, "i0")
        rig.advance(1)
    assert rig.group.state_name == "PreparingRebalance"


def test_the_process_before_is_fenced_while_it_waits(rig: Rig) -> None:
    leader, old = rig.stable(2, statics=2)
    waiting = rig.join(old, instance="i1", protocols={"range": b"new"})
    newer = rig.join(instance="i1")
    assert rig.error(waiting) is FencedInstanceError
    rig.join(leader, instance="i0")
    rig.joined(newer)


def test_a_static_member_that_comes_back_while_the_leader_assigns_starts_over(rig: Rig) -> None:
    leader, old = rig.stable(2, statics=2)
    rig.join(leader, instance="i0")
    rig.join(old, instance="i1")
    assert rig.group.state_name == "CompletingRebalance"
    assert rig.waits(rig.join(instance="i1"))
    assert rig.group.state_name == "PreparingRebalance"


def test_a_static_member_stays_through_a_rebalance_that_it_missed(rig: Rig) -> None:
    static, leader = rig.stable(2, statics=1)
    ticket = rig.join(leader, protocols={"range": b"new"})
    for _ in range(REBALANCE_MS // 1000):
        with pytest.raises(RebalanceInProgressError):
            rig.beat(static, rig.group.generation, "i0")
        rig.advance(1)
    answer = rig.joined(ticket)
    assert answer.leader == leader
    assert {each.member_id for each in answer.members} == {leader, static}


def test_an_administrator_removes_static_members_by_their_names(rig: Rig) -> None:
    rig.stable(2, statics=2)
    assert rig.leave("", instance="i1") == [None]
    assert rig.leave("", instance="i7") == [UnknownMemberError]
    assert rig.leave("wrong", instance="i0") == [FencedInstanceError]
    assert rig.leave("") == [UnknownMemberError]
    assert len(rig.group.members) == 1
