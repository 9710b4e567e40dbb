"""Limits on the groups of an address, and on the memory of all members."""

from collections.abc import AsyncIterator

import pytest
from tests.unit.groups.rig import Node, SlowControl

from stratalog.control.groups.model import OffsetToCommit
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.model import Topic
from stratalog.groups.classic.model import JoinAnswer, JoinRequest, Leaving, SyncRequest
from stratalog.groups.consumer.groups import ConsumerGroups
from stratalog.groups.consumer.heartbeat import Heartbeat
from stratalog.groups.errors import GroupFullError, GroupMemoryError, NewGroupsError
from stratalog.groups.group import Committer
from stratalog.groups.limits import GroupLimits
from stratalog.ids import Offset, PartitionIndex
from stratalog.settings import GroupsSettings
from stratalog.testing.clock import ManualClock
from stratalog.topic.catalog import TopicCatalog

MIB = 1 << 20
HERE, THERE = "/1.2.3.4", "/5.6.7.8"
SETTINGS = GroupsSettings(
    initial_rebalance_delay_ms=0, new_groups_per_hour=2, max_state_bytes=MIB, max_size=4
)


@pytest.fixture
async def limited(plane: ControlPlane, clock: ManualClock, node: Node) -> AsyncIterator[Node]:
    # The broker of the other fixture lends its membership.
    limited = Node(SlowControl(plane), clock, node.membership, SETTINGS)
    yield limited
    await limited.coordinator.stop()


async def join(
    node: Node,
    group_id: str,
    size: int = 0,
    *,
    host: str = HERE,
    member_id: str = "",
    knows: bool = True,
) -> JoinAnswer:
    return await node.classic.join(
        group_id,
        JoinRequest(
            member_id=member_id,
            client_host=host,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols={"range": bytes(size)},
            requires_known_id=not knows,
        ),
    )


async def test_a_client_makes_a_limited_number_of_groups_in_an_hour(
    limited: Node,
) -> None:
    for group_id in ("first", "second"):
        await join(limited, group_id)
    with pytest.raises(
        NewGroupsError, match=r"1\.2\.3\.4 has made 2 .*groups\.new_groups_per_hour"
    ):
        await join(limited, "third")
    await join(limited, "third", host=THERE)


async def test_an_allowance_comes_back_evenly(clock: ManualClock) -> None:
    limits = GroupLimits(SETTINGS, clock)
    for group_id in ("first", "second"):
        limits.count_new(group_id, HERE)
    await clock.advance(1801)
    limits.count_new("third", HERE)
    with pytest.raises(NewGroupsError):
        limits.count_new("fourth", HERE)


async def test_commits_make_groups_too_and_present_groups_go_on(
    limited: Node, plane: ControlPlane
) -> None:
    topic = await plane.topics.create("events", partition_count=1, configs={})
    nobody = Committer("", None, -1, client_host=HERE)
    for group_id in ("first", "second", "first"):
        await limited.coordinator.commit_offsets(group_id, nobody, [offset(topic)])
    with pytest.raises(NewGroupsError):
        await limited.coordinator.commit_offsets("third", nobody, [offset(topic)])
    joined = await join(limited, "second")
    assert joined.error is None


def offset(topic: Topic) -> OffsetToCommit:
    return OffsetToCommit(
        topic_id=topic.id,
        partition=PartitionIndex(0),
        offset=Offset(1),
        leader_epoch=0,
        metadata="",
    )


def test_addresses_are_forgotten_when_there_are_too_many(clock: ManualClock) -> None:
    limits = GroupLimits(SETTINGS, clock)
    for number in range(10_005):
        limits.count_new("group", f"/address-{number}")
    assert len(limits._allowances) == 10_000
    limits.count_new("group", "/address-10004")
    with pytest.raises(NewGroupsError):
        limits.count_new("group", "/address-10004")


async def test_members_are_refused_when_the_memory_is_used_and_present_ones_rebalance(
    limited: Node,
) -> None:
    large = await join(limited, "large", 700_000)
    with pytest.raises(GroupMemoryError, match=r"groups\.max_state_bytes is 1048576"):
        await join(limited, "small", 100_000)
    again = await join(limited, "large", 700_000, member_id=large.member_id)
    assert again.error is None
    with pytest.raises(GroupMemoryError):
        await join(limited, "large", 800_000, member_id=large.member_id)
    # Assignments have the last quarter.
    for size, fits in ((400_000, False), (300_000, True)):
        request = SyncRequest(
            member_id=large.member_id,
            generation=again.generation,
            assignments={large.member_id: bytes(size)},
        )
        if fits:
            assert len((await limited.classic.sync("large", request)).assignment) == size
        else:
            with pytest.raises(GroupMemoryError):
                await limited.classic.sync("large", request)
    assert limited.coordinator.limits.used_bytes > 1_000_000
    await limited.classic.leave("large", [Leaving(member_id=large.member_id)])
    assert limited.coordinator.limits.used_bytes == 0
    assert (await join(limited, "small", 100_000)).error is None


async def test_the_memory_of_groups_that_go_is_free_again(limited: Node) -> None:
    joined = await join(limited, "one", 50_000)
    used = limited.coordinator.limits.used_bytes
    assert 50_000 < used < 60_000
    limited.membership.lease_number += 1
    await join(limited, "one", 50_000, member_id=joined.member_id)
    assert limited.coordinator.limits.used_bytes < 60_000, "it was loaded anew, and counts once"
    await limited.coordinator.stop()
    assert limited.coordinator.limits.used_bytes == 0


async def test_ids_that_are_given_out_are_bounded(limited: Node) -> None:
    for _ in range(SETTINGS.max_size):
        assert not isinstance((await join(limited, "one", knows=False)).error, GroupFullError)
    refused = await join(limited, "one", knows=False)
    assert isinstance(refused.error, GroupFullError)


async def test_members_of_consumer_groups_count_too(
    limited: Node, plane: ControlPlane, clock: ManualClock
) -> None:
    catalog = TopicCatalog(control=plane, clock=clock)
    groups = ConsumerGroups(limited.coordinator, catalog, SETTINGS, clock=clock)

    def beat(number: int, names: int) -> Heartbeat:
        return Heartbeat(
            group_id="new",
            member_id=f"member-{number}",
            epoch=0,
            rebalance_timeout_ms=1000,
            topic_names=frozenset(f"{at:0200}" for at in range(names)),
            owned=frozenset(),
            client_host=HERE,
        )

    await groups.heartbeat(beat(1, 2000))
    assert 560_000 < limited.coordinator.limits.used_bytes < 570_000
    with pytest.raises(GroupMemoryError):
        await groups.heartbeat(beat(2, 2000))
    await groups.heartbeat(beat(1, 2000))
    await groups.heartbeat(beat(2, 10))
