"""Requests about existing topics: configs, deleted records, epochs, sizes, pages."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.kafka.handlers.desk import BROKERS, Desk

from stratalog.control.errors import ControlUnavailableError
from stratalog.ids import LeaderEpoch, PartitionIndex, TopicId, TopicPartition
from stratalog.kafka.registry import served
from stratalog.kafka.wire.api import ApiKey
from stratalog.settings import Settings

PARTITIONS = 8
TIMEOUT = timedelta(seconds=1)
ORDERS = TopicId(UUID(int=1))
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
UNKNOWN = ErrorCode.unknown_topic_or_partition
AWAY = ErrorCode.kafka_storage_error


@pytest.fixture
async def desk() -> Desk:
    desk = Desk(Settings(topic={"retention.ms": "5000"}))
    await desk.control.topics.create(
        "orders", partition_count=PARTITIONS, configs={"segment.ms": "77"}
    )
    return desk


def versions(key: ApiKey) -> range:
    return range(served()[key].first, served()[key].last + 1)


def led_by(desk: Desk, broker_id: int) -> list[int]:
    return [
        index
        for index in range(PARTITIONS)
        if desk.membership.leader_of(TopicPartition(ORDERS, PartitionIndex(index))).broker_id
        == broker_id
    ]


# DeleteRecords.


async def delete_records(desk: Desk, version: int, topic: str, *pairs: tuple[int, int]) -> Any:
    partitions = [{"partition_index": index, "offset": offset} for index, offset in pairs]
    asked = [{"name": topic, "partitions": partitions}]
    response = await desk.ask(ApiKey.DELETE_RECORDS, version, topics=asked, timeout=TIMEOUT)
    return [(one.error_code, one.low_watermark) for one in response.topics[0].partitions]


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_RECORDS))
async def test_every_partition_of_a_deletion_is_answered_for_itself(
    desk: Desk, version: int
) -> None:
    pairs = [(0, 5), (1, -1), (2, 11), (0, -2), (1, 10), (PARTITIONS, 0)]
    answers = await delete_records(desk, version, "orders", *pairs)
    out_of_range = (ErrorCode.offset_out_of_range, -1)
    none = ErrorCode.none
    expected = [(none, 5), (none, 10), out_of_range, out_of_range, (none, 10), (UNKNOWN, -1)]
    assert answers == expected
    assert await delete_records(desk, version, "nope", (0, 1)) == [(UNKNOWN, -1)]


# AlterConfigs.


async def alter(desk: Desk, *configs: tuple[str, str | None], version: int = 2, **more: Any) -> Any:
    resource = {
        "resource_type": more.pop("kind", TOPIC),
        "resource_name": more.pop("name", "orders"),
        "configs": [{"name": name, "value": value} for name, value in configs],
    }
    values = {"validate_only": False, **more}
    response = await desk.ask(ApiKey.ALTER_CONFIGS, version, resources=[resource], **values)
    return response.responses[0]


@pytest.mark.parametrize("version", versions(ApiKey.ALTER_CONFIGS))
async def test_altering_replaces_all_that_was_set(desk: Desk, version: int) -> None:
    answer = await alter(desk, ("retention.ms", "9"), version=version)
    assert (answer.error_code, answer.resource_name) == (ErrorCode.none, "orders")
    assert desk.control.by_id[ORDERS].configs == {"retention.ms": "9"}


# IncrementalAlterConfigs.


async def change(
    desk: Desk, *configs: tuple[str, int, str | None], version: int = 1, **more: Any
) -> Any:
    resource = {
        "resource_type": more.pop("kind", TOPIC),
        "resource_name": more.pop("name", "orders"),
        "configs": [
            {"name": name, "config_operation": operation, "value": value}
            for name, operation, value in configs
        ],
    }
    values = {"validate_only": False, "resources": [resource] * more.pop("times", 1), **more}
    response = await desk.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, **values)
    return response.responses[0]


@pytest.mark.parametrize("version", versions(ApiKey.INCREMENTAL_ALTER_CONFIGS))
async def test_only_what_is_named_is_changed(desk: Desk, version: int) -> None:
    answer = await change(desk, ("retention.ms", SET, "9"), version=version)
    assert answer.error_code is ErrorCode.none
    assert desk.control.by_id[ORDERS].configs == {"segment.ms": "77", "retention.ms": "9"}
    await change(desk, ("segment.ms", DELETE, None), ("no.such", DELETE, None), version=version)
    assert desk.control.by_id[ORDERS].configs == {"retention.ms": "9"}


async def test_lists_are_appended_to_and_subtracted_from(desk: Desk) -> None:
    name = "leader.replication.throttled.replicas"
    steps = [
        (APPEND, "a,b", "a,b"),
        (APPEND, "b,c", "a,b,c"),
        (SUBTRACT, "a, c", "b"),
        (SUBTRACT, "b", ""),
    ]
    for operation, value, expected in steps:
        assert (await change(desk, (name, operation, value))).error_code is ErrorCode.none
        assert desk.control.by_id[ORDERS].configs[name] == expected
    await change(desk, ("cleanup.policy", APPEND, "delete"))
    assert desk.control.by_id[ORDERS].configs["cleanup.policy"] == "delete"


@pytest.mark.parametrize(
    ("configs", "code"),
    [
        ([("no.such", SET, "1")], ErrorCode.invalid_config),
        ([("no.such", APPEND, "1")], ErrorCode.invalid_config),
        ([("retention.ms", SET, "x")], ErrorCode.invalid_config),
        ([("retention.ms", APPEND, "1")], ErrorCode.invalid_config),
        ([("cleanup.policy", SET, "compact")], ErrorCode.invalid_config),
        ([("cleanup.policy", APPEND, "compact")], ErrorCode.invalid_config),
        ([("cleanup.policy", SUBTRACT, "delete")], ErrorCode.invalid_config),
        ([("compression.zstd.level", SET, "23")], ErrorCode.invalid_config),
        ([("retention.ms", SET, None)], ErrorCode.invalid_request),
        ([("retention.ms", 4, "1")], ErrorCode.invalid_request),
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], ErrorCode.invalid_request),
    ],
)
async def test_a_change_that_cannot_be_is_refused_whole(
    desk: Desk, configs: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    answer = await change(desk, ("flush.ms", SET, "3"), *configs)
    assert answer.error_code is code
    assert configs[0][0] in answer.error_message or "operation" in answer.error_message
    assert desk.control.by_id[ORDERS].configs == {"segment.ms": "77"}


@pytest.mark.parametrize("altering", [alter, change])
async def test_what_has_no_configs_to_alter_is_told(desk: Desk, altering: Any) -> None:
    assert (await altering(desk, name="nope")).error_code is UNKNOWN
    for kind in (BROKER, 8, 16):
        assert (await altering(desk, kind=kind, name="3")).error_code is ErrorCode.invalid_request


async def test_validating_changes_nothing(desk: Desk) -> None:
    assert (await change(desk, ("retention.ms", SET, "9"), validate_only=True)).error_code == 0
    assert (await alter(desk, ("retention.ms", "9"), validate_only=True)).error_code == 0
    bad = await change(desk, ("retention.ms", SET, "x"), validate_only=True)
    assert bad.error_code is ErrorCode.invalid_config
    assert desk.control.by_id[ORDERS].configs == {"segment.ms": "77"}


async def test_a_resource_named_twice_is_refused(desk: Desk) -> None:
    answer = await change(desk, ("retention.ms", SET, "9"), times=2)
    assert answer.error_code is ErrorCode.invalid_request
    assert desk.control.by_id[ORDERS].configs == {"segment.ms": "77"}


# OffsetForLeaderEpoch.


async def epoch_ends(desk: Desk, version: int, *asked: tuple[int, int, int]) -> Any:
    """Each asked by partition, the epoch the client thinks current, and the epoch it wants."""
    partitions = [
        {"partition": index, "current_leader_epoch": current, "leader_epoch": epoch}
        for index, current, epoch in asked
    ]
    topics = [{"topic": "orders", "partitions": partitions}]
    response = await desk.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, topics=topics)
    return [
        (one.error_code, one.leader_epoch, one.end_offset) for one in response.topics[0].partitions
    ]


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FOR_LEADER_EPOCH))
async def test_epochs_are_told_where_they_ended(desk: Desk, version: int) -> None:
    none = ErrorCode.none
    answers = await epoch_ends(desk, version, (0, 4, 4), (1, -1, 3), (2, 4, 5))
    assert answers == [(none, 4, 10), (none, 2, 6), (none, -1, -1)]


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FOR_LEADER_EPOCH))
async def test_a_client_with_another_current_epoch_is_told_so(desk: Desk, version: int) -> None:
    answers = await epoch_ends(desk, version, (0, 3, 4), (0, 5, 4), (PARTITIONS, 4, 4))
    assert answers == [
        (ErrorCode.fenced_leader_epoch, -1, -1),
        (ErrorCode.unknown_leader_epoch, -1, -1),
        (UNKNOWN, -1, -1),
    ]


# DescribeLogDirs.


async def sizes(desk: Desk, version: int, topics: Any) -> dict[str, dict[int, int]]:
    response = await desk.ask(ApiKey.DESCRIBE_LOG_DIRS, version, topics=topics)
    (directory,) = response.results
    assert directory.error_code is ErrorCode.none
    return {
        topic.name: {one.partition_index: one.partition_size for one in topic.partitions}
        for topic in directory.topics
    }


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_LOG_DIRS))
async def test_a_broker_tells_the_bytes_of_the_partitions_it_leads(
    desk: Desk, version: int
) -> None:
    own = led_by(desk, 3)
    assert own
    assert len(own) < PARTITIONS
    expected = {"orders": {index: 100 + 100 * index for index in own}}
    assert await sizes(desk, version, None) == expected
    some = [
        {"topic": "orders", "partitions": (own[0], PARTITIONS)},
        {"topic": "nope", "partitions": (0,)},
    ]
    assert await sizes(desk, version, some) == {"orders": {own[0]: 100 + 100 * own[0]}}
    assert await sizes(desk, version, []) == {}


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_LOG_DIRS))
async def test_a_topic_that_is_named_twice_is_described_with_all_its_partitions(
    desk: Desk, version: int
) -> None:
    first, second = led_by(desk, 3)[:2]
    topics = [
        {"topic": "orders", "partitions": (first,)},
        {"topic": "orders", "partitions": (second,)},
    ]
    assert set((await sizes(desk, version, topics))["orders"]) == {first, second}


# DescribeProducers.


async def test_producers_are_described(desk: Desk) -> None:
    topics = [
        {"name": "orders", "partition_indexes": (0, 1, PARTITIONS)},
        {"name": "nope", "partition_indexes": (0,)},
    ]
    response = await desk.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=topics)
    first, second, beyond = response.topics[0].partitions
    (producer,) = first.active_producers
    assert (producer.producer_id, producer.producer_epoch) == (77, 2)
    assert (producer.last_sequence, producer.last_timestamp) == (41, 5000)
    assert producer.current_txn_start_offset == -1
    assert (second.error_code, second.active_producers) == (ErrorCode.none, ())
    assert beyond.error_code is UNKNOWN
    assert response.topics[1].partitions[0].error_code is UNKNOWN


# DescribeTopicPartitions.


async def page(desk: Desk, names: list[str], limit: int = 2000, cursor: Any = None) -> Any:
    return await desk.ask(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        topics=[{"name": name} for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]},
    )


def described(response: Any) -> list[tuple[str, list[int]]]:
    return [
        (topic.name, [one.partition_index for one in topic.partitions]) for topic in response.topics
    ]


async def test_topics_are_described_page_by_page(desk: Desk) -> None:
    await desk.control.topics.create("bills", partition_count=2, configs={})
    pages, cursor = [], None
    while True:
        response = await page(desk, [], 5, cursor)
        pages.append(described(response))
        if response.next_cursor is None:
            break
        cursor = (response.next_cursor.topic_name, response.next_cursor.partition_index)
    assert pages == [
        [("bills", [0, 1]), ("orders", [0, 1, 2])],
        [("orders", [3, 4, 5, 6, 7])],
    ]
    whole = await page(desk, [])
    assert described(whole) == [("bills", [0, 1]), ("orders", [*range(PARTITIONS)])]
    assert whole.next_cursor is None


async def test_a_page_may_end_between_topics(desk: Desk) -> None:
    await desk.control.topics.create("bills", partition_count=2, configs={})
    response = await page(desk, [], 2)
    assert described(response) == [("bills", [0, 1])]
    following = response.next_cursor
    assert (following.topic_name, following.partition_index) == ("orders", 0)


async def test_named_topics_are_described_by_name_and_unknown_ones_are_told(desk: Desk) -> None:
    response = await page(desk, ["zebra", "orders", "orders", "antler"])
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("antler", UNKNOWN),
        ("orders", ErrorCode.none),
        ("zebra", UNKNOWN),
    ]
    orders = response.topics[1]
    assert orders.topic_id == ORDERS
    leaders = [one.leader_id for one in orders.partitions]
    assert leaders == [3 if index in led_by(desk, 3) else 5 for index in range(PARTITIONS)]
    assert [one.isr_nodes for one in orders.partitions] == [(leader,) for leader in leaders]
    assert {one.leader_epoch for one in orders.partitions} == {0}


async def test_topics_are_described_with_the_leader_epochs_of_their_partitions(desk: Desk) -> None:
    topic = desk.control.by_id[TopicId(ORDERS)]
    desk.control.by_id[topic.id] = replace(topic, leader_epochs={PartitionIndex(2): LeaderEpoch(9)})
    [orders] = (await page(desk, ["orders"], limit=4)).topics
    assert [one.leader_epoch for one in orders.partitions] == [0, 0, 9, 0]


@pytest.mark.parametrize(("limit", "cursor"), [(0, None), (-1, None), (5, ("orders", -1))])
async def test_a_page_that_makes_no_sense_is_refused(desk: Desk, limit: int, cursor: Any) -> None:
    response = await page(desk, ["orders"], limit, cursor)
    assert response.topics[0].error_code is ErrorCode.invalid_request


async def test_a_cursor_behind_the_last_topic_ends_the_list(desk: Desk) -> None:
    response = await page(desk, [], 10, ("zebra", 0))
    assert (response.topics, response.next_cursor) == ((), None)
    response = await page(desk, [], 10, ("orders", PARTITIONS))
    assert described(response) == [("orders", [])]


# ElectLeaders.


@pytest.mark.parametrize("version", versions(ApiKey.ELECT_LEADERS))
async def test_no_election_is_needed(desk: Desk, version: int) -> None:
    async def elect(topics: Any) -> Any:
        more = {"election_type": 0} if version >= 1 else {}
        return await desk.ask(ApiKey.ELECT_LEADERS, version, topic_partitions=topics, **more)

    asked = [
        {"topic": "orders", "partitions": (0, PARTITIONS)},
        {"topic": "nope", "partitions": (0,)},
    ]
    response = await elect(asked)
    codes = [
        [one.error_code for one in topic.partition_result]
        for topic in response.replica_election_results
    ]
    assert codes == [[ErrorCode.election_not_needed, UNKNOWN], [UNKNOWN]]
    assert (await elect(None)).replica_election_results == ()


# Reassignments.


@pytest.mark.parametrize("version", versions(ApiKey.ALTER_PARTITION_REASSIGNMENTS))
async def test_partitions_stay_where_they_are(desk: Desk, version: int) -> None:
    own = led_by(desk, 3)[0]
    replicas = [(own, (3,)), (own, (5,)), (own, (3, 5)), (own, ()), (own, None), (9, (3,))]
    partitions = [{"partition_index": index, "replicas": nodes} for index, nodes in replicas]
    response = await desk.ask(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        version,
        timeout=TIMEOUT,
        topics=[{"name": "orders", "partitions": partitions}],
    )
    assert [one.error_code for one in response.responses[0].partitions] == [
        ErrorCode.none,
        ErrorCode.invalid_replica_assignment,
        ErrorCode.invalid_replica_assignment,
        ErrorCode.invalid_replica_assignment,
        ErrorCode.no_reassignment_in_progress,
        UNKNOWN,
    ]


async def test_no_reassignment_is_under_way(desk: Desk) -> None:
    response = await desk.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, timeout=TIMEOUT, topics=None)
    assert (response.error_code, response.topics) == (ErrorCode.none, ())


# Zones.


async def test_a_client_that_tells_its_zone_is_given_leaders_of_that_zone(desk: Desk) -> None:
    desk.membership._live = [
        broker if broker.broker_id == 3 else _in_zone(broker, "b") for broker in BROKERS
    ]

    async def leaders(client_id: str) -> set[int]:
        response = await desk.ask_as(client_id, ApiKey.METADATA, 7, topics=[{"name": "orders"}])
        assert len(response.brokers) == 2
        return {one.leader_id for one in response.topics[0].partitions}

    assert await leaders("app,zone=b") == {5}
    assert await leaders("diskless_az=b") == {5}
    assert await leaders("app,zone=b,more=1") == {5}
    for elsewhere in ("app", "app,zone=c", "app,zone=", "appzone=b", "app,rack=b"):
        assert await leaders(elsewhere) == {3, 5}


async def fetched(
    desk: Desk, version: int, rack: str, offset: int = 5
) -> dict[int, tuple[int, bytes]]:
    partitions = [
        {"partition": index, "fetch_offset": offset, "partition_max_bytes": 100}
        for index in range(PARTITIONS)
    ]
    response = await desk.ask(
        ApiKey.FETCH,
        version,
        max_wait=timedelta(milliseconds=500),
        min_bytes=5,
        max_bytes=1000,
        session_id=0,
        session_epoch=-1,
        topics=[{"topic": "orders", "topic_id": ORDERS, "partitions": partitions}],
        forgotten_topics_data=(),
        rack_id=rack,
    )
    return {
        one.partition_index: (one.preferred_read_replica, bytes(one.records or b""))
        for one in response.responses[0].partitions
    }


@pytest.mark.parametrize("version", range(11, 19))
async def test_readers_of_a_zone_are_sent_to_its_broker_by_the_leader_alone(
    desk: Desk, version: int
) -> None:
    desk.membership._live = [
        broker if broker.broker_id == 3 else _in_zone(broker, "b") for broker in BROKERS
    ]
    own = led_by(desk, 3)
    answers = await fetched(desk, version, "b")
    assert {index for index, (node, _) in answers.items() if node == 5} == set(own)
    assert all((node == -1) == (records == b"some records") for node, records in answers.values())
    spans, _, min_bytes, max_wait_ms = desk.reads.asked[-1]
    assert len(spans) == PARTITIONS - len(own)
    assert (min_bytes, max_wait_ms) == (0, 0), "the reader is not kept from where it should be"
    for rack in ("", "c"):
        assert {node for node, _ in (await fetched(desk, version, rack)).values()} == {-1}
        assert desk.reads.asked[-1][3] == 500


async def test_an_offset_that_is_out_of_range_is_answered_by_the_leader(desk: Desk) -> None:
    desk.membership._live = [
        broker if broker.broker_id == 3 else _in_zone(broker, "b") for broker in BROKERS
    ]
    answers = await fetched(desk, 12, "b", offset=11)
    assert {node for node, _ in answers.values()} == {-1}


def _in_zone(broker: Any, zone: str) -> Any:
    return replace(broker, rack=zone)


# Without the control plane.


@pytest.mark.parametrize("version", [0, 1])
async def test_without_the_control_plane_changes_fail(desk: Desk, version: int) -> None:
    desk.control.failure = ControlUnavailableError("away")
    answer = await change(desk, ("retention.ms", SET, "9"), version=version)
    assert answer.error_code is AWAY
    assert await delete_records(desk, version, "orders", (0, 5)) == [(AWAY, -1)]
    assert await epoch_ends(desk, 2, (0, 4, 4)) == [(AWAY, -1, -1)]
    response = await page(desk, ["orders"])
    assert response.topics[0].error_code is AWAY
