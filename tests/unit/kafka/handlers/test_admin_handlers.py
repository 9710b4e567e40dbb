from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.kafka.handlers.desk import BROKERS, Desk

from stratalog.ids import BrokerId
from stratalog.kafka.wire.api import ApiKey
from stratalog.settings import BrokerSettings, Settings

TIMEOUT = timedelta(seconds=1)


@pytest.fixture
async def desk() -> Desk:
    desk = Desk(
        Settings(broker=BrokerSettings(default_partitions=4), topic={"retention.ms": "5000"})
    )
    await desk.control.topics.create("orders", partition_count=3, configs={"segment.ms": "77"})
    return desk


def new_topic(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": 2,
        "replication_factor": 1,
        "assignments": (),
        "configs": (),
        **changes,
    }


async def create(desk: Desk, *topics: dict[str, Any], version: int = 7, **more: Any) -> Any:
    response = await desk.ask(ApiKey.CREATE_TOPICS, version, topics=topics, timeout=TIMEOUT, **more)
    return response.topics


async def names(desk: Desk) -> list[str]:
    return [topic.name for topic in await desk.control.topics.all()]


# CreateTopics.


@pytest.mark.parametrize("version", range(2, 8))
async def test_a_topic_is_created(desk: Desk, version: int) -> None:
    configs = [{"name": "retention.ms", "value": "1000"}]
    (result,) = await create(desk, new_topic("new", configs=configs), version=version)
    assert (result.name, result.error_code) == ("new", ErrorCode.none)
    (topic,) = await desk.control.topics_named(["new"])
    assert topic.partition_count == 2
    assert topic.configs == {"retention.ms": "1000"}
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (2, 1)
        shown = {config.name: config for config in result.configs}
        assert (shown["retention.ms"].value, shown["retention.ms"].config_source) == ("1000", 1)
        assert shown["cleanup.policy"].config_source == 5
    if version >= 7:
        assert result.topic_id == topic.id


async def test_minus_one_means_the_default_number_of_partitions(desk: Desk) -> None:
    (result,) = await create(desk, new_topic("new", num_partitions=-1, replication_factor=-1))
    assert result.num_partitions == 4


@pytest.mark.parametrize("factor", [1, 3, -1])
async def test_any_sensible_replication_factor_is_taken_and_one_reported(
    desk: Desk, factor: int
) -> None:
    (result,) = await create(desk, new_topic("new", replication_factor=factor))
    assert (result.error_code, result.replication_factor) == (ErrorCode.none, 1)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (new_topic("a b"), ErrorCode.invalid_topic_exception),
        (new_topic("orders"), ErrorCode.topic_already_exists),
        (new_topic("new", num_partitions=0), ErrorCode.invalid_partitions),
        (new_topic("new", num_partitions=-2), ErrorCode.invalid_partitions),
        (new_topic("new", num_partitions=10_001), ErrorCode.invalid_partitions),
        (new_topic("new", replication_factor=0), ErrorCode.invalid_replication_factor),
        (new_topic("new", replication_factor=-2), ErrorCode.invalid_replication_factor),
        (
            new_topic(
                "new",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[{"partition_index": 0, "broker_ids": (99,)}],
            ),
            ErrorCode.invalid_replica_assignment,
        ),
        (
            new_topic("new", configs=[{"name": "retention.mss", "value": "1"}]),
            ErrorCode.invalid_config,
        ),
        (
            new_topic("new", configs=[{"name": "retention.ms", "value": None}]),
            ErrorCode.invalid_config,
        ),
    ],
)
async def test_what_stands_against_a_topic_is_told(
    desk: Desk, topic: dict[str, Any], code: ErrorCode
) -> None:
    for validate_only in (True, False):
        (result,) = await create(desk, topic, validate_only=validate_only)
        assert result.error_code is code
        assert result.error_message
    assert await names(desk) == ["orders"]


async def test_the_message_about_a_config_names_it_and_the_nearest(desk: Desk) -> None:
    bad = new_topic("new", configs=[{"name": "retention.mss", "value": "1"}])
    (result,) = await create(desk, bad)
    assert "retention.mss" in result.error_message
    assert "did you mean retention.ms?" in result.error_message


async def test_validating_creates_nothing(desk: Desk) -> None:
    (result,) = await create(desk, new_topic("new"), validate_only=True)
    assert (result.error_code, result.num_partitions) == (ErrorCode.none, 2)
    assert await names(desk) == ["orders"]


async def test_a_topic_named_twice_in_a_request_is_not_created(desk: Desk) -> None:
    results = await create(desk, new_topic("a"), new_topic("b"), new_topic("a"))
    assert {result.name: result.error_code for result in results} == {
        "a": ErrorCode.invalid_request,
        "b": ErrorCode.none,
    }
    assert await names(desk) == ["b", "orders"]


async def test_names_that_differ_in_dots_and_underscores_alone_collide(desk: Desk) -> None:
    (first,) = await create(desk, new_topic("a.b"))
    (second,) = await create(desk, new_topic("a_b"))
    assert first.error_code is ErrorCode.none
    assert second.error_code is ErrorCode.invalid_topic_exception
    assert "a.b" in second.error_message


@pytest.mark.parametrize(("length", "code"), [(249, ErrorCode.none), (250, ErrorCode(17))])
async def test_a_name_has_249_characters_at_the_most(
    desk: Desk, length: int, code: ErrorCode
) -> None:
    (result,) = await create(desk, new_topic("x" * length))
    assert result.error_code is code


# DeleteTopics.


@pytest.mark.parametrize("version", range(1, 7))
async def test_topics_are_deleted_by_name(desk: Desk, version: int) -> None:
    asked: dict[str, Any] = {"topic_names": ("orders", "nope")}
    if version >= 6:
        asked = {"topics": [{"name": name, "topic_id": None} for name in ("orders", "nope")]}
    response = await desk.ask(ApiKey.DELETE_TOPICS, version, timeout=TIMEOUT, **asked)
    assert {one.name: one.error_code for one in response.responses} == {
        "orders": ErrorCode.none,
        "nope": ErrorCode.unknown_topic_or_partition,
    }
    assert await names(desk) == []


async def test_topics_are_deleted_by_id(desk: Desk) -> None:
    asked = [{"name": None, "topic_id": UUID(int=1)}, {"name": None, "topic_id": UUID(int=99)}]
    response = await desk.ask(ApiKey.DELETE_TOPICS, 6, topics=asked, timeout=TIMEOUT)
    assert [(one.name, one.error_code) for one in response.responses] == [
        ("orders", ErrorCode.none),
        (None, ErrorCode.unknown_topic_id),
    ]
    assert await names(desk) == []


async def test_a_topic_named_twice_or_in_two_ways_is_not_deleted(desk: Desk) -> None:
    twice = [{"name": "orders", "topic_id": None}] * 2
    response = await desk.ask(ApiKey.DELETE_TOPICS, 6, topics=twice, timeout=TIMEOUT)
    assert [one.error_code for one in response.responses] == [ErrorCode.invalid_request]
    both = [{"name": "orders", "topic_id": UUID(int=1)}]
    response = await desk.ask(ApiKey.DELETE_TOPICS, 6, topics=both, timeout=TIMEOUT)
    assert [one.error_code for one in response.responses] == [ErrorCode.invalid_request]
    assert await names(desk) == ["orders"]


# CreatePartitions.


async def grow(desk: Desk, version: int = 3, **changes: Any) -> ErrorCode:
    topic = {"name": "orders", "count": 5, "assignments": None, **changes}
    validate_only = topic.pop("validate_only", False)
    response = await desk.ask(
        ApiKey.CREATE_PARTITIONS,
        version,
        topics=[topic],
        timeout=TIMEOUT,
        validate_only=validate_only,
    )
    code: ErrorCode = response.results[0].error_code
    return code


async def partition_count(desk: Desk) -> int:
    return (await desk.control.topics.all())[0].partition_count


@pytest.mark.parametrize("version", range(4))
async def test_a_topic_grows(desk: Desk, version: int) -> None:
    assert await grow(desk, version) is ErrorCode.none
    assert await partition_count(desk) == 5


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"count": 3}, ErrorCode.invalid_partitions),
        ({"count": 2}, ErrorCode.invalid_partitions),
        ({"count": -1}, ErrorCode.invalid_partitions),
        ({"count": 10_001}, ErrorCode.invalid_partitions),
        ({"name": "nope"}, ErrorCode.unknown_topic_or_partition),
        (
            {"assignments": [{"broker_ids": (99,)}, {"broker_ids": (99,)}]},
            ErrorCode.invalid_replica_assignment,
        ),
    ],
)
async def test_what_stands_against_growing_is_told(
    desk: Desk, changes: dict[str, Any], code: ErrorCode
) -> None:
    assert await grow(desk, **changes) is code
    assert await grow(desk, **changes, validate_only=True) is code
    assert await partition_count(desk) == 3


async def test_validating_does_not_grow_a_topic(desk: Desk) -> None:
    assert await grow(desk, validate_only=True) is ErrorCode.none
    assert await partition_count(desk) == 3


# DescribeConfigs.


async def describe(desk: Desk, kind: int, name: str, version: int = 4, **more: Any) -> Any:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    resource.update(more.pop("resource", {}))
    response = await desk.ask(ApiKey.DESCRIBE_CONFIGS, version, resources=[resource], **more)
    return response.results[0]


@pytest.mark.parametrize("version", range(1, 5))
async def test_the_configs_of_a_topic_say_where_they_come_from(desk: Desk, version: int) -> None:
    result = await describe(desk, 2, "orders", version, include_synonyms=True)
    assert result.error_code is ErrorCode.none
    configs = {config.name: config for config in result.configs}
    own, default, built_in = (
        configs["segment.ms"],
        configs["retention.ms"],
        configs["max.message.bytes"],
    )
    assert (own.value, own.config_source) == ("77", 1)
    assert (default.value, default.config_source) == ("5000", 4)
    assert (built_in.value, built_in.config_source) == ("1048588", 5)
    assert [(one.value, one.source) for one in default.synonyms] == [("5000", 4), ("604800000", 5)]
    if version >= 3:
        assert built_in.config_type == 3


async def test_only_the_configs_that_were_asked_for_are_described(desk: Desk) -> None:
    result = await describe(
        desk,
        2,
        "orders",
        resource={"configuration_keys": ("retention.ms",)},
        include_documentation=True,
    )
    (config,) = result.configs
    assert config.name == "retention.ms"
    assert "-1" in config.documentation
    assert config.synonyms == ()


async def test_the_configs_of_this_broker_are_described(desk: Desk) -> None:
    result = await describe(desk, 4, "3")
    configs = {config.name: config for config in result.configs}
    assert configs["num.partitions"].value == "4"
    assert configs["log.retention.ms"].value == "5000"
    assert configs["broker.id"].read_only


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (2, "nope", ErrorCode.unknown_topic_or_partition),
        (4, "99", ErrorCode.invalid_request),
        (8, "x", ErrorCode.invalid_request),
    ],
)
async def test_resources_without_configs_are_refused(
    desk: Desk, kind: int, name: str, code: ErrorCode
) -> None:
    result = await describe(desk, kind, name)
    assert result.error_code is code
    assert result.configs == ()


# InitProducerId, FindCoordinator, DescribeCluster, ApiVersions.


@pytest.mark.parametrize("version", range(6))
async def test_producers_get_ids_from_blocks_of_a_thousand(desk: Desk, version: int) -> None:
    asked = {"transactional_id": None, "transaction_timeout": TIMEOUT}
    taken = [
        await desk.ask(ApiKey.INIT_PRODUCER_ID, version, **asked, producer_id=5, producer_epoch=3)
        for _ in range(1001)
    ]
    assert [one.producer_id for one in taken] == list(range(1000, 2001))
    assert {one.producer_epoch for one in taken} == {0}
    assert desk.control.allocations == 2


@pytest.mark.parametrize("version", range(6))
async def test_transactional_producers_are_refused_for_good(desk: Desk, version: int) -> None:
    response = await desk.ask(
        ApiKey.INIT_PRODUCER_ID, version, transactional_id="t", transaction_timeout=TIMEOUT
    )
    assert response.error_code is ErrorCode.unsupported_version
    assert (response.producer_id, response.producer_epoch) == (-1, -1)


@pytest.mark.parametrize("version", range(1, 7))
async def test_transaction_coordinators_are_refused_for_good(desk: Desk, version: int) -> None:
    asked: dict[str, Any] = {"key": "t"} if version < 4 else {"coordinator_keys": ("t",)}
    response = await desk.ask(ApiKey.FIND_COORDINATOR, version, key_type=1, **asked)
    answer = response.coordinators[0] if version >= 4 else response
    of_librdkafka = ErrorCode.transactional_id_authorization_failed
    assert answer.error_code is (of_librdkafka if version == 2 else ErrorCode.unsupported_version)
    assert answer.error_message == "this broker does not support transactions yet"


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("asked", [False, True])
async def test_operations_on_the_cluster_are_listed_for_a_client_that_asks(
    desk: Desk, version: int, asked: bool
) -> None:
    response = await desk.ask(
        ApiKey.DESCRIBE_CLUSTER,
        version,
        include_cluster_authorized_operations=asked,
        include_fenced_brokers=False,
    )
    # The number that Kafka 4.1 answers without an authorizer.
    assert response.cluster_authorized_operations == (8096 if asked else -(2**31))


async def test_the_level_of_the_consumer_protocol_is_a_feature(desk: Desk) -> None:
    asked = {"client_software_name": "c", "client_software_version": "1"}
    new, old = [await desk.ask(ApiKey.API_VERSIONS, version, **asked) for version in (4, 3)]
    [supported] = new.supported_features
    assert (supported.name, supported.min_version, supported.max_version) == ("group.version", 0, 1)
    assert old.supported_features == ()
    for response in (new, old):
        [final] = response.finalized_features
        assert (final.name, final.max_version_level) == ("group.version", 1)
        assert response.finalized_features_epoch == 0


@pytest.mark.parametrize("version", range(3))
async def test_the_cluster_is_described(desk: Desk, version: int) -> None:
    response = await desk.ask(
        ApiKey.DESCRIBE_CLUSTER,
        version,
        include_cluster_authorized_operations=False,
        include_fenced_brokers=False,
    )
    assert response.controller_id == 3
    assert [one.broker_id for one in response.brokers] == [3, 5]


async def test_dead_brokers_are_described_to_a_client_that_asks_for_them(desk: Desk) -> None:
    desk.control.registered = [replace(BROKERS[0], broker_id=BrokerId(9), alive=False), *BROKERS]
    response = await desk.ask(
        ApiKey.DESCRIBE_CLUSTER,
        2,
        include_cluster_authorized_operations=False,
        include_fenced_brokers=True,
    )
    fenced = {one.broker_id: one.is_fenced for one in response.brokers}
    assert fenced == {3: False, 5: False, 9: True}


async def test_a_dead_broker_is_unregistered(desk: Desk) -> None:
    desk.control.registered = [replace(BROKERS[0], broker_id=BrokerId(9), alive=False), *BROKERS]
    response = await desk.ask(ApiKey.UNREGISTER_BROKER, 0, broker_id=9)
    assert (response.error_code, response.error_message) == (ErrorCode.none, None)
    assert desk.control.registered == BROKERS
    response = await desk.ask(ApiKey.UNREGISTER_BROKER, 0, broker_id=9)
    assert response.error_code is ErrorCode.broker_id_not_registered
    response = await desk.ask(ApiKey.UNREGISTER_BROKER, 0, broker_id=5)
    assert response.error_code is ErrorCode.invalid_request
    assert "stop it first" in response.error_message


@pytest.mark.parametrize("version", range(5))
async def test_api_versions_are_told(desk: Desk, version: int) -> None:
    response = await desk.ask(
        ApiKey.API_VERSIONS, version, client_software_name="c", client_software_version="1"
    )
    ranges = {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}
    assert ranges[0] == (0, 13)
    assert ranges[18] == (0, 4)
    assert response.error_code is ErrorCode.none
