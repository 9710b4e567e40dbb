"""The APIs of committed offsets in every version, over a real control plane."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.kafka.handlers.group_desk import GROUP, GroupDesk, group_desk, versions

from stratalog.kafka.wire.api import ApiKey


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[GroupDesk]:
    async with group_desk(tmp_path) as desk:
        yield desk


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
    await desk.control.inner.topics.add_partitions(desk.topic.id, partition_count=5)
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
