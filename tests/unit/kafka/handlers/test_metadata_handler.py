from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.admin.office import Doorkeeper
from tests.unit.kafka.handlers.desk import BROKERS, CLUSTER_ID, Desk

from stratalog.admin.rights import Operation
from stratalog.control.errors import ControlUnavailableError
from stratalog.ids import LeaderEpoch, PartitionIndex, TopicId, TopicPartition, kafka_base64
from stratalog.kafka.wire.api import ApiKey
from stratalog.settings import BrokerSettings, Settings

VERSIONS = range(14)
ORDERS = TopicId(UUID(int=1))
NOT_ASKED = -(2**31)


@pytest.fixture
async def desk() -> Desk:
    desk = Desk()
    await desk.control.topics.create("orders", partition_count=3, configs={})
    await desk.control.topics.create("bills", partition_count=1, configs={})
    return desk


async def metadata(
    desk: Desk, version: int, topics: list[dict[str, Any]] | None, *, create: bool = True
) -> Any:
    asked = None if topics is None else [{"topic_id": None, **topic} for topic in topics]
    return await desk.ask(
        ApiKey.METADATA,
        version,
        topics=asked,
        allow_auto_topic_creation=create,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_topic_is_described_with_the_brokers_that_lead_it(desk: Desk, version: int) -> None:
    response = await metadata(desk, version, [{"name": "orders"}])
    assert [(one.node_id, one.host, one.port) for one in response.brokers] == [
        (3, "host-3", 9003),
        (5, "host-5", 9005),
    ]
    (topic,) = response.topics
    assert (topic.name, topic.error_code) == ("orders", ErrorCode.none)
    assert [one.partition_index for one in topic.partitions] == [0, 1, 2]
    for one in topic.partitions:
        partition = TopicPartition(ORDERS, PartitionIndex(one.partition_index))
        assert one.leader_id == desk.membership.leader_of(partition).broker_id
        assert one.replica_nodes == one.isr_nodes == (one.leader_id,)
    if version >= 1:
        assert response.controller_id == 3
    if version >= 2:
        assert response.cluster_id == kafka_base64(CLUSTER_ID)
    if version >= 10:
        assert topic.topic_id == ORDERS


@pytest.mark.parametrize("version", range(8, 14))
@pytest.mark.parametrize("topic_asked", [False, True])
@pytest.mark.parametrize("cluster_asked", [False, True])
async def test_operations_are_listed_for_a_client_that_asks(
    desk: Desk, version: int, topic_asked: bool, cluster_asked: bool
) -> None:
    await metadata(desk, version, [{"name": "orders"}])  # The answer to others is in the cache.
    response = await desk.ask(
        ApiKey.METADATA,
        version,
        topics=[{"topic_id": None, "name": "orders"}],
        include_cluster_authorized_operations=cluster_asked,
        include_topic_authorized_operations=topic_asked,
    )
    # The numbers that Kafka 4.1 answers without an authorizer.
    assert response.topics[0].topic_authorized_operations == (3576 if topic_asked else NOT_ASKED)
    if version <= 10:
        assert response.cluster_authorized_operations == (8096 if cluster_asked else NOT_ASKED)


async def test_operations_without_a_right_are_left_out() -> None:
    refused = Doorkeeper(refused=lambda right, _name: right.operation is Operation.WRITE)
    desk = Desk(authorizer=refused)
    await desk.control.topics.create("orders", partition_count=1, configs={})
    response = await desk.ask(
        ApiKey.METADATA,
        12,
        topics=[{"topic_id": None, "name": "orders"}],
        include_topic_authorized_operations=True,
    )
    assert response.topics[0].topic_authorized_operations == 3576 - (1 << 4)


@pytest.mark.parametrize("version", range(1, 14))
async def test_null_means_all_topics_and_an_empty_list_means_none(desk: Desk, version: int) -> None:
    everything = await metadata(desk, version, None)
    assert [topic.name for topic in everything.topics] == ["bills", "orders"]
    nothing = await metadata(desk, version, [])
    assert nothing.topics == ()


async def test_an_empty_list_means_all_topics_in_version_0(desk: Desk) -> None:
    everything = await metadata(desk, 0, [])
    assert [topic.name for topic in everything.topics] == ["bills", "orders"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_topic_is_created_when_it_is_first_asked_for(desk: Desk, version: int) -> None:
    response = await metadata(desk, version, [{"name": "new"}])
    assert response.topics[0].error_code is ErrorCode.none
    assert len(response.topics[0].partitions) == 1
    assert [topic.name for topic in await desk.control.topics.all()] == [
        "bills",
        "new",
        "orders",
    ]


@pytest.mark.parametrize("version", range(4, 14))
async def test_a_client_that_does_not_want_topics_created_gets_none(
    desk: Desk, version: int
) -> None:
    response = await metadata(desk, version, [{"name": "new"}], create=False)
    assert response.topics[0].error_code is ErrorCode.unknown_topic_or_partition
    assert len(await desk.control.topics.all()) == 2


async def test_a_broker_that_does_not_create_topics_says_unknown() -> None:
    desk = Desk(Settings(broker=BrokerSettings(auto_create_topics=False)))
    response = await metadata(desk, 8, [{"name": "new"}])
    assert response.topics[0].error_code is ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize("name", ["", "..", "a b", "x" * 250, "orders/1"])
async def test_a_name_that_no_topic_can_have_is_invalid(desk: Desk, name: str) -> None:
    response = await metadata(desk, 8, [{"name": name}])
    assert response.topics[0].error_code is ErrorCode.invalid_topic_exception
    assert response.topics[0].name == name


@pytest.mark.parametrize("version", [12, 13])
async def test_topics_are_found_by_id(desk: Desk, version: int) -> None:
    asked: list[dict[str, Any]] = [
        {"topic_id": ORDERS, "name": None},
        {"topic_id": UUID(int=99), "name": None},
    ]
    response = await metadata(desk, version, asked)
    known, unknown = response.topics
    assert (known.name, known.error_code) == ("orders", ErrorCode.none)
    assert (unknown.name, unknown.error_code) == (None, ErrorCode.unknown_topic_id)
    assert unknown.topic_id == UUID(int=99)


async def test_leaders_follow_the_live_brokers_although_topics_are_kept_written(
    desk: Desk,
) -> None:
    await metadata(desk, 9, [{"name": "orders"}])
    desk.membership._live = [BROKERS[1]]
    desk.membership._leaders.clear()
    response = await metadata(desk, 9, [{"name": "orders"}])
    assert {one.leader_id for one in response.topics[0].partitions} == {5}
    assert response.controller_id == 5


async def test_a_topic_that_has_grown_is_described_anew(desk: Desk) -> None:
    await metadata(desk, 9, None)
    desk.control.by_id[ORDERS] = replace(desk.control.by_id[ORDERS], partition_count=5)
    response = await metadata(desk, 9, None)
    assert [len(topic.partitions) for topic in response.topics] == [1, 5]


@pytest.mark.parametrize("version", [7, 9, 13])
async def test_a_new_leader_epoch_is_told_although_topics_are_kept_written(
    desk: Desk, version: int
) -> None:
    await metadata(desk, version, [{"name": "orders"}])
    desk.control.by_id[ORDERS] = replace(
        desk.control.by_id[ORDERS], leader_epochs={PartitionIndex(1): LeaderEpoch(6)}
    )
    response = await metadata(desk, version, [{"name": "orders"}])
    assert [one.leader_epoch for one in response.topics[0].partitions] == [0, 6, 0]


@pytest.mark.parametrize("version", [0, 9, 13])
async def test_without_the_control_plane_topics_fail_and_brokers_are_told(
    desk: Desk, version: int
) -> None:
    desk.control.failure = ControlUnavailableError("away")
    response = await metadata(desk, version, [{"name": "orders"}])
    assert response.topics[0].error_code is ErrorCode.kafka_storage_error
    assert len(response.brokers) == 2
