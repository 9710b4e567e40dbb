"""The APIs of group membership in every version, over a real control plane."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.kafka.handlers.group_desk import (
    GROUP,
    SUBSCRIPTION,
    GroupDesk,
    group_desk,
    versions,
)

from stratalog.kafka.wire.api import ApiKey

ALL_OPERATIONS_ON_A_GROUP = 3400
"""The number that Kafka 4.1 answers without an authorizer."""


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[GroupDesk]:
    async with group_desk(tmp_path) as desk:
        yield desk


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
        (1, "t", ErrorCode.unsupported_version),
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
    if version >= 3:
        assert shown.authorized_operations == ALL_OPERATIONS_ON_A_GROUP
    assert (shown.protocol_type, shown.protocol_data) == ("consumer", "range")
    [member] = shown.members
    assert (member.member_id, member.client_id) == (joined.member_id, "c")
    assert (member.member_metadata, member.member_assignment) == (SUBSCRIPTION, b"mine")
    assert (dead.group_state, dead.members) == ("Dead", ())
    assert dead.error_code is (ErrorCode.group_id_not_found if version >= 6 else ErrorCode.none)


@pytest.mark.parametrize("key", [ApiKey.DESCRIBE_GROUPS, ApiKey.CONSUMER_GROUP_DESCRIBE])
@pytest.mark.parametrize("asked", [False, True])
async def test_operations_on_a_group_are_listed_for_a_client_that_asks(
    desk: GroupDesk, key: ApiKey, asked: bool
) -> None:
    if key is ApiKey.DESCRIBE_GROUPS:
        await desk.stable()
        response = await desk.ask(key, 5, groups=(GROUP,), include_authorized_operations=asked)
    else:
        await desk.ask(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            1,
            group_id=GROUP,
            member_id="m",
            member_epoch=0,
            rebalance_timeout=timedelta(seconds=9),
            subscribed_topic_names=("events",),
            topic_partitions=(),
        )
        response = await desk.ask(key, 1, group_ids=(GROUP,), include_authorized_operations=asked)
    [group] = response.groups
    assert group.error_code is ErrorCode.none
    assert group.authorized_operations == (ALL_OPERATIONS_ON_A_GROUP if asked else -(2**31))


async def test_a_group_stays_without_its_last_offset_until_it_is_deleted(desk: GroupDesk) -> None:
    await desk.commit(group_id="simple")
    topics = [{"name": "events", "partitions": [{"partition_index": 0}]}]
    deleted = await desk.ask(ApiKey.OFFSET_DELETE, 0, group_id="simple", topics=topics)
    assert deleted.topics[0].partitions[0].error_code is ErrorCode.none
    listed = await desk.ask(ApiKey.LIST_GROUPS, 5)
    assert [one.group_id for one in listed.groups] == ["simple"]
    codes = [
        (await desk.ask(ApiKey.DELETE_GROUPS, 2, groups_names=("simple",))).results[0].error_code
        for _ in range(2)
    ]
    assert codes == [ErrorCode.none, ErrorCode.group_id_not_found]


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


# Configs.


async def test_a_member_is_asked_for_the_heartbeats_of_its_groups_configs(desk: GroupDesk) -> None:
    config = {"name": "consumer.heartbeat.interval.ms", "config_operation": 0, "value": "9000"}
    changed = {"resource_type": 32, "resource_name": GROUP, "configs": (config,)}
    altered = await desk.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=(changed,), validate_only=False
    )
    assert altered.responses[0].error_code is ErrorCode.none
    asked = {"resource_type": 32, "resource_name": GROUP, "configuration_keys": None}
    response = await desk.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=(asked,))
    shown = {one.name: (one.value, one.config_source) for one in response.results[0].configs}
    assert shown == {
        "consumer.session.timeout.ms": ("45000", 5),
        "consumer.heartbeat.interval.ms": ("9000", 8),
    }
    for group_id, interval_s in ((GROUP, 9), ("others", 5)):
        beat = await desk.ask(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            1,
            group_id=group_id,
            member_id="m",
            member_epoch=0,
            rebalance_timeout=timedelta(seconds=9),
            subscribed_topic_names=("events",),
            topic_partitions=(),
        )
        assert beat.heartbeat_interval == timedelta(seconds=interval_s)
