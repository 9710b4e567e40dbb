"""Handlers of admin APIs ask for the rights that they declare, and answer a denial by its code."""

from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.admin.office import Doorkeeper
from tests.unit.kafka.handlers.desk import SESSION, Desk

from stratalog.kafka.registry import handler_classes
from stratalog.kafka.wire.api import ApiKey

TIMEOUT = timedelta(seconds=1)
TOPIC_DENIED = ErrorCode.topic_authorization_failed
CLUSTER_DENIED = ErrorCode.cluster_authorization_failed
GROUP_DENIED = ErrorCode.group_authorization_failed


def config_resource(**more: Any) -> list[dict[str, Any]]:
    return [{"resource_type": 2, "resource_name": "orders", **more}]


REQUESTS: list[tuple[ApiKey, int, dict[str, Any], ErrorCode]] = [
    (
        ApiKey.CREATE_TOPICS,
        7,
        {
            "topics": [
                {
                    "name": "new",
                    "num_partitions": 1,
                    "replication_factor": 1,
                    "assignments": (),
                    "configs": (),
                }
            ],
            "timeout": TIMEOUT,
        },
        TOPIC_DENIED,
    ),
    (
        ApiKey.CREATE_PARTITIONS,
        3,
        {
            "topics": [{"name": "orders", "count": 5, "assignments": None}],
            "timeout": TIMEOUT,
            "validate_only": False,
        },
        TOPIC_DENIED,
    ),
    (ApiKey.DELETE_TOPICS, 5, {"topic_names": ["orders"], "timeout": TIMEOUT}, TOPIC_DENIED),
    (
        ApiKey.DELETE_RECORDS,
        2,
        {
            "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "offset": 5}]}],
            "timeout": TIMEOUT,
        },
        TOPIC_DENIED,
    ),
    (
        ApiKey.ALTER_CONFIGS,
        2,
        {"resources": config_resource(configs=()), "validate_only": False},
        TOPIC_DENIED,
    ),
    (
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        {"resources": config_resource(configs=()), "validate_only": False},
        TOPIC_DENIED,
    ),
    (
        ApiKey.DESCRIBE_CONFIGS,
        4,
        {"resources": config_resource(configuration_keys=None)},
        TOPIC_DENIED,
    ),
    (ApiKey.LIST_CONFIG_RESOURCES, 1, {"resource_types": ()}, CLUSTER_DENIED),
    (ApiKey.DELETE_GROUPS, 2, {"groups_names": ["readers"]}, GROUP_DENIED),
    (
        ApiKey.DESCRIBE_GROUPS,
        6,
        {"groups": ["readers"], "include_authorized_operations": False},
        GROUP_DENIED,
    ),
    (
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        1,
        {"group_ids": ["readers"], "include_authorized_operations": False},
        GROUP_DENIED,
    ),
    (ApiKey.OFFSET_DELETE, 0, {"group_id": "readers", "topics": ()}, GROUP_DENIED),
    (
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        {"topics": [{"name": "orders", "partition_indexes": (0,)}]},
        TOPIC_DENIED,
    ),
    (ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None}, CLUSTER_DENIED),
    (
        ApiKey.ELECT_LEADERS,
        2,
        {"topic_partitions": None, "election_type": 0, "timeout": TIMEOUT},
        CLUSTER_DENIED,
    ),
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, {"topics": (), "timeout": TIMEOUT}, CLUSTER_DENIED),
    (ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 5}, CLUSTER_DENIED),
    (ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"topics": (), "timeout": TIMEOUT}, CLUSTER_DENIED),
]


def codes(response: Any) -> set[ErrorCode]:
    """Every error code in a response, however deep."""
    found = set()
    for name in getattr(response, "__dataclass_fields__", ()):
        value = getattr(response, name)
        if name == "error_code":
            found.add(value)
        for element in value if isinstance(value, tuple) else ():
            found |= codes(element)
    return found


@pytest.mark.parametrize(
    ("key", "version", "values", "denied"), REQUESTS, ids=[one[0].name for one in REQUESTS]
)
async def test_a_request_without_the_right_is_refused(
    key: ApiKey, version: int, values: dict[str, Any], denied: ErrorCode
) -> None:
    doorkeeper = Doorkeeper(refused=lambda right, name: True)
    desk = Desk(authorizer=doorkeeper)
    orders = await desk.control.topics.create("orders", partition_count=3, configs={})
    assert codes(await desk.ask(key, version, **values)) - {ErrorCode.none} == {denied}
    assert desk.control.by_id == {orders.id: orders}, "nothing was changed"
    assert {right for _, right, _ in doorkeeper.asked} <= set(handler_classes()[key].rights)
    assert {principal for principal, _, _ in doorkeeper.asked} == {SESSION.principal}


async def test_a_refused_election_has_the_error_at_the_top_and_at_each_partition() -> None:
    desk = Desk(authorizer=Doorkeeper(refused=lambda right, name: True))
    asked = [{"topic": "orders", "partitions": (0, 2)}]
    response = await desk.ask(
        ApiKey.ELECT_LEADERS, 2, topic_partitions=asked, election_type=0, timeout=TIMEOUT
    )
    assert response.error_code is CLUSTER_DENIED
    (topic,) = response.replica_election_results
    partitions = [(one.partition_id, one.error_code) for one in topic.partition_result]
    assert partitions == [(0, CLUSTER_DENIED), (2, CLUSTER_DENIED)]
