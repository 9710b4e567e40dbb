"""The classic group protocol, step by step, as Kafka's coordinator does it."""

from dataclasses import replace

import pytest
from tests.unit.groups.classic.rig import LIMITS, REBALANCE_MS, SESSION_MS, Rig

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

# Joining.


def test_the_first_member_leads_and_sees_everybody(rig: Rig) -> None:
    answer = rig.joined(rig.join(protocols={"range": b"r", "sticky": b"s"}))
    assert answer.leader == answer.member_id
    assert answer.member_id.startswith("client-")
    assert (answer.generation, answer.protocol_name) == (1, "range")
    assert [(each.member_id, each.metadata) for each in answer.members] == [
        (answer.member_id, b"r")
    ]


def test_somebody_new_is_first_given_an_id(rig: Rig) -> None:
    first = rig.join(known_id=True)
    assert rig.error(first) is MemberIdRequiredError
    assert not rig.group.is_empty
    assert rig.group.state_name == "Empty"
    member_id = rig.answers[first].member_id
    assert rig.joined(rig.join(member_id, known_id=True)).member_id == member_id


@pytest.mark.parametrize(("waited_ms", "error"), [(-1, None), (0, UnknownMemberError)])
def test_an_id_that_is_not_used_lapses_with_the_session(
    rig: Rig, waited_ms: int, error: type[Exception] | None
) -> None:
    member_id = rig.answers[rig.join(known_id=True)].member_id
    rig.advance((SESSION_MS + waited_ms) / 1000)
    assert rig.error(rig.join(member_id, known_id=True)) is error


def test_a_rebalance_waits_for_those_who_were_given_an_id(rig: Rig) -> None:
    [leader] = rig.stable(1)
    pending = rig.answers[rig.join(known_id=True)].member_id
    again = rig.join(leader)
    assert rig.waits(again)
    assert rig.leave(pending) == [None]
    assert rig.joined(again).generation == 2


def test_the_second_waits_until_the_first_has_joined_again(rig: Rig) -> None:
    [leader] = rig.stable(1)
    second = rig.join()
    assert rig.waits(second)
    with pytest.raises(RebalanceInProgressError):
        rig.beat(leader, 1)
    first = rig.joined(rig.join(leader))
    assert (first.leader, first.generation, len(first.members)) == (leader, 2, 2)
    answer = rig.joined(second)
    assert (answer.leader, answer.generation, answer.members) == (leader, 2, ())


def test_a_member_that_does_not_join_again_in_time_is_out(rig: Rig) -> None:
    leader, other = rig.stable(2)
    ticket = rig.join(other, protocols={"range": b"changed"})
    for _ in range(REBALANCE_MS // 1000 - 1):
        rig.advance(1)
        with pytest.raises(RebalanceInProgressError):
            rig.beat(leader, rig.group.generation)
    assert rig.waits(ticket)
    rig.advance(1)
    answer = rig.joined(ticket)
    assert answer.leader == other
    assert [each.member_id for each in answer.members] == [other]
    with pytest.raises(UnknownMemberError):
        rig.beat(leader, answer.generation)


def test_the_first_members_wait_for_more() -> None:
    rig = Rig(replace(LIMITS, initial_rebalance_delay_ms=3000))
    first = rig.join()
    rig.advance(2)
    second = rig.join()
    rig.advance(1)
    assert rig.waits(first)
    rig.advance(2.9)
    assert rig.waits(first)
    rig.advance(0.1)
    assert rig.joined(first).generation == rig.joined(second).generation == 1


def test_the_first_members_do_not_wait_longer_than_a_rebalance_may_take() -> None:
    rig = Rig(replace(LIMITS, initial_rebalance_delay_ms=3000))
    tickets = [rig.join(rebalance_ms=7000)]
    for _ in range(6):
        rig.advance(1)
        tickets.append(rig.join(rebalance_ms=7000))
    assert all(map(rig.waits, tickets))
    rig.advance(1)
    assert {rig.joined(each).generation for each in tickets} == {1}


@pytest.mark.parametrize("session_ms", [6_000, 60_000])
def test_session_timeouts_on_the_bounds_are_fine(rig: Rig, session_ms: int) -> None:
    rig.joined(rig.join(session_ms=session_ms))


@pytest.mark.parametrize("session_ms", [5_999, 60_001])
def test_session_timeouts_out_of_bounds_are_refused(rig: Rig, session_ms: int) -> None:
    assert rig.error(rig.join(session_ms=session_ms)) is SessionTimeoutError


def test_the_protocol_that_most_members_prefer_wins() -> None:
    rig = Rig(replace(LIMITS, initial_rebalance_delay_ms=1))
    first = rig.join(protocols={"a": b"", "b": b""})
    rig.join(protocols={"b": b"", "a": b"", "c": b""})
    rig.join(protocols={"c": b"", "b": b"", "a": b""})
    rig.advance(1)
    assert rig.joined(first).protocol_name == "b"


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("consumer", {"other": b""}), ("connect", {"range": b""}), ("consumer", {})],
)
def test_a_member_without_a_common_protocol_is_refused(
    rig: Rig, protocol_type: str, protocols: dict[str, bytes]
) -> None:
    rig.stable(1)
    ticket = rig.join(protocol_type=protocol_type, protocols=protocols)
    assert rig.error(ticket) is InconsistentProtocolError
    assert rig.group.state_name == "Stable"


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", {"range": b""}), ("consumer", {})])
def test_the_first_member_needs_a_protocol(
    rig: Rig, protocol_type: str, protocols: dict[str, bytes]
) -> None:
    ticket = rig.join(protocol_type=protocol_type, protocols=protocols)
    assert rig.error(ticket) is InconsistentProtocolError
    assert rig.group.is_empty


def test_a_full_group_takes_nobody_else() -> None:
    rig = Rig(replace(LIMITS, max_size=2))
    leader, follower = rig.stable(2)
    refused = rig.join()
    assert rig.error(refused) is GroupFullError
    assert rig.answers[refused].member_id == ""
    first = rig.join(leader)
    assert rig.waits(rig.join()), "there is room while the follower has not joined again"
    assert rig.error(rig.join(follower)) is GroupFullError
    assert len(rig.joined(first).members) == 2
    assert follower not in rig.group.members


def test_a_follower_that_joins_again_unchanged_is_told_the_same(rig: Rig) -> None:
    leader, follower = rig.stable(2)
    answer = rig.joined(rig.join(follower))
    assert (answer.generation, answer.leader) == (rig.group.generation, leader)
    assert rig.group.state_name == "Stable"


def test_the_leader_can_ask_for_a_rebalance(rig: Rig) -> None:
    leader, follower = rig.stable(2)
    ticket = rig.join(leader)
    assert rig.waits(ticket)
    rig.join(follower)
    assert rig.joined(ticket).generation == 3


def test_who_missed_the_answer_can_ask_again_before_the_leader_has_assigned(rig: Rig) -> None:
    first = rig.joined(rig.join())
    again = rig.joined(rig.join(first.member_id))
    assert again == first


def test_of_two_requests_of_one_member_only_the_newer_is_served(rig: Rig) -> None:
    leader, follower = rig.stable(2)
    older = rig.join(leader)
    newer = rig.join(leader)
    assert rig.error(older) is RebalanceInProgressError
    rig.join(follower)
    rig.joined(newer)


@pytest.mark.parametrize("state", ["Empty", "Stable"])
def test_an_unknown_member_cannot_join_again(rig: Rig, state: str) -> None:
    if state == "Stable":
        rig.stable(1)
    assert rig.error(rig.join("nobody")) is UnknownMemberError


# Synchronising.


def test_everybody_gets_its_own_assignment_when_the_leader_has_assigned(rig: Rig) -> None:
    leader, follower = rig.stable(2)
    ticket = rig.join(leader)
    rig.join(follower)
    generation = rig.joined(ticket).generation
    waiting = rig.sync(follower, generation, {leader: b"not the leader's"})
    assert rig.waits(waiting)
    done = rig.sync(leader, generation, {leader: b"L", follower: b"F", "ghost": b"G"})
    assert (rig.assigned(done), rig.assigned(waiting)) == (b"L", b"F")
    assert rig.assigned(rig.sync(follower, generation)) == b"F"


def test_a_member_that_the_leader_forgot_gets_nothing(rig: Rig) -> None:
    leader, follower = rig.stable(2)
    ticket = rig.join(leader)
    rig.join(follower)
    generation = rig.joined(ticket).generation
    rig.sync(leader, generation, {leader: b"L"})
    assert rig.assigned(rig.sync(follower, generation)) == b""


@pytest.mark.parametrize(
    ("member", "step", "error"),
    [("nobody", 0, UnknownMemberError), ("", 1, IllegalGenerationError)],
)
def test_a_sync_of_a_stranger_or_of_another_generation_is_refused(
    rig: Rig, member: str, step: int, error: type[Exception]
) -> None:
    [leader] = rig.stable(1)
    ticket = rig.sync(member or leader, rig.group.generation + step)
    assert rig.error(ticket) is error


@pytest.mark.parametrize(
    ("protocol_type", "protocol_name", "error"),
    [
        ("consumer", "range", None),
        ("connect", "range", InconsistentProtocolError),
        ("consumer", "sticky", InconsistentProtocolError),
    ],
)
def test_a_sync_must_name_the_protocol_that_was_agreed_on(
    rig: Rig, protocol_type: str, protocol_name: str, error: type[Exception] | None
) -> None:
    [leader] = rig.stable(1)
    ticket = rig.sync(leader, 1, protocol_type=protocol_type, protocol_name=protocol_name)
    assert rig.error(ticket) is error


def test_a_sync_during_a_rebalance_says_so(rig: Rig) -> None:
    leader, _ = rig.stable(2)
    rig.join()
    assert rig.error(rig.sync(leader, rig.group.generation)) is RebalanceInProgressError


def test_somebody_new_calls_back_those_who_wait_for_the_leader(rig: Rig) -> None:
    leader, follower = rig.stable(2)
    rig.join(leader)
    rig.join(follower)
    waiting = rig.sync(follower, rig.group.generation)
    rig.join()
    assert rig.error(waiting) is RebalanceInProgressError


def test_members_that_never_sync_are_out_after_the_rebalance_timeout(rig: Rig) -> None:
    leader, silent = rig.stable(2)
    rig.join(leader)
    rig.join(silent)
    generation = rig.group.generation
    rig.sync(leader, generation, {leader: b"all"})
    for _ in range(REBALANCE_MS // 1000):
        rig.beat(leader, generation)
        rig.beat(silent, generation)
        rig.advance(1)
    assert rig.group.state_name == "PreparingRebalance"
    assert rig.joined(rig.join(leader)).generation == generation + 1
    assert silent not in rig.group.members


# Living and dying.


@pytest.mark.parametrize(("waited_ms", "alive"), [(-1, True), (0, False)])
def test_a_silent_member_dies_with_its_session(rig: Rig, waited_ms: int, alive: bool) -> None:
    [member] = rig.stable(1)
    rig.advance((SESSION_MS + waited_ms) / 1000)
    assert (member in rig.group.members) is alive
    assert rig.group.state_name == ("Stable" if alive else "Empty")


def test_a_heartbeat_and_a_commit_prolong_the_session(rig: Rig) -> None:
    [member] = rig.stable(1)
    for _ in range(3):
        rig.advance(SESSION_MS / 1000 - 1)
        rig.beat(member, 1)
        rig.advance(SESSION_MS / 1000 - 1)
        rig.commit(member, 1)
    assert rig.group.state_name == "Stable"


def test_who_waits_for_others_need_not_send_heartbeats(rig: Rig) -> None:
    leader, other = rig.stable(2)
    ticket = rig.join(other, protocols={"range": b"new"}, rebalance_ms=60_000)
    for _ in range(59):
        rig.advance(1)
        with pytest.raises(RebalanceInProgressError):
            rig.beat(leader, rig.group.generation)
    assert rig.waits(ticket)
    assert other in rig.group.members


def test_somebody_new_who_is_never_answered_is_forgotten_after_five_minutes(rig: Rig) -> None:
    [leader] = rig.stable(1)
    rig.join(leader, rebalance_ms=600_000)
    rig.assign([leader])
    lost = rig.join(rebalance_ms=600_000)
    for _ in range(299):
        rig.advance(1)
        with pytest.raises(RebalanceInProgressError):
            rig.beat(leader, rig.group.generation)
    assert len(rig.group.members) == 2
    rig.advance(1)
    assert rig.error(lost) is UnknownMemberError
    assert len(rig.group.members) == 1


@pytest.mark.parametrize(
    ("member", "step", "error"),
    [("nobody", 0, UnknownMemberError), ("", -1, IllegalGenerationError)],
)
def test_a_heartbeat_of_a_stranger_or_of_another_generation_is_refused(
    rig: Rig, member: str, step: int, error: type[Exception]
) -> None:
    [leader] = rig.stable(1)
    with pytest.raises(error):
        rig.beat(member or leader, rig.group.generation + step)


def test_heartbeats_are_fine_while_the_leader_assigns(rig: Rig) -> None:
    answer = rig.joined(rig.join())
    assert rig.group.state_name == "CompletingRebalance"
    rig.beat(answer.member_id, 1)


def test_the_others_share_what_a_leaving_member_had(rig: Rig) -> None:
    leader, follower = rig.stable(2)
    assert rig.leave(leader, "nobody") == [None, UnknownMemberError]
    answer = rig.joined(rig.join(follower))
    assert answer.leader == follower
    assert [each.member_id for each in answer.members] == [follower]


def test_a_group_that_all_have_left_is_empty_and_keeps_its_generation(rig: Rig) -> None:
    members = rig.stable(2)
    generation = rig.group.generation
    rig.leave(*members)
    assert rig.group.is_empty
    assert rig.group.generation > generation
    assert rig.group.deadline_s is None
    assert rig.joined(rig.join()).generation > generation + 1


# Committing.


def test_who_is_no_member_commits_only_while_there_are_none(rig: Rig) -> None:
    rig.commit("", -1)
    with pytest.raises(IllegalGenerationError):
        rig.commit("somebody", 0)
    [member] = rig.stable(1)
    with pytest.raises(UnknownMemberError):
        rig.commit("", -1)
    rig.commit(member, 1)
    with pytest.raises(IllegalGenerationError):
        rig.commit(member, 2)
    with pytest.raises(UnknownMemberError):
        rig.commit("nobody", 1)
    rig.leave(member)
    rig.commit("", -1)
    with pytest.raises(UnknownMemberError):
        rig.commit(member, 1)


def test_members_commit_before_they_join_again_and_not_before_they_are_assigned(rig: Rig) -> None:
    leader, _ = rig.stable(2)
    rig.join()
    rig.commit(leader, rig.group.generation)
    rig = Rig()
    member = rig.joined(rig.join()).member_id
    with pytest.raises(RebalanceInProgressError):
        rig.commit(member, 1)


def test_a_fenced_static_member_cannot_commit(rig: Rig) -> None:
    old = rig.stable(1, statics=1)[0]
    rig.join(instance="i0")
    with pytest.raises(FencedInstanceError):
        rig.commit(old, 1, "i0")


# Showing.


def test_a_stable_group_shows_metadata_and_assignments(rig: Rig) -> None:
    [member] = rig.stable(1)
    shown = rig.group.describe()
    assert (shown.state_name, shown.protocol_type, shown.protocol_name) == (
        "Stable",
        "consumer",
        "range",
    )
    [one] = shown.members
    assert (one.client_id, one.client_host) == ("client", "/here")
    assert (one.metadata, one.assignment) == (b"meta", member.encode())
    rig.join()
    shown = rig.group.describe()
    assert shown.protocol_name == ""
    assert {each.assignment for each in shown.members} == {b""}


@pytest.mark.parametrize(
    ("metadata", "subscribed"),
    [
        (b"\0\1\0\0\0\1\0\2t1\xff\xff\xff\xff", True),
        (b"\0\0\0\0\0\2\0\2t0\0\2t1", True),
        (b"\0\0\0\0\0\1\0\2t0", False),
        (b"\0\0\0\0\0\0", False),
        (b"", True),
        (b"\0\0\0\0\0\1\0\5t1", True),
        (b"\0\0\0\0\0\1\xff\xfft1", True),
    ],
)
def test_who_does_not_say_what_it_reads_may_read_anything(
    rig: Rig, metadata: bytes, subscribed: bool
) -> None:
    rig.join(protocols={"range": metadata})
    assert rig.group.is_subscribed_to("t1") is subscribed


def test_members_of_other_protocols_read_no_topics(rig: Rig) -> None:
    rig.join(protocol_type="connect")
    assert not rig.group.is_subscribed_to("t1")
