"""Replicas assigned by hand to new topics and new partitions. The brokers are 3 and 5."""

from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.kafka.desk import Desk

from stratalog.kafka.api import ApiKey

TIMEOUT = timedelta(seconds=5)


@pytest.fixture
async def desk() -> Desk:
    return Desk()


async def created(desk: Desk, *assigned: tuple[int, tuple[int, ...]], **changes: Any) -> Any:
    topic = {
        "name": "new",
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": index, "broker_ids": ids} for index, ids in assigned],
        "configs": (),
        **changes,
    }
    response = await desk.ask(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout=TIMEOUT)
    return response.topics[0]


async def grown(desk: Desk, *assigned: tuple[int, ...], count: int) -> ErrorCode:
    await desk.topics.create_topic("orders", partition_count=3, configs={})
    topic = {
        "name": "orders",
        "count": count,
        "assignments": [{"broker_ids": ids} for ids in assigned],
    }
    response = await desk.ask(
        ApiKey.CREATE_PARTITIONS, 3, topics=[topic], timeout=TIMEOUT, validate_only=False
    )
    code: ErrorCode = response.results[0].error_code
    return code


async def test_a_topic_has_as_many_partitions_as_were_assigned(desk: Desk) -> None:
    result = await created(desk, (1, (5, 3)), (0, (3, 5)), (2, (3, 5)))
    assert (result.error_code, result.num_partitions) == (ErrorCode.none, 3)
    assert [topic.partition_count for topic in await desk.topics.topics()] == [3]


@pytest.mark.parametrize(
    "assigned",
    [
        pytest.param([(0, (3,)), (1, (4,))], id="unknown broker"),
        pytest.param([(0, (3, 3))], id="one broker twice"),
        pytest.param([(0, ())], id="no broker"),
        pytest.param([(0, (3,)), (1, (3, 5))], id="uneven"),
        pytest.param([(1, (3,))], id="not from 0"),
        pytest.param([(0, (3,)), (2, (3,))], id="a gap"),
        pytest.param([(0, (3,)), (0, (5,))], id="one partition twice"),
    ],
)
async def test_an_assignment_that_kafka_would_refuse_creates_nothing(
    desk: Desk, assigned: list[tuple[int, tuple[int, ...]]]
) -> None:
    result = await created(desk, *assigned)
    assert result.error_code is ErrorCode.invalid_replica_assignment
    assert result.error_message
    assert await desk.topics.topics() == []


@pytest.mark.parametrize("changes", [{"num_partitions": 1}, {"replication_factor": 1}])
async def test_assignments_leave_no_numbers_to_give(desk: Desk, changes: dict[str, int]) -> None:
    result = await created(desk, (0, (3,)), **changes)
    assert result.error_code is ErrorCode.invalid_request
    assert await desk.topics.topics() == []


async def test_new_partitions_are_assigned(desk: Desk) -> None:
    assert await grown(desk, (3,), (5,), count=5) is ErrorCode.none
    assert [topic.partition_count for topic in await desk.topics.topics()] == [5]


@pytest.mark.parametrize(
    "assigned",
    [[(3,)], [(3,), (3,), (3,)], [(3,), (4,)], [(3,), ()], [(3, 5), (3,)], [(3, 3), (5, 5)]],
)
async def test_new_partitions_with_an_assignment_that_kafka_would_refuse_are_not_added(
    desk: Desk, assigned: list[tuple[int, ...]]
) -> None:
    assert await grown(desk, *assigned, count=5) is ErrorCode.invalid_replica_assignment
    assert [topic.partition_count for topic in await desk.topics.topics()] == [3]
