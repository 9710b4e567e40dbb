"""Which broker serves a zone, by a membership whose live brokers the test sets."""

from collections.abc import Sequence
from uuid import UUID

import pytest
from tests.support.ledgers import FakeControlPlane

from stratalog.clock import SystemClock
from stratalog.cluster.membership import Membership
from stratalog.control.brokers.model import BrokerInfo
from stratalog.ids import BrokerId, PartitionIndex, TopicId, TopicPartition

ZONES = {0: "a", 1: "a", 2: "b", 3: "b", 4: None}
PARTITIONS = [TopicPartition(TopicId(UUID(int=9)), PartitionIndex(i)) for i in range(200)]


def broker(number: int) -> BrokerInfo:
    return BrokerInfo(
        broker_id=BrokerId(number),
        host="here",
        port=9000 + number,
        rack=ZONES[number],
        incarnation=UUID(int=number),
        alive=True,
    )


class _Brokers(FakeControlPlane):
    def __init__(self, live: Sequence[int]) -> None:
        super().__init__()
        self.live = live

    async def brokers_all(self) -> list[BrokerInfo]:
        return [broker(number) for number in self.live]


async def member(own: int, live: Sequence[int] = tuple(ZONES)) -> Membership:
    membership = Membership(
        control=_Brokers(live),
        clock=SystemClock(),
        cluster_id=UUID(int=1),
        incarnation=UUID(int=own),
        lease_ms=1000,
        registration=broker(own),
    )
    await membership.refresh()
    return membership


async def test_a_zone_is_led_by_its_own_brokers_evenly() -> None:
    membership = await member(0)
    leaders = [membership.leader_of(one, "b").broker_id for one in PARTITIONS]
    assert set(leaders) == {2, 3}
    assert 60 < leaders.count(BrokerId(2)) < 140


@pytest.mark.parametrize("zone", [None, "", "nowhere"])
async def test_without_a_broker_in_the_zone_everybody_leads(zone: str | None) -> None:
    membership = await member(0)
    assert [membership.leader_of(one, zone) for one in PARTITIONS] == [
        membership.leader_of(one) for one in PARTITIONS
    ]
    assert all(membership.nearer_broker(one, zone) is None for one in PARTITIONS)
    assert len(membership._leaders) == len(PARTITIONS), "clients cannot fill the memory with names"


async def test_a_leader_in_the_zone_leads_the_zone() -> None:
    membership = await member(0)
    for one in PARTITIONS:
        leader = membership.leader_of(one)
        if leader.rack is not None:
            assert membership.leader_of(one, leader.rack) == leader


async def test_a_broker_that_dies_moves_its_own_partitions_of_the_zone_alone() -> None:
    before, after = await member(0), await member(0, [0, 1, 2, 4])
    for one in PARTITIONS:
        old = before.leader_of(one, "b").broker_id
        assert after.leader_of(one, "b").broker_id == 2
        assert old == 2 or old == 3
        assert after.leader_of(one, "a") == before.leader_of(one, "a")


async def test_only_the_leader_sends_readers_on_and_all_meet_at_one_broker() -> None:
    members = [await member(number) for number in ZONES]
    for one in PARTITIONS:
        leader = members[0].leader_of(one)
        for membership in members:
            nearer = membership.nearer_broker(one, "b")
            if membership.broker_id != leader.broker_id or leader.rack == "b":
                assert nearer is None
            else:
                assert nearer == membership.leader_of(one, "b")


async def test_brokers_that_disagree_never_send_a_reader_round_in_circles() -> None:
    """Whatever each of them believes, a reader that follows is served in the end."""
    views = [[0, 1, 2, 3, 4], [0, 1, 2], [1, 2, 3, 4], [0, 3], [2, 3, 4]]
    members = {number: await member(number, [*views[number], number]) for number in ZONES}
    for one in PARTITIONS:
        for zone in ("a", "b"):
            at, steps = 0, 0
            while (nearer := members[at].nearer_broker(one, zone)) is not None:
                at, steps = nearer.broker_id, steps + 1
                assert steps <= len(ZONES)
