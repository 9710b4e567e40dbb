import gc
from datetime import timedelta

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.kafka.handlers.desk import Desk

from stratalog.kafka.server.acceptor import Running
from stratalog.kafka.wire.api import ApiKey

SECOND = timedelta(seconds=1)


async def test_a_request_that_is_cancelled_before_it_began_leaves_nothing_behind() -> None:
    accepted = await Desk().accept(ApiKey.FIND_COORDINATOR, 0, key="group")
    assert isinstance(accepted, Running)
    accepted.response.cancel()
    del accepted
    gc.collect()


async def test_a_mistake_in_a_handler_is_answered_in_the_shape_of_its_api(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = Desk()
    desk.control.failure = RuntimeError("secret detail")
    response = await desk.ask(
        ApiKey.LIST_OFFSETS,
        1,
        replica_id=-1,
        topics=[{"name": "t", "partitions": [{"partition_index": 4, "timestamp": -1}]}],
    )
    (partition,) = response.topics[0].partitions
    assert partition.partition_index == 4
    assert partition.error_code is ErrorCode.unknown_server_error
    assert "secret detail" in caplog.text


async def test_a_mistake_is_not_told_to_clients_in_detail() -> None:
    desk = Desk()
    desk.control.failure = RuntimeError("secret detail")
    response = await desk.ask(
        ApiKey.DESCRIBE_CONFIGS,
        1,
        resources=[{"resource_type": 2, "resource_name": "t", "configuration_keys": None}],
    )
    (result,) = response.results
    assert result.error_code is ErrorCode.unknown_server_error
    assert "secret" not in result.error_message


@pytest.mark.parametrize("version", [0, 2, 5])
async def test_every_api_answers_what_it_refuses(version: int) -> None:
    desk = Desk()

    async def fail(count: int) -> None:
        raise RuntimeError(count)

    desk.control.log.allocate_producer_ids = fail  # type: ignore[method-assign,assignment]
    response = await desk.ask(
        ApiKey.INIT_PRODUCER_ID, version, transactional_id=None, transaction_timeout=SECOND
    )
    assert response.error_code is ErrorCode.unknown_server_error
