"""Consumer groups over a real control plane that sometimes cannot save."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from stratalog.clock import SystemClock
from stratalog.cluster.membership import Membership
from stratalog.control.errors import ControlUnavailableError
from stratalog.control.groups.errors import NotCoordinatorError
from stratalog.control.groups.model import GroupKind, GroupRecord
from stratalog.control.open import open_control_plane
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.model import Topic
from stratalog.groups.classic.groups import ClassicGroups
from stratalog.groups.consumer.errors import FencedMemberEpochError, NotSavedError
from stratalog.groups.consumer.groups import ConsumerGroups
from stratalog.groups.consumer.heartbeat import Heartbeat
from stratalog.groups.consumer.model import LEAVE_EPOCH, Partitions
from stratalog.groups.coordinator import GroupCoordinator
from stratalog.groups.errors import GroupNotFoundError, UnknownMemberError
from stratalog.ids import BrokerId, PartitionIndex, TopicPartition
from stratalog.settings import GroupsSettings
from stratalog.topic.catalog import TopicCatalog

SETTINGS = GroupsSettings(consumer_topics_poll_ms=3_600_000)


class Saves:
    """Stands before the control plane's `save_group`."""

    def __init__(self, control: ControlPlane) -> None:
        self._save = control.groups.save
        self.count = 0
        self.failures = 0
        self.begun = asyncio.Event()
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, record: GroupRecord) -> None:
        self.count += 1
        self.begun.set()
        await self.open.wait()
        if self.failures:
            self.failures -= 1
            raise ControlUnavailableError("not now")
        await self._save(record)


class Side:
    """One broker's groups."""

    def __init__(self, control: ControlPlane, membership: Membership) -> None:
        clock = SystemClock()
        self.membership = membership
        self.catalog = TopicCatalog(control=control, clock=clock)
        self.coordinator = GroupCoordinator(control=control, membership=membership, clock=clock)
        ClassicGroups(self.coordinator, SETTINGS)
        self.groups = ConsumerGroups(self.coordinator, self.catalog, SETTINGS, clock=clock)

    async def stop(self) -> None:
        await self.coordinator.stop()
        await self.membership.leave()


async def joined(control: ControlPlane, broker_id: int) -> Membership:
    return await Membership.join(
        control=control,
        clock=SystemClock(),
        broker_id=BrokerId(broker_id),
        host="127.0.0.1",
        port=9000 + broker_id,
        rack=None,
        incarnation=uuid4(),
        lease_ms=60_000,
    )


@pytest.fixture
async def control(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    plane = await open_control_plane(f"sqlite:{tmp_path / 'control.db'}")
    yield plane
    await plane.close()


@pytest.fixture
async def saves(control: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Saves:
    stand_in = Saves(control)
    monkeypatch.setattr(control.groups, "save", stand_in)
    return stand_in


@pytest.fixture
async def side(control: ControlPlane, saves: Saves) -> AsyncIterator[Side]:
    started = Side(control, await joined(control, 1))
    yield started
    await started.stop()


@pytest.fixture
async def topic(control: ControlPlane) -> Topic:
    return await control.topics.create("t", partition_count=4, configs={})


def parts(topic: Topic, *indexes: int) -> Partitions:
    return frozenset(TopicPartition(topic.id, PartitionIndex(each)) for each in indexes)


def join(member_id: str, *names: str, pattern: str | None = None) -> Heartbeat:
    return Heartbeat(
        group_id="g",
        member_id=member_id,
        epoch=0,
        rebalance_timeout_ms=1000,
        topic_names=frozenset(names or ("t",)),
        topic_pattern=pattern,
        owned=frozenset(),
    )


def beat(member_id: str, epoch: int, owned: Partitions | None = None) -> Heartbeat:
    return Heartbeat(group_id="g", member_id=member_id, epoch=epoch, owned=owned)


async def test_a_change_is_saved_before_it_is_told_and_no_change_is_not_saved(
    side: Side, saves: Saves, topic: Topic
) -> None:
    saves.open.clear()
    joining = asyncio.create_task(side.groups.heartbeat(join("a")))
    await saves.begun.wait()
    assert not joining.done()
    saves.open.set()
    assert (await joining).assignment == parts(topic, 0, 1, 2, 3)
    count = saves.count
    assert (await side.groups.heartbeat(beat("a", 1))).assignment is None
    assert saves.count == count


async def test_a_heartbeat_whose_change_could_not_be_saved_is_as_if_it_never_came(
    side: Side, saves: Saves, topic: Topic
) -> None:
    await side.groups.heartbeat(join("a"))
    saves.failures = 1
    with pytest.raises(ControlUnavailableError):
        await side.groups.heartbeat(join("b"))
    assert (await side.groups.describe("g")).members.keys() == {"a"}
    assert (await side.groups.heartbeat(beat("a", 1))).epoch == 1
    assert (await side.groups.heartbeat(join("b"))).epoch == 2


async def test_what_was_built_on_a_change_that_could_not_be_saved_is_not_told_either(
    side: Side, saves: Saves, topic: Topic
) -> None:
    """It would learn an epoch that is then assigned again with other contents."""
    await side.groups.heartbeat(join("a"))
    saves.failures = 1
    saves.begun.clear()
    saves.open.clear()
    first = asyncio.create_task(side.groups.heartbeat(join("b")))
    await saves.begun.wait()
    second = asyncio.create_task(side.groups.heartbeat(beat("a", 1)))
    for _ in range(10):
        await asyncio.sleep(0)
    saves.open.set()
    told = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(each) for each in told] == [ControlUnavailableError, NotSavedError]
    assert (await side.groups.describe("g")).members.keys() == {"a"}
    assert (await side.groups.heartbeat(beat("a", 1))).assignment is None


async def test_members_that_join_at_once_know_all_their_topics(side: Side, topic: Topic) -> None:
    """Each looks at its own topics while others join, and no topic may be taken for missing."""
    for number in range(5):
        await side.catalog.create(f"t{number}", partition_count=1, configs={})
    await asyncio.gather(
        *(side.groups.heartbeat(join(f"m{number}", f"t{number}")) for number in range(5)),
        side.groups.heartbeat(join("m5", pattern="t")),
    )
    state = await side.groups.describe("g")
    assert {shape.name for shape in state.topics.values()} == {"t", *(f"t{n}" for n in range(5))}
    assert all(len(state.members[f"m{number}"].topic_ids) == 1 for number in range(6))


async def test_what_this_broker_changes_about_a_topic_is_noticed_with_the_next_heartbeat(
    side: Side, topic: Topic
) -> None:
    await side.groups.heartbeat(join("a", "t", "later"))
    await side.catalog.add_partitions(topic, partition_count=5)
    assert (await side.groups.heartbeat(beat("a", 1))).assignment == parts(topic, 0, 1, 2, 3, 4)
    later = await side.catalog.create("later", partition_count=1, configs={})
    given = (await side.groups.heartbeat(beat("a", 2))).assignment
    assert given == parts(topic, 0, 1, 2, 3, 4) | parts(later, 0)


async def test_only_who_joins_makes_a_group(side: Side, control: ControlPlane) -> None:
    with pytest.raises(GroupNotFoundError):
        await side.groups.heartbeat(beat("a", 1))
    with pytest.raises(GroupNotFoundError):
        await side.groups.heartbeat(beat("a", LEAVE_EPOCH))
    with pytest.raises(GroupNotFoundError):
        await side.groups.describe("g")


async def test_a_join_that_is_refused_leaves_an_empty_group_as_it_was(
    control: ControlPlane, saves: Saves, topic: Topic
) -> None:
    side = Side(control, await joined(control, 1))
    side.groups._limits = replace(side.groups._limits, max_members=0)
    with pytest.raises(Exception, match="no room"):
        await side.groups.heartbeat(join("a"))
    assert saves.count == 0
    await side.stop()


async def test_the_next_coordinator_goes_on_where_the_last_one_was_told_to(
    control: ControlPlane, saves: Saves, topic: Topic
) -> None:
    first = Side(control, await joined(control, 1))
    second = Side(control, await joined(control, 2))
    await control.groups.locate("g", BrokerId(1))
    await first.groups.heartbeat(join("a"))
    await first.groups.heartbeat(join("b"))
    told = await first.groups.heartbeat(beat("a", 1))
    assert told.assignment == parts(topic, 0, 1)
    with pytest.raises(NotCoordinatorError):
        await second.groups.heartbeat(beat("a", 1))
    await first.stop()

    await control.groups.locate("g", BrokerId(2))
    with pytest.raises(NotCoordinatorError):
        await first.groups.heartbeat(beat("a", 1))
    assert (await second.groups.heartbeat(beat("b", 2))).assignment is None
    done = await second.groups.heartbeat(beat("a", 1, parts(topic, 0, 1)))
    assert done.epoch == 2
    assert (await second.groups.heartbeat(beat("b", 2))).assignment == parts(topic, 2, 3)
    with pytest.raises(FencedMemberEpochError):
        await second.groups.heartbeat(beat("a", 1))
    with pytest.raises(UnknownMemberError):
        await second.groups.heartbeat(beat("c", 1))
    (summary,) = await control.groups.all()
    assert (summary.kind, summary.state_name) == (GroupKind.CONSUMER, "Stable")
    await second.stop()
