"""The APIs of groups in every version, over a real control plane."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from kio.schema.errors import ErrorCode
from tests.faults.controls import ControlWrapper
from tests.unit.kafka.desk import Appends, Offsets, Reads, answered, framed, parsed

from stratalog.clock import SystemClock
from stratalog.cluster.membership import Membership
from stratalog.control.model import Topic
from stratalog.control.open import open_control_plane
from stratalog.control.plane import ControlUnavailableError
from stratalog.groups.classic_groups import ClassicGroups
from stratalog.groups.consumer.groups import ConsumerGroups
from stratalog.groups.coordinator import GroupCoordinator
from stratalog.kafka.api import SERVED, ApiKey
from stratalog.kafka.components import Components
from stratalog.kafka.registry import dispatcher
from stratalog.metrics import Metrics
from stratalog.settings import GroupsSettings, Settings
from stratalog.topic.catalog import TopicCatalog

GROUP = "readers"
SUBSCRIPTION = b"\0\0\0\0\0\1\0\6events"
SETTINGS = Settings(groups=GroupsSettings(initial_rebalance_delay_ms=0))


class AwayControl(ControlWrapper):
    """A control plane that can be cut off from reading offsets and saving groups."""

    is_away = False

    def __getattr__(self, name: str) -> Any:
        if self.is_away and name in ("group_offsets", "save_group", "open_group", "locate_group"):
            return self._fail
        return super().__getattr__(name)

    async def _fail(self, *args: Any, **more: Any) -> Any:
        raise ControlUnavailableError("away")


class GroupDesk:
    """A dispatcher whose topics and groups are in SQLite."""

    def __init__(self, control: AwayControl, membership: Membership) -> None:
        clock = SystemClock()
        self.control = control
        self.membership = membership
        self.groups = GroupCoordinator(control=control.plane, membership=membership, clock=clock)
        catalog = TopicCatalog(control=control.plane, clock=clock)
        components = Components(
            settings=SETTINGS,
            membership=membership,
            control=control.plane,
            catalog=catalog,
            appender=Appends(),
            reader=Reads(),
            offsets=Offsets(),
            groups=self.groups,
            classic_groups=ClassicGroups(self.groups, SETTINGS.groups),
            consumer_groups=ConsumerGroups(self.groups, catalog, SETTINGS.groups, clock=clock),
        )
        self.dispatcher = dispatcher(components, clock=clock, metrics=Metrics())

    async def ask(self, key: ApiKey, version: int, /, **values: Any) -> Any:
        accepted = await self.dispatcher.accept(framed(key, version, values))
        response = await answered(accepted)
        assert response is not None
        return parsed(key, version, b"".join(response))

    async def join(self, version: int = 3, **more: Any) -> Any:
        values = {
            "group_id": GROUP,
            "session_timeout": timedelta(seconds=10),
            "rebalance_timeout": timedelta(seconds=10),
            "member_id": "",
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": ({"name": "range", "metadata": SUBSCRIPTION},),
            "reason": None,
        }
        return await self.ask(ApiKey.JOIN_GROUP, version, **values | more)

    async def sync(self, joined: Any, version: int = 3, **more: Any) -> Any:
        values = {
            "group_id": GROUP,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": ({"member_id": joined.member_id, "assignment": b"mine"},),
        }
        return await self.ask(ApiKey.SYNC_GROUP, version, **values | more)

    async def stable(self) -> Any:
        joined = await self.join()
        await self.sync(joined)
        return joined

    async def commit(
        self, version: int = 9, partition: int = 0, offset: int = 5, **more: Any
    ) -> ErrorCode:
        topic = more.pop("topic", self.topic)
        values = {
            "group_id": GROUP,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "retention_time": timedelta(0),
            "topics": (
                {
                    "name": topic.name,
                    "topic_id": topic.id,
                    "partitions": (
                        {
                            "partition_index": partition,
                            "committed_offset": offset,
                            "committed_leader_epoch": 3,
                            "committed_metadata": more.pop("metadata", "note"),
                        },
                    ),
                },
            ),
        }
        response = await self.ask(ApiKey.OFFSET_COMMIT, version, **values | more)
        [answer] = response.topics
        assert (answer.topic_id if version >= 10 else answer.name) == (
            topic.id if version >= 10 else topic.name
        )
        [one] = answer.partitions
        code: ErrorCode = one.error_code
        return code

    async def fetch(self, version: int = 9, partitions: tuple[int, ...] | None = (0,)) -> Any:
        topics = None
        if partitions is not None:
            asked = {"name": self.topic.name, "topic_id": self.topic.id}
            topics = ({**asked, "partition_indexes": partitions},)
        one = {"group_id": GROUP, "member_id": None, "member_epoch": -1, "topics": topics}
        values = {**one, "groups": (one,), "require_stable": True}
        response = await self.ask(ApiKey.OFFSET_FETCH, version, **values)
        return response.groups[0] if version >= 8 else response

    topic: Topic


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[GroupDesk]:
    plane = await open_control_plane(f"sqlite:{tmp_path / 'control.db'}")
    control = AwayControl(plane)
    membership = await Membership.join(
        control=plane,
        clock=SystemClock(),
        broker_id=None,
        host="here",
        port=9,
        rack=None,
        incarnation=uuid4(),
        lease_ms=60_000,
    )
    made = GroupDesk(control, membership)
    made.topic = await plane.create_topic("events", partition_count=2, configs={})
    yield made
    control.is_away = False
    await made.groups.stop()
    await membership.leave()
    await plane.close()


def versions(key: ApiKey) -> range:
    return range(SERVED[key].first, SERVED[key].last + 1)


# FindCoordinator.


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
async def test_the_coordinator_is_found(desk: GroupDesk, version: int) -> None:
    asked: dict[str, Any] = {"key": GROUP} if version < 4 else {"coordinator_keys": (GROUP, "b")}
    response = await desk.ask(ApiKey.FIND_COORDINATOR, version, key_type=0, **asked)
    found = response.coordinators if version >= 4 else [response]
    assert {(one.error_code, one.node_id, one.host, one.port) for one in found} == {
        (ErrorCode.none, 0, "here", 9)
    }
    if version >= 4:
        assert [one.key for one in found] == [GROUP, "b"]


async def test_no_coordinator_is_found_while_the_control_plane_is_away(desk: GroupDesk) -> None:
    desk.control.is_away = True
    response = await desk.ask(ApiKey.FIND_COORDINATOR, 2, key_type=0, key=GROUP)
    assert response.error_code is ErrorCode.coordinator_not_available
    assert response.node_id == -1


@pytest.mark.parametrize(
    ("kind", "key", "code"),
    [
        (0, "nul\0", ErrorCode.invalid_group_id),
        (1, "t", ErrorCode.transactional_id_authorization_failed),
        (2, "share", ErrorCode.invalid_request),
    ],
)
async def test_what_has_no_coordinator_is_refused(
    desk: GroupDesk, kind: int, key: str, code: ErrorCode
) -> None:
    response = await desk.ask(ApiKey.FIND_COORDINATOR, 6, key_type=kind, coordinator_keys=(key,))
    [answer] = response.coordinators
    assert answer.error_code is code
    assert answer.error_message


# Members.


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
async def test_a_member_joins(desk: GroupDesk, version: int) -> None:
    joined = await desk.join(version)
    if version >= 4:
        assert joined.error_code is ErrorCode.member_id_required
        assert joined.protocol_name == (None if version >= 7 else "")
        joined = await desk.join(version, member_id=joined.member_id)
    assert (joined.error_code, joined.generation_id) == (ErrorCode.none, 1)
    assert joined.protocol_name == "range"
    assert joined.leader == joined.member_id
    [member] = joined.members
    assert (member.member_id, member.metadata) == (joined.member_id, SUBSCRIPTION)


@pytest.mark.parametrize("version", versions(ApiKey.SYNC_GROUP))
async def test_a_member_gets_its_assignment(desk: GroupDesk, version: int) -> None:
    synced = await desk.sync(await desk.join(), version)
    assert (synced.error_code, synced.assignment) == (ErrorCode.none, b"mine")
    if version >= 5:
        assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")


@pytest.mark.parametrize("version", versions(ApiKey.HEARTBEAT))
async def test_a_heartbeat_is_answered(desk: GroupDesk, version: int) -> None:
    joined = await desk.stable()
    asked = {"group_id": GROUP, "generation_id": 1, "member_id": joined.member_id}
    assert (await desk.ask(ApiKey.HEARTBEAT, version, **asked)).error_code is ErrorCode.none
    for wrong, code in (
        ({"member_id": "x"}, ErrorCode.unknown_member_id),
        ({"generation_id": 2}, ErrorCode.illegal_generation),
        ({"group_id": ""}, ErrorCode.invalid_group_id),
        ({"group_id": "unknown"}, ErrorCode.unknown_member_id),
    ):
        answer = await desk.ask(ApiKey.HEARTBEAT, version, **asked | wrong)
        assert answer.error_code is code


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP))
async def test_a_member_leaves(desk: GroupDesk, version: int) -> None:
    joined = await desk.stable()

    async def leave(*ids: str) -> Any:
        members = tuple({"member_id": each, "reason": "over"} for each in ids)
        return await desk.ask(
            ApiKey.LEAVE_GROUP, version, group_id=GROUP, member_id=ids[0], members=members
        )

    if version < 3:
        assert (await leave("x")).error_code is ErrorCode.unknown_member_id
        assert (await leave(joined.member_id)).error_code is ErrorCode.none
    else:
        answer = await leave("x", joined.member_id)
        assert answer.error_code is ErrorCode.none
        assert [(one.member_id, one.error_code) for one in answer.members] == [
            ("x", ErrorCode.unknown_member_id),
            (joined.member_id, ErrorCode.none),
        ]
    [summary] = await desk.groups.listed()
    assert summary.state_name == "Empty"


@pytest.mark.parametrize("version", [0, 5, 9])
async def test_a_join_that_is_wrong_is_refused_with_its_member_id(
    desk: GroupDesk, version: int
) -> None:
    for wrong, code in (
        ({"group_id": ""}, ErrorCode.invalid_group_id),
        ({"session_timeout": timedelta(seconds=1)}, ErrorCode.invalid_session_timeout),
        ({"protocols": ()}, ErrorCode.inconsistent_group_protocol),
        ({}, ErrorCode.unknown_member_id),
    ):
        answer = await desk.join(version, member_id="somebody", **wrong)
        assert (answer.error_code, answer.member_id) == (code, "somebody")
        assert answer.generation_id == -1


async def test_a_sync_must_name_its_protocol_since_version_5(desk: GroupDesk) -> None:
    joined = await desk.join()
    answer = await desk.sync(joined, 5, protocol_name=None)
    assert answer.error_code is ErrorCode.inconsistent_group_protocol


async def test_members_hear_of_a_coordinator_that_is_away_and_of_no_storage(
    desk: GroupDesk,
) -> None:
    joined = await desk.join()
    desk.control.is_away = True
    assert (await desk.sync(joined)).error_code is ErrorCode.coordinator_not_available
    assert (await desk.join(group_id="b")).error_code is ErrorCode.coordinator_not_available


async def test_who_waits_hears_when_the_broker_stops(desk: GroupDesk) -> None:
    await desk.stable()
    waiting = asyncio.create_task(desk.join())
    await asyncio.sleep(0.01)
    await desk.groups.stop()
    assert (await waiting).error_code is ErrorCode.not_coordinator
    assert (await desk.commit()) is ErrorCode.not_coordinator
    assert (await desk.fetch()).error_code is ErrorCode.not_coordinator


# Offsets.


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
async def test_offsets_are_committed(desk: GroupDesk, version: int) -> None:
    assert await desk.commit(version) is ErrorCode.none
    [found] = (await desk.fetch()).topics[0].partitions
    assert (found.committed_offset, found.metadata) == (5, "note")
    assert found.committed_leader_epoch == (3 if version >= 6 else -1)


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
async def test_offsets_are_fetched(desk: GroupDesk, version: int) -> None:
    await desk.commit()
    answer = await desk.fetch(version, (0, 1))
    [topic] = answer.topics
    assert (topic.topic_id if version >= 10 else topic.name) == (
        desk.topic.id if version >= 10 else "events"
    )
    assert [(one.committed_offset, one.metadata) for one in topic.partitions] == [
        (5, "note"),
        (-1, ""),
    ]
    assert {one.error_code for one in topic.partitions} == {ErrorCode.none}
    if version >= 5:
        assert [one.committed_leader_epoch for one in topic.partitions] == [3, -1]


@pytest.mark.parametrize("version", range(2, 11))
async def test_all_offsets_are_fetched(desk: GroupDesk, version: int) -> None:
    await desk.commit(partition=1, offset=8)
    answer = await desk.fetch(version, None)
    assert answer.error_code is ErrorCode.none
    [topic] = answer.topics
    assert (topic.topic_id if version >= 10 else topic.name) == (
        desk.topic.id if version >= 10 else "events"
    )
    assert [(one.partition_index, one.committed_offset) for one in topic.partitions] == [(1, 8)]


async def test_offsets_of_several_groups_are_fetched(desk: GroupDesk) -> None:
    await desk.commit()
    groups = tuple(
        {"group_id": name, "member_id": None, "member_epoch": -1, "topics": None}
        for name in (GROUP, "other", "nul\0")
    )
    response = await desk.ask(ApiKey.OFFSET_FETCH, 9, groups=groups, require_stable=False)
    assert [(one.group_id, one.error_code, len(one.topics)) for one in response.groups] == [
        (GROUP, ErrorCode.none, 1),
        ("other", ErrorCode.none, 0),
        ("nul\0", ErrorCode.invalid_group_id, 0),
    ]


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
async def test_an_offset_that_cannot_be_read_is_an_error_and_never_minus_one(
    desk: GroupDesk, version: int
) -> None:
    await desk.commit()
    desk.control.is_away = True
    answer = await desk.fetch(version)
    code = answer.topics[0].partitions[0].error_code if version < 2 else answer.error_code
    assert code is ErrorCode.coordinator_not_available
    assert version < 2 or answer.topics == ()


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ("x" * 4096, ErrorCode.none),
        ("x" * 4097, ErrorCode.offset_metadata_too_large),
        (None, ErrorCode.none),
    ],
)
async def test_metadata_has_a_limit(desk: GroupDesk, metadata: str | None, code: ErrorCode) -> None:
    assert await desk.commit(metadata=metadata) is code
    [found] = (await desk.fetch()).topics[0].partitions
    assert found.metadata == ((metadata or "") if code is ErrorCode.none else "")


@pytest.mark.parametrize(
    ("version", "partition", "known", "code"),
    [
        (9, 2, True, ErrorCode.unknown_topic_or_partition),
        (9, -1, True, ErrorCode.unknown_topic_or_partition),
        (9, 0, False, ErrorCode.unknown_topic_or_partition),
        (10, 0, False, ErrorCode.unknown_topic_id),
    ],
)
async def test_commits_of_what_does_not_exist_are_refused(
    desk: GroupDesk, version: int, partition: int, known: bool, code: ErrorCode
) -> None:
    strange = replace(desk.topic, name="strange", id=UUID(int=7))  # type: ignore[arg-type]
    topic = desk.topic if known else strange
    assert await desk.commit(version, partition, topic=topic) is code


async def test_partitions_that_were_added_elsewhere_are_known(desk: GroupDesk) -> None:
    assert await desk.commit() is ErrorCode.none
    await desk.control.inner.add_partitions(desk.topic.id, partition_count=5)
    assert await desk.commit(partition=4) is ErrorCode.none
    assert (await desk.fetch(9, (4,))).topics[0].partitions[0].committed_offset == 5


async def test_commits_are_checked_against_the_members(desk: GroupDesk) -> None:
    joined = await desk.stable()
    member = {"member_id": joined.member_id, "generation_id_or_member_epoch": 1}
    assert await desk.commit(**member) is ErrorCode.none
    for wrong, code in (
        ({"generation_id_or_member_epoch": 2}, ErrorCode.illegal_generation),
        ({"member_id": "x"}, ErrorCode.unknown_member_id),
        ({"group_instance_id": "i"}, ErrorCode.unknown_member_id),
    ):
        assert await desk.commit(**member | wrong) is code
    assert await desk.commit() is ErrorCode.unknown_member_id


async def test_offsets_are_deleted_partition_by_partition(desk: GroupDesk) -> None:
    async def delete(topic: str, partition: int) -> tuple[ErrorCode, ErrorCode | None]:
        topics = ({"name": topic, "partitions": ({"partition_index": partition},)},)
        answer = await desk.ask(ApiKey.OFFSET_DELETE, 0, group_id=GROUP, topics=topics)
        inner = answer.topics[0].partitions[0].error_code if answer.topics else None
        return answer.error_code, inner

    assert await delete("events", 0) == (ErrorCode.group_id_not_found, None)
    joined = await desk.stable()
    await desk.commit(member_id=joined.member_id, generation_id_or_member_epoch=1)
    assert await delete("events", 0) == (ErrorCode.none, ErrorCode.group_subscribed_to_topic)
    assert await delete("strange", 0) == (ErrorCode.none, ErrorCode.unknown_topic_or_partition)
    await desk.ask(ApiKey.LEAVE_GROUP, 0, group_id=GROUP, member_id=joined.member_id)
    assert await delete("events", 0) == (ErrorCode.none, ErrorCode.none)
    assert (await desk.fetch()).topics[0].partitions[0].committed_offset == -1


# Administration.


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
async def test_groups_are_listed(desk: GroupDesk, version: int) -> None:
    await desk.stable()
    await desk.commit(group_id="simple")
    response = await desk.ask(ApiKey.LIST_GROUPS, version)
    assert [(one.group_id, one.protocol_type) for one in response.groups] == [
        (GROUP, "consumer"),
        ("simple", ""),
    ]
    if version >= 4:
        assert [one.group_state for one in response.groups] == ["Stable", "Empty"]
    if version >= 5:
        assert {one.group_type for one in response.groups} == {"Classic"}


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"states_filter": ("stable",)}, [GROUP]),
        ({"states_filter": ("EMPTY", "Dead")}, ["simple"]),
        ({"types_filter": ("Classic",)}, [GROUP, "simple"]),
        ({"types_filter": ("consumer",)}, []),
        ({"states_filter": ("Stable",), "types_filter": ("consumer",)}, []),
    ],
)
async def test_listed_groups_are_filtered(
    desk: GroupDesk, filters: dict[str, Any], found: list[str]
) -> None:
    await desk.stable()
    await desk.commit(group_id="simple")
    response = await desk.ask(ApiKey.LIST_GROUPS, 5, **filters)
    assert [one.group_id for one in response.groups] == found


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
async def test_groups_are_described(desk: GroupDesk, version: int) -> None:
    joined = await desk.stable()
    asked = {"groups": (GROUP, "unknown"), "include_authorized_operations": True}
    response = await desk.ask(ApiKey.DESCRIBE_GROUPS, version, **asked)
    shown, dead = response.groups
    assert (shown.error_code, shown.group_state) == (ErrorCode.none, "Stable")
    assert (shown.protocol_type, shown.protocol_data) == ("consumer", "range")
    [member] = shown.members
    assert (member.member_id, member.client_id) == (joined.member_id, "c")
    assert (member.member_metadata, member.member_assignment) == (SUBSCRIPTION, b"mine")
    assert (dead.group_state, dead.members) == ("Dead", ())
    assert dead.error_code is (ErrorCode.group_id_not_found if version >= 6 else ErrorCode.none)


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
async def test_groups_are_deleted(desk: GroupDesk, version: int) -> None:
    await desk.stable()
    await desk.commit(group_id="simple")
    asked = (GROUP, "simple", "unknown")
    response = await desk.ask(ApiKey.DELETE_GROUPS, version, groups_names=asked)
    assert {one.group_id: one.error_code for one in response.results} == {
        GROUP: ErrorCode.non_empty_group,
        "simple": ErrorCode.none,
        "unknown": ErrorCode.group_id_not_found,
    }
