import asyncio
import gc
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.kafka.handlers.desk import Desk

from stratalog.kafka.server.acceptor import InTurn, Running
from stratalog.kafka.wire.api import ApiKey
from stratalog.kafka.wire.errors import TooManyEntriesError
from stratalog.settings import BrokerSettings, Settings

SECOND = timedelta(seconds=1)


async def test_a_request_that_is_cancelled_before_it_began_leaves_nothing_behind() -> None:
    accepted = await Desk().accept(
        ApiKey.HEARTBEAT, 0, group_id="group", generation_id=1, member_id="m"
    )
    assert isinstance(accepted, Running)
    accepted.done.cancel()
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


BOUNDED = Settings(broker=BrokerSettings(max_request_entries=1000))


def metadata_of(count: int) -> dict[str, Any]:
    names = [{"name": f"t{number}", "topic_id": None} for number in range(count)]
    return asking(names)


def asking(topics: list[dict[str, Any]] | None) -> dict[str, Any]:
    return {
        "topics": topics,
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
        "include_cluster_authorized_operations": False,
    }


async def test_a_request_with_too_many_entries_is_refused_where_the_response_has_room_for_it() -> (
    None
):
    desk = Desk(settings=BOUNDED)
    response = await desk.ask(ApiKey.METADATA, 13, **metadata_of(1001))
    assert response.error_code is ErrorCode.invalid_request
    assert response.topics == ()
    response = await desk.ask(ApiKey.METADATA, 13, **metadata_of(1000))
    assert len(response.topics) == 1000
    with pytest.raises(TooManyEntriesError):
        await desk.ask(ApiKey.METADATA, 12, **metadata_of(1001))
    workplace = desk.workplace
    await desk.ask(ApiKey.METADATA, 12, **metadata_of(1))
    assert (workplace.parsed.used_bytes, workplace.answers.used_bytes) == (0, 0)


async def test_a_request_is_read_when_it_begins_and_is_charged_until_its_answer_is_taken() -> None:
    desk = Desk()
    workplace = desk.workplace
    accepted = await desk.accept(ApiKey.METADATA, 12, **metadata_of(300))
    assert isinstance(accepted, InTurn)
    assert workplace.parsed.used_bytes == 0
    await accepted.begin()
    assert workplace.parsed.used_bytes > 300 * 500
    assert workplace.answers.used_bytes > 300 * 5
    accepted.release()
    assert (workplace.parsed.used_bytes, workplace.answers.used_bytes) == (0, 0)


async def test_heavy_requests_begin_one_at_a_time_and_light_ones_beside_them() -> None:
    desk = Desk()
    turn = desk.workplace.lane.turn()
    await turn.begin()
    heavy = asyncio.create_task(desk.ask(ApiKey.METADATA, 12, **metadata_of(300)))
    everything = asyncio.create_task(desk.ask(ApiKey.METADATA, 12, **asking(None)))
    await desk.ask(ApiKey.METADATA, 12, **metadata_of(5))
    assert not heavy.done()
    assert not everything.done()
    await turn.end()
    assert len((await heavy).topics) == 300
    await everything


async def test_a_heavy_request_waits_while_the_answers_of_others_fill_the_memory() -> None:
    desk = Desk()
    answers = desk.workplace.answers
    await answers.take(answers.total_bytes)
    heavy = asyncio.create_task(desk.ask(ApiKey.METADATA, 12, **metadata_of(300)))
    await desk.ask(ApiKey.API_VERSIONS, 0)
    assert not heavy.done()
    assert answers.is_short
    answers.give(answers.total_bytes)
    assert len((await heavy).topics) == 300
