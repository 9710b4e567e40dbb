"""The resources that have configs. The brokers are 3 and 5."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.kafka.handlers.desk import Desk

from stratalog.kafka.wire.api import ApiKey

_TOPIC, _BROKER, _GROUP, _UNKNOWN = 2, 4, 32, 3


@pytest.fixture
async def desk() -> Desk:
    return Desk()


async def listed(desk: Desk, *types: int) -> list[tuple[int, str]]:
    await desk.control.topics.create("orders", partition_count=3, configs={})
    desk.control.group_configs = {"readers": {"consumer.session.timeout.ms": "50000"}}
    response = await desk.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=types)
    assert response.error_code is ErrorCode.none
    return [(each.resource_type, each.resource_name) for each in response.config_resources]


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ((), [(_BROKER, "3"), (_BROKER, "5"), (_TOPIC, "orders"), (_GROUP, "readers")]),
        ((_TOPIC,), [(_TOPIC, "orders")]),
        ((_BROKER,), [(_BROKER, "3"), (_BROKER, "5")]),
        ((_GROUP,), [(_GROUP, "readers")]),
        ((8, 16), []),
    ],
)
async def test_resources_are_listed_by_type(
    desk: Desk, types: tuple[int, ...], expected: Any
) -> None:
    assert await listed(desk, *types) == expected


async def test_a_type_that_kafka_does_not_list_is_refused(desk: Desk) -> None:
    types = (_TOPIC, _UNKNOWN)
    response = await desk.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=types)
    assert response.error_code is ErrorCode.unsupported_version
    assert response.config_resources == ()


async def test_version_0_lists_client_metrics_of_which_there_are_none(desk: Desk) -> None:
    await desk.control.topics.create("orders", partition_count=3, configs={})
    response = await desk.ask(ApiKey.LIST_CONFIG_RESOURCES, 0)
    assert (response.error_code, response.config_resources) == (ErrorCode.none, ())
