"""The answers to members, heartbeat by heartbeat."""

from dataclasses import replace

import pytest
from tests.unit.groups.consumer.beats import (
    LIMITS,
    ORDERS,
    REBALANCE_MS,
    USERS,
    Bench,
    parts,
    shape,
)

from stratalog.groups.consumer.errors import FencedMemberEpochError, UnreleasedInstanceError
from stratalog.groups.consumer.model import LEAVE_EPOCH, LEAVE_STATIC_EPOCH, MemberState
from stratalog.groups.errors import FencedInstanceError, GroupFullError, UnknownMemberError


def test_the_first_member_gets_everything_at_once() -> None:
    bench = Bench()
    answer = bench.join("a")
    assert answer.epoch == 1
    assert answer.assignment == parts(ORDERS, 0, 1, 2, 3)
    assert bench.group.state_name == "Stable"


def test_a_heartbeat_with_no_news_is_answered_without_an_assignment_and_changes_nothing() -> None:
    bench = Bench()
    bench.join("a")
    revision = bench.group.revision
    answer = bench.send("a", 1)
    assert (answer.epoch, answer.assignment) == (1, None)
    assert bench.group.revision == revision


def test_a_full_heartbeat_is_answered_with_the_assignment_although_it_is_the_same() -> None:
    bench = Bench()
    owned = bench.join("a").assignment
    names = frozenset({ORDERS.name})
    answer = bench.send("a", 1, rebalance_timeout_ms=9, topic_names=names, owned=owned)
    assert answer.assignment == owned


def test_a_partition_is_handed_on_only_after_its_owner_has_let_go() -> None:
    bench = Bench()
    bench.join("a")
    second = bench.join("b")
    assert (second.epoch, second.assignment) == (2, frozenset())
    assert bench.group.state_name == "Reconciling"

    told = bench.send("a", 1)
    assert told.epoch == 1
    assert told.assignment == parts(ORDERS, 0, 1)
    assert bench.group.state.members["a"].state is MemberState.UNREVOKED
    assert bench.send("b", 2).assignment is None

    still = bench.send("a", 1, owned=parts(ORDERS, 0, 1, 2))
    assert (still.epoch, still.assignment) == (1, None)
    assert bench.send("b", 2).assignment is None

    done = bench.send("a", 1, owned=parts(ORDERS, 0, 1))
    assert (done.epoch, done.assignment) == (2, None)
    assert bench.send("b", 2).assignment == parts(ORDERS, 2, 3)
    assert bench.group.state_name == "Stable"


def test_what_a_member_that_leaves_had_goes_to_the_others() -> None:
    bench = Bench()
    bench.join("a")
    bench.join("b")
    answer = bench.send("a", LEAVE_EPOCH)
    assert (answer.epoch, answer.assignment) == (LEAVE_EPOCH, None)
    assert bench.group.state_name == "Assigning"
    assert bench.send("b", 2).assignment == parts(ORDERS, 0, 1, 2, 3)
    bench.send("b", LEAVE_EPOCH)
    assert bench.group.is_empty
    assert bench.group.state_name == "Empty"


def test_a_silent_member_is_thrown_out_when_its_session_ends() -> None:
    bench = Bench()
    bench.join("a")
    bench.pass_time(LIMITS.session_ms / 1000 - 0.1)
    assert "a" in bench.group.state.members
    assert bench.group.deadline_s == pytest.approx(bench.now_s + 0.1)
    bench.pass_time(0.1)
    assert bench.group.is_empty
    with pytest.raises(UnknownMemberError):
        bench.send("a", 1)


def test_a_member_that_does_not_let_go_in_time_is_thrown_out_though_it_is_not_silent() -> None:
    bench = Bench()
    bench.join("a")
    bench.join("b")
    bench.send("a", 1)
    bench.pass_time(REBALANCE_MS / 1000 - 0.1)
    bench.send("a", 1)
    bench.send("b", 2)
    bench.pass_time(0.1)
    assert list(bench.group.state.members) == ["b"]
    assert bench.send("b", 2).assignment == parts(ORDERS, 0, 1, 2, 3)


def test_a_member_that_let_go_is_not_held_to_the_old_deadline() -> None:
    bench = Bench()
    bench.join("a")
    bench.join("b")
    bench.send("a", 1)
    bench.send("a", 1, owned=parts(ORDERS, 0, 1))
    bench.pass_time(REBALANCE_MS / 1000)
    assert bench.group.state.members.keys() == {"a", "b"}


def test_an_epoch_that_is_ahead_is_fenced() -> None:
    bench = Bench()
    bench.join("a")
    with pytest.raises(FencedMemberEpochError):
        bench.send("a", 2)


def test_the_last_epoch_but_one_is_good_if_the_member_owns_no_more_than_it_should() -> None:
    bench = Bench()
    bench.join("a")
    bench.topics = (replace(ORDERS, partition_count=5),)
    bench.now_s += 1
    assert bench.send("a", 1).epoch == 2
    answer = bench.send("a", 1, owned=parts(ORDERS, 0, 1, 2, 3))
    assert answer.epoch == 2
    with pytest.raises(FencedMemberEpochError):
        bench.send("a", 1)
    with pytest.raises(FencedMemberEpochError):
        bench.send("a", 1, owned=parts(ORDERS, 0, 9))


def test_a_member_that_joins_again_under_its_id_starts_over() -> None:
    bench = Bench()
    bench.join("a")
    bench.join("b")
    bench.send("a", 1)
    again = bench.join("a")
    assert again.assignment == parts(ORDERS, 0, 1)
    assert bench.send("b", 2).assignment == parts(ORDERS, 2, 3)


def test_a_group_takes_no_more_members_than_it_may_have() -> None:
    bench = Bench()
    for member_id in "abc":
        bench.join(member_id)
    with pytest.raises(GroupFullError):
        bench.join("d")
    bench.join("c")
    bench.send("c", LEAVE_EPOCH)
    bench.join("d")


def test_a_static_member_that_comes_back_finds_its_partitions() -> None:
    bench = Bench()
    bench.join("a", instance_id="i")
    bench.join("b")
    bench.send("a", 1, owned=parts(ORDERS, 0, 1))
    bench.send("a", LEAVE_STATIC_EPOCH, instance_id="i")
    epoch = bench.group.epoch
    answer = bench.join("a2", instance_id="i")
    assert answer.assignment == parts(ORDERS, 0, 1)
    assert bench.group.epoch == epoch
    assert bench.group.state.members.keys() == {"a2", "b"}


def test_the_place_of_a_static_member_is_kept_for_one_session() -> None:
    bench = Bench()
    bench.join("a", instance_id="i")
    bench.send("a", LEAVE_STATIC_EPOCH, instance_id="i")
    bench.join("b")
    bench.pass_time(LIMITS.session_ms / 1000 - 1)
    assert bench.send("b", 2).assignment is None
    bench.pass_time(1)
    assert bench.send("b", 2).assignment == parts(ORDERS, 0, 1, 2, 3)


def test_a_static_member_that_left_is_not_held_to_letting_go() -> None:
    bench = Bench()
    bench.join("a", instance_id="i")
    bench.join("b")
    bench.send("a", 1)
    bench.send("a", LEAVE_STATIC_EPOCH, instance_id="i")
    assert bench.send("b", 2).assignment == parts(ORDERS, 2, 3)
    bench.pass_time(REBALANCE_MS / 1000)
    assert "a" in bench.group.state.members


def test_an_instance_id_that_is_in_use_is_not_given_away() -> None:
    bench = Bench()
    bench.join("a", instance_id="i")
    with pytest.raises(UnreleasedInstanceError):
        bench.join("b", instance_id="i")
    bench.send("a", LEAVE_STATIC_EPOCH, instance_id="i")
    bench.join("b", instance_id="i")
    with pytest.raises(FencedInstanceError):
        bench.send("a", 1, instance_id="i")
    with pytest.raises(UnknownMemberError):
        bench.send("a", 1)


def test_an_instance_that_nobody_is_cannot_go_on() -> None:
    bench = Bench()
    bench.join("a")
    with pytest.raises(UnknownMemberError):
        bench.send("a", 1, instance_id="i")


def test_a_topic_that_grows_or_goes_makes_a_new_target_when_somebody_looks() -> None:
    bench = Bench()
    bench.join("a", ORDERS.name, USERS.name)
    bench.topics = (replace(ORDERS, partition_count=5),)
    assert bench.send("a", 1).assignment is None
    bench.now_s += LIMITS.look_ms / 1000
    kept = parts(ORDERS, 0, 1, 2, 3)
    assert bench.send("a", 1).assignment == kept
    answer = bench.send("a", 1, owned=kept)
    assert (answer.epoch, answer.assignment) == (2, kept | parts(ORDERS, 4))


def test_a_topic_that_is_made_anew_under_its_name_is_another_one() -> None:
    bench = Bench(USERS)
    bench.join("a", USERS.name)
    anew = replace(USERS, topic_id=shape("other", 2).topic_id)
    bench.topics = (anew,)
    bench.now_s += LIMITS.look_ms / 1000
    assert bench.send("a", 1).assignment == frozenset()
    assert bench.send("a", 1, owned=frozenset()).assignment == parts(anew, 0, 1)


def test_a_topic_that_appears_is_assigned_to_those_whose_pattern_it_matches() -> None:
    bench = Bench(ORDERS)
    assert bench.join("a", pattern="^u.*").assignment == frozenset()
    bench.topics = (ORDERS, USERS)
    bench.now_s += LIMITS.look_ms / 1000
    assert bench.send("a", 1).assignment == parts(USERS, 0, 1)


def test_a_subscription_can_be_exchanged() -> None:
    bench = Bench()
    bench.join("a", pattern="o.*")
    answer = bench.send("a", 1, topic_names=frozenset({USERS.name}), topic_pattern="")
    assert answer.assignment == frozenset()
    assert bench.send("a", 1, owned=frozenset()).assignment == parts(USERS, 0, 1)


def test_the_assignor_that_most_members_want_is_used() -> None:
    bench = Bench(shape("one", 3), shape("two", 3))
    for member_id, assignor in (("a", "range"), ("b", "range"), ("c", "uniform")):
        bench.join(member_id, "one", "two", assignor=assignor)
    assert bench.group.state.assignor == "range"
    one, two = bench.topics
    assert bench.group.state.target["b"] == parts(one, 1) | parts(two, 1)
    bench.send("a", LEAVE_EPOCH)
    bench.send("b", LEAVE_EPOCH)
    assert bench.group.state.assignor == "uniform"


def test_a_member_that_asks_for_another_assignor_makes_a_new_target() -> None:
    bench = Bench()
    bench.join("a")
    bench.send("a", 1, assignor="range")
    assert bench.group.epoch == 2
