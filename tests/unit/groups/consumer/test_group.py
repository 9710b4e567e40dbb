"""A consumer group as its coordinator uses it, apart from heartbeats."""

import pytest
from tests.unit.groups.consumer.beats import LIMITS, ORDERS, REBALANCE_MS, Bench, parts

from stratalog.errors import StratalogError
from stratalog.groups.consumer.codec import decode_state
from stratalog.groups.consumer.errors import StaleMemberEpochError
from stratalog.groups.consumer.group import ConsumerGroup
from stratalog.groups.consumer.model import LEAVE_STATIC_EPOCH
from stratalog.groups.errors import GroupStateDamagedError, UnknownMemberError
from stratalog.groups.group import Committer, Group


def test_a_group_that_is_loaded_goes_on_where_it_was_saved() -> None:
    bench = Bench()
    bench.join("a", instance_id="i")
    bench.join("b", ORDERS.name, "later", pattern="^u", assignor="range")
    bench.send("a", 1)
    bench.send("a", LEAVE_STATIC_EPOCH, instance_id="i")
    loaded = ConsumerGroup.load("g", LIMITS, data=bench.group.to_state(), now_s=bench.now_s)
    assert loaded.state == bench.group.state
    as_group: Group = loaded
    assert as_group.protocol_type == "consumer"


def test_members_of_a_loaded_group_get_their_full_time_again() -> None:
    bench = Bench()
    bench.join("a")
    bench.join("b")
    bench.send("a", 1)
    bench.now_s += 1000
    bench.group = ConsumerGroup.load("g", LIMITS, data=bench.group.to_state(), now_s=bench.now_s)
    bench.pass_time(REBALANCE_MS / 1000 - 0.1)
    assert bench.group.state.members.keys() == {"a", "b"}
    bench.pass_time(0.1)
    assert bench.group.state.members.keys() == {"b"}
    bench.pass_time((LIMITS.session_ms - REBALANCE_MS) / 1000)
    assert bench.group.is_empty


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"group_epoch": 1}', b"\xff", b"[" * 100_000]
)
def test_a_state_that_cannot_be_read_is_damage(data: bytes) -> None:
    with pytest.raises(GroupStateDamagedError):
        decode_state(data)


def test_what_could_not_be_saved_did_not_happen() -> None:
    bench = Bench()
    bench.join("a")
    bench.group.to_state()
    saved = bench.group.state
    bench.join("b")
    bench.join("c")
    revision = bench.group.revision
    bench.group.to_state()
    bench.group.unsaved(StratalogError("no"), bench.now_s)
    assert bench.group.state == saved
    assert bench.group.revision > revision
    assert bench.group.setbacks == 1
    bench.join("b")
    bench.group.to_state()
    bench.group.unsaved(StratalogError("no"), bench.now_s)
    assert bench.group.state == saved


def test_a_member_that_was_to_go_and_did_not_still_has_a_deadline() -> None:
    bench = Bench()
    bench.join("a")
    bench.group.to_state()
    bench.pass_time(LIMITS.session_ms / 1000)
    bench.group.to_state()
    bench.group.unsaved(StratalogError("no"), bench.now_s)
    assert bench.group.deadline_s == bench.now_s + LIMITS.session_ms / 1000


def test_a_group_that_follows_another_counts_on_from_its_epoch() -> None:
    bench = Bench()
    bench.join("a")
    bench.join("b")
    following = ConsumerGroup.succeeding("g", LIMITS, earlier=bench.group, now_s=bench.now_s)
    assert following.epoch == 2
    assert following.is_empty
    assert following.revision > bench.group.revision
    bench.group = following
    assert bench.join("c").epoch == 3


def test_members_commit_and_fetch_at_their_epoch_alone() -> None:
    bench = Bench()
    bench.join("a")
    good = Committer("a", None, 1)
    bench.group.validate_commit(good, bench.now_s)
    bench.group.validate_fetch(good)
    for epoch in (0, 2, -1):
        wrong = Committer("a", None, epoch)
        with pytest.raises(StaleMemberEpochError):
            bench.group.validate_commit(wrong, bench.now_s)
        with pytest.raises(StaleMemberEpochError):
            bench.group.validate_fetch(wrong)
    stranger = Committer("x", None, 1)
    with pytest.raises(UnknownMemberError):
        bench.group.validate_commit(stranger, bench.now_s)
    with pytest.raises(UnknownMemberError):
        bench.group.validate_fetch(stranger)


def test_who_is_no_member_commits_to_an_empty_group_only_and_fetches_always() -> None:
    bench = Bench()
    nobody = Committer("", None, -1)
    bench.group.validate_commit(nobody, bench.now_s)
    bench.join("a")
    bench.group.validate_fetch(nobody)
    with pytest.raises(UnknownMemberError):
        bench.group.validate_commit(nobody, bench.now_s)


def test_topics_that_members_subscribe_to_are_known() -> None:
    bench = Bench()
    bench.join("a")
    assert bench.group.is_subscribed_to("orders")
    assert not bench.group.is_subscribed_to("users")
    assert bench.group.state.members["a"].assigned == parts(ORDERS, 0, 1, 2, 3)


def test_another_session_timeout_counts_from_the_next_heartbeat() -> None:
    bench = Bench()
    bench.join("a")
    bench.group.set_session_ms(60_000)
    assert bench.group.deadline_s == bench.now_s + LIMITS.session_ms / 1000
    bench.send("a", 1)
    assert bench.group.deadline_s == bench.now_s + 60
