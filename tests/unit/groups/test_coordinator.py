"""The coordinator over a real control plane: saving before answering, and losing a group."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.groups.rig import GROUP, LEASE_MS, Node

from stratalog.control.errors import ControlUnavailableError
from stratalog.control.groups.errors import NotCoordinatorError, TooManyGroupsError
from stratalog.control.groups.model import GroupKind, GroupRecord, OffsetToCommit
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.model import Topic
from stratalog.groups import coordinator as coordinator_module
from stratalog.groups.classic.group import ClassicGroup
from stratalog.groups.classic.model import (
    ClassicLimits,
    Leaving,
)
from stratalog.groups.consumer.group import ConsumerGroup, Limits
from stratalog.groups.consumer.model import GroupState
from stratalog.groups.errors import (
    GroupNotEmptyError,
    GroupNotFoundError,
    IllegalGenerationError,
    MemberTooLargeError,
    NotLoadedError,
    RebalanceInProgressError,
    UnknownMemberError,
)
from stratalog.groups.group import Committer
from stratalog.ids import Offset, PartitionIndex, TopicPartition
from stratalog.testing.clock import ManualClock

NOBODY = Committer("", None, -1)
ANY_LIMITS = ClassicLimits(
    initial_rebalance_delay_ms=0, min_session_timeout_ms=1, max_session_timeout_ms=1, max_size=1
)


@pytest.fixture
async def topic(plane: ControlPlane) -> Topic:
    return await plane.topics.create("events", partition_count=2, configs={})


def offset(topic: Topic, value: int) -> OffsetToCommit:
    return OffsetToCommit(
        topic_id=topic.id,
        partition=PartitionIndex(0),
        offset=Offset(value),
        leader_epoch=0,
        metadata="",
    )


async def settled() -> None:
    """Let everything that can go on do so."""
    for _ in range(20):
        await asyncio.sleep(0.001)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition that depends on the thread of the database."""
    for _ in range(10_000):
        if await condition():
            return
        await asyncio.sleep(0.001)
    pytest.fail("it did not come to that")


async def test_nobody_is_told_before_the_state_is_saved(node: Node) -> None:
    joined = await node.join()
    node.control.open.clear()
    node.control.saving.clear()
    syncing = asyncio.create_task(node.sync(joined, own=b"mine"))
    await node.control.saving.wait()
    again = asyncio.create_task(node.sync(joined))
    await settled()
    assert not syncing.done()
    assert not again.done(), "an assignment that is not saved yet was told"
    await node.beat(joined)
    node.control.open.set()
    assert await syncing == await again == b"mine"
    assert node.control.saved[-1].state_name == "Stable"


async def test_a_client_that_goes_away_does_not_cut_a_save_off(node: Node) -> None:
    joined = await node.join()
    node.control.open.clear()
    node.control.saving.clear()
    syncing = asyncio.create_task(node.sync(joined, own=b"mine"))
    await node.control.saving.wait()
    syncing.cancel()
    node.control.open.set()
    assert await node.sync(joined) == b"mine"


async def test_a_save_that_fails_is_told_and_the_members_join_again(node: Node) -> None:
    joined = await node.join()
    node.control.failures = [ControlUnavailableError("away")]
    with pytest.raises(ControlUnavailableError):
        await node.sync(joined, own=b"mine")
    with pytest.raises(RebalanceInProgressError):
        await node.beat(joined)
    again = await node.join(joined.member_id)
    assert again.generation == joined.generation + 1
    assert await node.sync(again, own=b"mine") == b"mine"


async def test_a_save_does_not_speak_for_a_group_that_took_its_place_meanwhile(
    node: Node,
) -> None:
    """A group of the other kind counts its changes apart. Were it taken for saved because its
    number is the same, its members would be answered, and the next coordinator not know them."""
    limits = Limits(session_ms=10_000, max_members=10, look_ms=1000)
    consumer = ConsumerGroup(GROUP, limits, state=GroupState(), now_s=0, revision=1)
    classic = ClassicGroup(ANY_LIMITS, entropy=os.urandom)
    classic.revision = consumer.revision
    node.control.open.clear()
    changing = asyncio.create_task(
        node.coordinator.change(GROUP, lambda loaded, _: loaded.replace(consumer), maker="/1.2.3.4")
    )
    await node.control.saving.wait()
    await node.coordinator.look(GROUP, lambda loaded, _: loaded.replace(classic))
    node.control.open.set()
    await changing
    await node.coordinator.change(GROUP, lambda _loaded, _now_s: None, maker="/1.2.3.4")
    saved = [record.kind for record in node.control.saved]
    assert saved == [GroupKind.CONSUMER, GroupKind.CLASSIC]


async def test_another_broker_goes_on_with_the_same_generation(node: Node, other: Node) -> None:
    joined = await node.stable()
    with pytest.raises(NotCoordinatorError):
        await other.beat(joined)
    await node.stop()
    with pytest.raises(NotCoordinatorError):
        await node.beat(joined)
    located = await other.coordinator.locate(GROUP)
    assert located.broker_id == other.membership.broker_id
    await other.beat(joined)
    assert await other.sync(joined) == b"mine"
    again = await other.join(joined.member_id)
    assert again.generation == joined.generation + 1


async def test_who_waits_is_sent_on_when_the_broker_stops(node: Node) -> None:
    joined = await node.stable()
    waiting = asyncio.create_task(node.join())
    await settled()
    await node.coordinator.stop()
    with pytest.raises(NotCoordinatorError):
        await waiting
    with pytest.raises(NotCoordinatorError):
        await node.beat(joined)
    with pytest.raises(NotCoordinatorError):
        await node.coordinator.fetch_offsets(GROUP, NOBODY, None)


def is_alive(node: Node) -> bool:
    return node.membership.is_surely_alive


async def test_a_broker_answers_only_while_its_lease_is_surely_alive(
    node: Node, clock: ManualClock, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = await node.stable()
    assert is_alive(node)

    async def never(*args: Any, **more: Any) -> bool:
        raise ControlUnavailableError("away")

    monkeypatch.setattr(plane.brokers, "renew", never)
    group_before = await node.coordinator.look(GROUP, lambda loaded, _: loaded)
    for _ in range(LEASE_MS // 1000 // 5 - 1):
        await clock.advance(5)
        await node.beat(joined)
    await clock.advance(5)
    assert not is_alive(node)
    with pytest.raises(NotCoordinatorError):
        await node.beat(joined)
    with pytest.raises(NotCoordinatorError):
        await node.coordinator.commit_offsets(GROUP, NOBODY, [])
    monkeypatch.undo()
    await node.membership._renew()
    assert is_alive(node)
    await node.beat(joined)
    group_after = await node.coordinator.look(GROUP, lambda loaded, _: loaded)
    assert group_after is not group_before, "it may have been another's in between"


async def test_a_group_that_was_taken_over_is_dropped_at_the_first_refusal(
    node: Node, other: Node, plane: ControlPlane, topic: Topic
) -> None:
    joined = await node.stable()
    await node.coordinator.commit_offsets(
        GROUP, Committer(joined.member_id, None, joined.generation), [offset(topic, 4)]
    )
    # Behind the first one's back: to it, its lease is still alive.
    await plane.brokers.remove(node.membership.broker_id, node.membership.incarnation)
    committer = Committer(joined.member_id, None, joined.generation)
    await other.coordinator.commit_offsets(GROUP, committer, [offset(topic, 9)])
    with pytest.raises(NotCoordinatorError):
        await node.coordinator.commit_offsets(GROUP, committer, [offset(topic, 5)])
    with pytest.raises(NotCoordinatorError):
        await node.join()
    [found] = await other.coordinator.fetch_offsets(GROUP, NOBODY, None)
    assert found.offset == 9


async def test_a_session_ends_by_the_clock_and_that_is_saved(
    node: Node, clock: ManualClock
) -> None:
    joined = await node.stable()
    await clock.advance(9.9)
    await node.beat(joined)
    await clock.advance(9.9)
    await settled()
    await node.beat(joined)
    await clock.advance(10.1)
    await clock.advance(10.1)

    async def emptied() -> bool:
        return node.control.saved[-1].state_name == "Empty"

    await until(emptied)
    with pytest.raises(UnknownMemberError):
        await node.beat(joined)


async def test_many_who_ask_at_once_load_a_group_once(node: Node, plane: ControlPlane) -> None:
    await node.join()
    node.coordinator._drop(node.coordinator._groups[GROUP])
    looks = [node.coordinator.look(GROUP, lambda loaded, _: loaded) for _ in range(5)]
    assert len(set(map(id, await asyncio.gather(*looks)))) == 1


async def test_groups_without_members_are_forgotten_when_there_are_too_many(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_module, "MOST_IDLE", 3)
    await node.stable()
    for number in range(5):
        await node.coordinator.change(f"idle-{number}", lambda *_: None, maker="/1.2.3.4")
    loaded = node.coordinator._groups
    assert list(loaded) == [GROUP, "idle-3", "idle-4"]


async def test_asking_about_a_group_that_was_never_used_makes_no_row(
    node: Node, plane: ControlPlane
) -> None:
    coordinator = node.coordinator
    await coordinator.locate("stranger")
    assert await coordinator.fetch_offsets("stranger", NOBODY, None) == []
    for question in (coordinator.describe, coordinator.delete, coordinator.deletable_offsets):
        with pytest.raises(GroupNotFoundError):
            await question("stranger")
    with pytest.raises(UnknownMemberError):
        await node.classic.heartbeat("stranger", "m", None, 1)
    with pytest.raises(IllegalGenerationError):
        await coordinator.commit_offsets("stranger", Committer("m", None, 1), [])
    assert not await plane.groups.exists("stranger")
    assert "stranger" not in coordinator._groups


async def test_a_group_beyond_the_limit_is_refused_and_present_ones_go_on(node: Node) -> None:
    joined = await node.stable()
    node.coordinator.limits.max_groups = 1
    with pytest.raises(TooManyGroupsError, match=r"groups\.max_groups"):
        await node.join(group_id="one-too-many")
    await node.beat(joined)
    assert await node.join(joined.member_id)


async def test_a_member_with_too_large_a_subscription_is_refused(node: Node) -> None:
    node.classic._max_member_bytes = 10
    with pytest.raises(MemberTooLargeError, match=r"groups\.max_member_bytes"):
        await node.join()


async def test_a_group_of_an_unknown_kind_is_left_alone(node: Node, plane: ControlPlane) -> None:
    membership = node.membership
    record = await plane.groups.open(GROUP, membership.broker_id, membership.incarnation)
    await plane.groups.save(
        GroupRecord(
            group_id=GROUP,
            term=record.term,
            kind=GroupKind.CONSUMER,
            state_name="Stable",
            protocol_type="consumer",
            state=b"?",
            empty_since_ms=None,
        )
    )
    with pytest.raises(NotLoadedError):
        await node.join()


async def test_a_group_exists_once_it_has_members_or_offsets(node: Node, topic: Topic) -> None:
    for ask in (node.coordinator.describe, node.coordinator.delete):
        with pytest.raises(GroupNotFoundError):
            await ask("simple")
    await node.coordinator.commit_offsets("simple", NOBODY, [offset(topic, 3)])
    assert (await node.coordinator.describe("simple")).state_name == "Empty"
    assert [each.group_id for each in await node.coordinator.listed()] == ["simple"]
    await node.coordinator.delete("simple")
    assert await node.coordinator.listed() == []
    with pytest.raises(GroupNotFoundError):
        await node.coordinator.describe("simple")


async def test_only_an_empty_group_is_deleted(node: Node) -> None:
    joined = await node.stable()
    with pytest.raises(GroupNotEmptyError):
        await node.coordinator.delete(GROUP)
    await node.classic.leave(GROUP, [Leaving(member_id=joined.member_id)])
    await node.coordinator.delete(GROUP)
    assert (await node.join()).generation == 1


async def test_offsets_are_deleted_unless_a_member_reads_the_topic(
    node: Node, topic: Topic
) -> None:
    joined = await node.stable()
    committer = Committer(joined.member_id, None, joined.generation)
    await node.coordinator.commit_offsets(GROUP, committer, [offset(topic, 3)])
    is_deletable = await node.coordinator.deletable_offsets(GROUP)
    assert not is_deletable("events")
    assert is_deletable("others")
    await node.coordinator.delete_offsets(GROUP, [TopicPartition(topic.id, PartitionIndex(0))])
    assert await node.coordinator.fetch_offsets(GROUP, NOBODY, None) == []


async def test_every_group_is_listed_by_one_broker_with_its_present_state(
    node: Node, other: Node
) -> None:
    await node.stable()
    await other.join(group_id="elsewhere")
    waiting = asyncio.create_task(node.join())

    async def prepared() -> bool:
        return (await node.coordinator.listed())[0].state_name != "Stable"

    await until(prepared)
    mine, theirs = await node.coordinator.listed(), await other.coordinator.listed()
    assert [(each.group_id, each.state_name) for each in mine] == [(GROUP, "PreparingRebalance")]
    assert [each.group_id for each in theirs] == ["elsewhere"]
    waiting.cancel()
    await node.stop()
    await other.membership.refresh()
    listed = await other.coordinator.listed()
    assert [each.group_id for each in listed] == ["elsewhere", GROUP]
