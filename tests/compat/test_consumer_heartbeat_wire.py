"""ConsumerGroupHeartbeat and its neighbours by hand: requests that librdkafka does not send, and
responses that it hides."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from tests.support.clusters import BASE, Cluster, create, fresh_topic, one_broker
from tests.support.wire import Wire, connected

from stratalog.kafka.wire.api import ApiKey
from stratalog.kafka.wire.schema_writer import entity_of

NEWEST = 1
JOIN = {"member_epoch": 0, "rebalance_timeout": timedelta(seconds=10), "topic_partitions": []}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp("wire")
    with one_broker(folder, base=BASE) as cluster:
        yield cluster


@pytest.fixture
def wire(broker: Cluster) -> Iterator[Wire]:
    with connected(broker.bootstrap) as connection:
        yield connection


@pytest.fixture
def topic(broker: Cluster) -> str:
    return create(broker, fresh_topic("beaten"), partitions=2)


class Caller:
    """Sends heartbeats of one group."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.group_id = f"group-{uuid4().hex[:8]}"

    def beat(self, member_id: str, *, version: int = NEWEST, **values: Any) -> Any:
        given = {"topic_partitions": None, **values}
        return self.ask(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            version,
            group_id=self.group_id,
            member_id=member_id,
            **given,
        )

    def join(self, member_id: str, topic: str, **values: Any) -> Any:
        return self.beat(member_id, subscribed_topic_names=[topic], **{**JOIN, **values})

    def commit(self, version: int, member_id: str, epoch: int, topic: str) -> ErrorCode:
        partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        answer = self.ask(
            ApiKey.OFFSET_COMMIT,
            version,
            group_id=self.group_id,
            member_id=member_id,
            generation_id_or_member_epoch=epoch,
            retention_time=timedelta(milliseconds=-1),
            topics=[{"name": topic, "partitions": [partition]}],
        )
        code: ErrorCode = answer.topics[0].partitions[0].error_code
        return code

    def ask(self, key: ApiKey, version: int, /, **values: Any) -> Any:
        request = entity_of(load_request_schema(key, version), values)
        return self._wire.ask(request, load_response_schema(key, version))


@pytest.fixture
def caller(wire: Wire) -> Caller:
    return Caller(wire)


def test_version_0_makes_an_id_for_a_member_that_has_none(caller: Caller, topic: str) -> None:
    answer = caller.join("", topic, version=0)
    assert answer.error_code is ErrorCode.none
    assert UUID(answer.member_id)
    again = caller.beat(answer.member_id, version=0, member_epoch=answer.member_epoch)
    assert (again.error_code, again.assignment) == (ErrorCode.none, None)
    refused = caller.join("", topic)
    assert refused.error_code is ErrorCode.invalid_request


def test_an_answer_tells_epoch_interval_and_assignment(caller: Caller, topic: str) -> None:
    answer = caller.join("a", topic)
    assert (answer.member_id, answer.member_epoch) == ("a", 1)
    assert answer.heartbeat_interval == timedelta(seconds=5)
    (assigned,) = answer.assignment.topic_partitions
    assert assigned.partitions == (0, 1)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"member_epoch": 7}, ErrorCode.fenced_member_epoch),
        ({"member_epoch": -2}, ErrorCode.invalid_request),
        ({"member_epoch": -3}, ErrorCode.invalid_request),
        ({"member_epoch": 1, "instance_id": ""}, ErrorCode.invalid_request),
        ({"member_epoch": 1, "instance_id": "i"}, ErrorCode.unknown_member_id),
        ({"member_epoch": 1, "server_assignor": "x"}, ErrorCode.unsupported_assignor),
        ({"member_epoch": 1, "subscribed_topic_regex": "("}, ErrorCode.invalid_regular_expression),
        ({"member_epoch": 1}, ErrorCode.none),
    ],
)
def test_a_wrong_heartbeat_is_answered_with_its_error(
    caller: Caller, topic: str, values: dict[str, Any], expected: ErrorCode
) -> None:
    caller.join("a", topic)
    answer = caller.beat("a", **values)
    assert answer.error_code is expected
    assert (answer.error_message is None) == (expected is ErrorCode.none)


def test_members_and_instances_that_are_not_known_are_told_so(caller: Caller, topic: str) -> None:
    assert caller.beat("a", member_epoch=1).error_code is ErrorCode.group_id_not_found
    caller.join("a", topic, instance_id="i")
    assert caller.beat("b", member_epoch=1).error_code is ErrorCode.unknown_member_id
    taken = caller.join("b", topic, instance_id="i")
    assert taken.error_code is ErrorCode.unreleased_instance_id
    fenced = caller.beat("b", member_epoch=1, instance_id="i")
    assert fenced.error_code is ErrorCode.fenced_instance_id


def test_a_static_member_hears_its_own_epoch_back_when_it_leaves(
    caller: Caller, topic: str
) -> None:
    caller.join("a", topic, instance_id="i")
    gone = caller.beat("a", member_epoch=-2, instance_id="i")
    assert (gone.error_code, gone.member_epoch) == (ErrorCode.none, -2)
    back = caller.join("b", topic, instance_id="i")
    assert (back.error_code, back.member_epoch) == (ErrorCode.none, 1)
    left = caller.beat("b", member_epoch=-1)
    assert (left.error_code, left.member_epoch) == (ErrorCode.none, -1)


@pytest.mark.parametrize(
    ("member_id", "epoch", "expected"),
    [
        ("a", 1, ErrorCode.none),
        ("a", 0, ErrorCode.stale_member_epoch),
        ("a", 2, ErrorCode.stale_member_epoch),
        ("b", 1, ErrorCode.unknown_member_id),
        ("", -1, ErrorCode.unknown_member_id),
    ],
)
def test_offsets_are_committed_by_members_at_their_epoch(
    caller: Caller, topic: str, member_id: str, epoch: int, expected: ErrorCode
) -> None:
    caller.join("a", topic)
    assert caller.commit(9, member_id, epoch, topic) is expected


@pytest.mark.parametrize(
    ("member_id", "epoch", "expected"),
    [
        ("a", 1, ErrorCode.unsupported_version),
        ("a", 2, ErrorCode.unsupported_version),
        ("b", 1, ErrorCode.unknown_member_id),
        ("", -1, ErrorCode.unknown_member_id),
    ],
)
@pytest.mark.parametrize("version", [2, 8])
def test_members_cannot_commit_by_a_version_from_before_member_epochs(
    caller: Caller, topic: str, version: int, member_id: str, epoch: int, expected: ErrorCode
) -> None:
    caller.join("a", topic)
    assert caller.commit(version, member_id, epoch, topic) is expected


def test_an_empty_group_takes_commits_of_every_version(caller: Caller, topic: str) -> None:
    caller.join("a", topic)
    caller.beat("a", member_epoch=-1)
    for version in (2, 8, 9):
        assert caller.commit(version, "", -1, topic) is ErrorCode.none


@pytest.mark.parametrize(
    ("member_id", "epoch", "expected"),
    [
        ("a", 1, ErrorCode.none),
        ("a", 2, ErrorCode.stale_member_epoch),
        ("b", 1, ErrorCode.unknown_member_id),
        (None, -1, ErrorCode.none),
    ],
)
def test_offsets_are_fetched_by_members_at_their_epoch_and_by_anybody_else(
    caller: Caller, topic: str, member_id: str | None, epoch: int, expected: ErrorCode
) -> None:
    caller.join("a", topic)
    group = {
        "group_id": caller.group_id,
        "member_id": member_id,
        "member_epoch": epoch,
        "topics": [{"name": topic, "partition_indexes": (0,)}],
    }
    answer = caller.ask(ApiKey.OFFSET_FETCH, 9, groups=[group])
    assert answer.groups[0].error_code is expected


@pytest.mark.parametrize("version", [0, NEWEST])
def test_a_group_is_described_with_its_epochs_and_members(
    caller: Caller, topic: str, version: int
) -> None:
    caller.join("a", topic, rack_id="zone", server_assignor="range")
    answer = caller.ask(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        version,
        group_ids=[caller.group_id, "nobody", ""],
        include_authorized_operations=False,
    )
    group, nobody, unnamed = answer.groups
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 1, 1)
    assert group.assignor_name == "range"
    (member,) = group.members
    assert (member.member_id, member.member_epoch, member.rack_id) == ("a", 1, "zone")
    assert member.subscribed_topic_names == (topic,)
    (assigned,) = member.assignment.topic_partitions
    assert (assigned.topic_name, assigned.partitions) == (topic, (0, 1))
    assert member.target_assignment == member.assignment
    if version >= 1:
        assert member.member_type == 1
    assert nobody.error_code is ErrorCode.group_id_not_found
    assert unnamed.error_code is ErrorCode.invalid_group_id
