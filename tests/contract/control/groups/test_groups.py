"""Groups: one coordinator at a time, fenced by its term, and offsets that are never lost."""

import asyncio
from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from tests.contract.control.building import change, part

from stratalog.control.brokers.model import BrokerInfo
from stratalog.control.groups.errors import NotCoordinatorError, TooManyGroupsError
from stratalog.control.groups.model import (
    GroupKind,
    GroupOffsets,
    GroupRecord,
    LeftOut,
    OffsetToCommit,
)
from stratalog.control.plane import ControlPlane
from stratalog.control.sql.database import Database
from stratalog.control.topics.model import Topic
from stratalog.ids import BrokerId, Offset, PartitionIndex, TopicId, TopicPartition

GROUP = "readers"
STORED: LeftOut = frozenset()
WEEK_MS = 7 * 24 * 3600 * 1000


async def register(plane: ControlPlane, number: int, *, lease_ms: int = 60_000) -> BrokerInfo:
    return await plane.brokers.register(
        BrokerId(number),
        host="here",
        port=9000 + number,
        rack=None,
        incarnation=uuid4(),
        lease_ms=lease_ms,
    )


@pytest.fixture
async def first(plane: ControlPlane) -> BrokerInfo:
    return await register(plane, 1)


@pytest.fixture
async def second(plane: ControlPlane) -> BrokerInfo:
    return await register(plane, 2)


async def opened(plane: ControlPlane, broker: BrokerInfo, group_id: str = GROUP) -> GroupRecord:
    return await plane.groups.open(group_id, broker.broker_id, broker.incarnation)


async def kill(database: Database, broker: BrokerInfo) -> None:
    await change(
        database, "UPDATE brokers SET expires_ms = 0 WHERE broker_id = $1", broker.broker_id
    )


async def make_old(database: Database, *, by_ms: int = WEEK_MS) -> None:
    await change(
        database,
        "UPDATE groups SET changed_ms = changed_ms - $1, empty_since_ms = empty_since_ms - $1",
        by_ms,
    )
    await change(database, "UPDATE group_offsets SET committed_ms = committed_ms - $1", by_ms)


def offset_of(
    partition: TopicPartition, offset: int, *, epoch: int = 0, metadata: str = ""
) -> OffsetToCommit:
    return OffsetToCommit(
        topic_id=partition.topic_id,
        partition=partition.partition,
        offset=Offset(offset),
        leader_epoch=epoch,
        metadata=metadata,
    )


def commit_of(record: GroupRecord, *offsets: OffsetToCommit) -> GroupOffsets:
    return GroupOffsets(group_id=record.group_id, term=record.term, offsets=offsets)


async def committed(
    plane: ControlPlane, group_id: str = GROUP, wanted: list[TopicPartition] | None = None
) -> dict[int, int]:
    found = await plane.groups.offsets(group_id, wanted)
    return {each.partition: each.offset for each in found}


def stable(record: GroupRecord) -> GroupRecord:
    return replace(record, state_name="Stable", protocol_type="consumer", state=b"\x00\xffstate")


async def test_the_preferred_broker_coordinates_a_new_group_and_keeps_it(
    plane: ControlPlane, other: ControlPlane, first: BrokerInfo, second: BrokerInfo
) -> None:
    assert (await plane.groups.locate(GROUP, BrokerId(2))).broker_id == 2
    assert not await plane.groups.exists(GROUP), "asking makes no row"
    await opened(plane, second)
    assert (await other.groups.locate(GROUP, BrokerId(1))).broker_id == 2
    assert await other.groups.locate(GROUP, BrokerId(1)) == second


async def test_a_dead_coordinator_is_replaced_and_its_term_is_over(
    plane: ControlPlane, first: BrokerInfo, second: BrokerInfo, database: Database
) -> None:
    before = await opened(plane, first)
    await kill(database, first)
    assert (await plane.groups.locate(GROUP, BrokerId(2))).broker_id == 2
    after = await opened(plane, second)
    assert after.term > before.term
    with pytest.raises(NotCoordinatorError):
        await plane.groups.save(stable(before))
    with pytest.raises(NotCoordinatorError):
        await plane.groups.delete(GROUP, before.term)
    with pytest.raises(NotCoordinatorError):
        await plane.groups.delete_offsets(GROUP, before.term, [])
    assert await opened(plane, second) == after


async def test_another_incarnation_under_the_same_number_is_another_coordinator(
    plane: ControlPlane, first: BrokerInfo
) -> None:
    before = await opened(plane, first)
    await plane.brokers.remove(first.broker_id, first.incarnation)
    again = await register(plane, 1)
    with pytest.raises(NotCoordinatorError):
        await opened(plane, first)
    assert (await opened(plane, again)).term > before.term


async def test_who_is_not_alive_coordinates_nothing(
    plane: ControlPlane, first: BrokerInfo, database: Database
) -> None:
    with pytest.raises(NotCoordinatorError):
        await plane.groups.locate(GROUP, BrokerId(7))
    await kill(database, first)
    with pytest.raises(NotCoordinatorError):
        await plane.groups.locate(GROUP, first.broker_id)
    with pytest.raises(NotCoordinatorError):
        await opened(plane, first)
    assert await plane.groups.all() == []


async def test_a_group_of_another_live_broker_cannot_be_opened(
    plane: ControlPlane, first: BrokerInfo, second: BrokerInfo
) -> None:
    await opened(plane, first)
    with pytest.raises(NotCoordinatorError):
        await opened(plane, second)


async def test_opening_takes_over_from_a_dead_broker_with_all_that_was_saved(
    plane: ControlPlane, first: BrokerInfo, second: BrokerInfo, database: Database
) -> None:
    saved = stable(await opened(plane, first))
    await plane.groups.save(saved)
    await kill(database, first)
    taken = await opened(plane, second)
    assert taken == replace(saved, term=taken.term)
    assert taken.term > saved.term


async def test_of_two_that_open_a_new_group_at_once_one_coordinates_it(
    plane: ControlPlane, other: ControlPlane, first: BrokerInfo, second: BrokerInfo
) -> None:
    for number in range(10):
        name = f"group-{number}"
        outcomes = await asyncio.gather(
            opened(plane, first, name), opened(other, second, name), return_exceptions=True
        )
        assert [isinstance(one, NotCoordinatorError) for one in outcomes].count(True) == 1
        told = [
            await plane.groups.locate(name, BrokerId(1)),
            await other.groups.locate(name, BrokerId(2)),
        ]
        assert told[0] == told[1]


async def test_a_new_group_is_classic_and_empty(plane: ControlPlane, first: BrokerInfo) -> None:
    record = await opened(plane, first)
    assert (record.kind, record.state_name, record.state) == (GroupKind.CLASSIC, "Empty", b"")
    assert record.empty_since_ms is None


async def test_a_group_is_empty_since_its_first_empty_save(
    plane: ControlPlane, first: BrokerInfo
) -> None:
    record = await opened(plane, first)
    await plane.groups.save(stable(record))
    assert (await opened(plane, first)).empty_since_ms is None
    await plane.groups.save(replace(stable(record), state_name="Empty"))
    since = (await opened(plane, first)).empty_since_ms
    assert since is not None
    await asyncio.sleep(0.005)
    await plane.groups.save(replace(stable(record), state_name="Empty"))
    assert (await opened(plane, first)).empty_since_ms == since
    await plane.groups.save(stable(record))
    assert (await opened(plane, first)).empty_since_ms is None


async def test_groups_are_listed_with_their_live_coordinator(
    plane: ControlPlane, topic: Topic, first: BrokerInfo, second: BrokerInfo, database: Database
) -> None:
    consumer = replace(stable(await opened(plane, first, "b")), kind=GroupKind.CONSUMER)
    await plane.groups.save(consumer)
    only_offsets = await opened(plane, second, "a")
    await plane.groups.commit_offsets([commit_of(only_offsets, offset_of(part(topic), 1))])
    await plane.groups.locate("never-used", BrokerId(1))
    await kill(database, second)
    listed = await plane.groups.all()
    assert [(each.group_id, each.kind, each.state_name) for each in listed] == [
        ("a", GroupKind.CLASSIC, "Empty"),
        ("b", GroupKind.CONSUMER, "Stable"),
    ]
    assert [each.coordinator for each in listed] == [None, first]


async def test_offsets_of_many_groups_are_committed_together(
    plane: ControlPlane, topic: Topic, first: BrokerInfo, second: BrokerInfo
) -> None:
    records = [await opened(plane, first, f"group-{number}") for number in range(3)]
    foreign = replace(records[0], term=records[0].term - 1)
    key = part(topic)
    answers = await plane.groups.commit_offsets(
        [
            commit_of(records[0], offset_of(key, 5), offset_of(part(topic, 2), 6)),
            commit_of(foreign, offset_of(key, 999)),
            commit_of(records[1], offset_of(key, 7)),
            commit_of(records[1], offset_of(key, 8)),
            commit_of(records[2]),
            GroupOffsets(group_id="nobody's", term=1, offsets=[offset_of(key, 1)]),
        ]
    )
    assert answers == [STORED, None, STORED, STORED, STORED, None]
    assert await committed(plane, "group-0") == {0: 5, 2: 6}
    assert await committed(plane, "group-1") == {0: 8}
    assert await committed(plane, "group-2") == await committed(plane, "nobody's") == {}


async def test_offsets_move_forward_and_back_as_the_client_wants(
    plane: ControlPlane, topic: Topic, first: BrokerInfo
) -> None:
    record = await opened(plane, first)
    for offset in (5, 10, 3):
        await plane.groups.commit_offsets([commit_of(record, offset_of(part(topic), offset))])
        assert await committed(plane) == {0: offset}


@pytest.mark.parametrize("metadata", ["", "plain", "nul \x00 and 😀", "x" * 5000])
async def test_what_was_committed_comes_back_as_it_was(
    plane: ControlPlane, topic: Topic, first: BrokerInfo, metadata: str
) -> None:
    record = await opened(plane, first)
    sent = offset_of(part(topic, 1), 2**62, epoch=-1, metadata=metadata)
    await plane.groups.commit_offsets([commit_of(record, sent)])
    [found] = await plane.groups.offsets(GROUP, [part(topic, 1)])
    assert (found.offset, found.leader_epoch, found.metadata) == (2**62, -1, metadata)
    assert found.committed_ms > 0


async def test_only_the_wanted_partitions_are_told(
    plane: ControlPlane, topic: Topic, first: BrokerInfo
) -> None:
    record = await opened(plane, first)
    sent = [offset_of(part(topic, number), number) for number in range(3)]
    await plane.groups.commit_offsets([commit_of(record, *sent)])
    assert await committed(plane, GROUP, [part(topic, 2), part(topic, 9)]) == {2: 2}
    assert await committed(plane, GROUP, []) == {}
    assert await committed(plane) == {0: 0, 1: 1, 2: 2}


async def test_offsets_of_unknown_topics_and_partitions_are_left_out(
    plane: ControlPlane, topic: Topic, first: BrokerInfo
) -> None:
    record = await opened(plane, first)
    strange = TopicPartition(TopicId(UUID(int=5)), PartitionIndex(0))
    sent = [offset_of(strange, 1), offset_of(part(topic, 2), 2), offset_of(part(topic, 3), 3)]
    [left_out] = await plane.groups.commit_offsets([commit_of(record, *sent)])
    assert left_out == frozenset([strange, part(topic, 3)])
    assert await committed(plane) == {2: 2}


async def test_a_commit_tells_of_its_own_partitions_alone_which_were_left_out(
    plane: ControlPlane, topic: Topic, first: BrokerInfo
) -> None:
    records = [await opened(plane, first, f"group-{number}") for number in range(2)]
    gone = await plane.topics.create("gone", partition_count=1, configs={})
    await plane.topics.delete(gone.id)
    answers = await plane.groups.commit_offsets(
        [
            commit_of(records[0], offset_of(part(topic), 1)),
            commit_of(records[1], offset_of(part(topic), 2), offset_of(part(gone), 3)),
        ]
    )
    assert answers == [STORED, frozenset([part(gone)])]
    assert await committed(plane, "group-1") == {0: 2}


async def test_a_deleted_topic_takes_its_offsets_along(
    plane: ControlPlane, topic: Topic, first: BrokerInfo, database: Database
) -> None:
    kept = await plane.topics.create("kept", partition_count=1, configs={})
    record = await opened(plane, first)
    sent = [offset_of(part(topic, 1), 1), offset_of(part(kept), 2)]
    await plane.groups.commit_offsets([commit_of(record, *sent)])
    await plane.topics.delete(topic.id)
    assert await committed(plane) == {0: 2}
    await plane.topics.purge_deleted(window_ms=0, max_rows=100)
    rows = await database.read(
        lambda connection: connection.fetch("SELECT partition FROM group_offsets")
    )
    assert [tuple(row) for row in rows] == [(0,)]


async def test_a_deleted_group_has_no_offsets_and_its_term_never_comes_back(
    plane: ControlPlane, topic: Topic, first: BrokerInfo
) -> None:
    record = await opened(plane, first)
    commit = commit_of(record, offset_of(part(topic), 5))
    await plane.groups.commit_offsets([commit])
    await plane.groups.delete(GROUP, record.term)
    assert await plane.groups.all() == []
    assert await plane.groups.commit_offsets([commit]) == [None]
    await asyncio.sleep(0.005)
    assert (await opened(plane, first)).term > record.term
    assert await plane.groups.commit_offsets([commit]) == [None]
    assert await committed(plane) == {}


async def test_chosen_offsets_are_deleted(
    plane: ControlPlane, topic: Topic, first: BrokerInfo
) -> None:
    record = await opened(plane, first)
    sent = [offset_of(part(topic, number), number) for number in range(3)]
    await plane.groups.commit_offsets([commit_of(record, *sent)])
    await plane.groups.delete_offsets(GROUP, record.term, [part(topic, 0), part(topic, 2)])
    assert await committed(plane) == {1: 1}


@pytest.mark.parametrize(("age_ms", "left"), [(WEEK_MS - 60_000, 2), (WEEK_MS, 0)])
async def test_offsets_of_a_group_that_never_had_members_expire_by_their_commit(
    plane: ControlPlane,
    topic: Topic,
    first: BrokerInfo,
    database: Database,
    age_ms: int,
    left: int,
) -> None:
    record = await opened(plane, first)
    sent = [offset_of(part(topic, number), number) for number in range(2)]
    await plane.groups.commit_offsets([commit_of(record, *sent)])
    await make_old(database, by_ms=age_ms)
    await asyncio.sleep(0.005)
    assert await plane.groups.expire_offsets(retention_ms=WEEK_MS, max_rows=100) == 2 - left
    assert len(await committed(plane)) == left
    assert len(await plane.groups.all()) == (1 if left else 0)


@pytest.mark.parametrize(("state_name", "left"), [("Stable", 1), ("Empty", 0)])
async def test_only_offsets_of_empty_groups_expire(
    plane: ControlPlane,
    topic: Topic,
    first: BrokerInfo,
    database: Database,
    state_name: str,
    left: int,
) -> None:
    record = replace(stable(await opened(plane, first)), state_name=state_name)
    await plane.groups.save(record)
    await plane.groups.commit_offsets([commit_of(record, offset_of(part(topic), 4))])
    await make_old(database)
    await asyncio.sleep(0.005)
    assert await plane.groups.expire_offsets(retention_ms=WEEK_MS, max_rows=100) == 1 - left
    assert len(await committed(plane)) == left
    assert len(await plane.groups.all()) == left


async def test_a_group_that_was_left_just_now_keeps_its_old_offsets(
    plane: ControlPlane, topic: Topic, first: BrokerInfo, database: Database
) -> None:
    record = stable(await opened(plane, first))
    await plane.groups.save(record)
    await plane.groups.commit_offsets([commit_of(record, offset_of(part(topic), 4))])
    await make_old(database)
    await plane.groups.save(replace(record, state_name="Empty"))
    assert await plane.groups.expire_offsets(retention_ms=WEEK_MS, max_rows=100) == 0
    assert await committed(plane) == {0: 4}


async def test_expiry_takes_no_more_than_asked_at_a_time(
    plane: ControlPlane, topic: Topic, first: BrokerInfo, database: Database
) -> None:
    record = await opened(plane, first)
    sent = [offset_of(part(topic, number), number) for number in range(3)]
    await plane.groups.commit_offsets([commit_of(record, *sent)])
    await make_old(database)
    await asyncio.sleep(0.005)
    assert await plane.groups.expire_offsets(retention_ms=WEEK_MS, max_rows=2) == 2
    assert len(await plane.groups.all()) == 1
    assert await plane.groups.expire_offsets(retention_ms=WEEK_MS, max_rows=2) == 1
    assert await plane.groups.all() == []


async def test_an_undeleted_topic_has_the_offsets_of_its_groups_again(
    plane: ControlPlane, topic: Topic, first: BrokerInfo
) -> None:
    record = await opened(plane, first)
    await plane.groups.commit_offsets([commit_of(record, offset_of(part(topic, 1), 5))])
    await plane.topics.delete(topic.id)
    assert await committed(plane) == {}
    await plane.topics.undelete(topic.id, "events")
    assert await committed(plane) == {1: 5}


async def test_no_more_groups_are_made_than_allowed(plane: ControlPlane, first: BrokerInfo) -> None:
    async def make(name: str) -> GroupRecord:
        return await plane.groups.open(name, first.broker_id, first.incarnation, most=2)

    assert [(await make(name)).group_id for name in ("a", "b")] == ["a", "b"]
    with pytest.raises(TooManyGroupsError):
        await make("c")
    assert not await plane.groups.exists("c")
    assert (await make("a")).group_id == "a"


async def test_groups_with_members_are_named_to_their_coordinator_and_when_it_is_dead(
    plane: ControlPlane, first: BrokerInfo, second: BrokerInfo, database: Database
) -> None:
    for group_id, state_name in (("stable", "Stable"), ("empty", "Empty"), ("unsaved", "")):
        record = await opened(plane, first, group_id)
        if state_name:
            await plane.groups.save(replace(record, state_name=state_name, state=b"{}"))
    assert await plane.groups.with_members(first.broker_id) == [("stable", first.broker_id)]
    assert await plane.groups.with_members(second.broker_id) == []
    await kill(database, first)
    for broker in (first, second):
        assert await plane.groups.with_members(broker.broker_id) == [("stable", None)]
