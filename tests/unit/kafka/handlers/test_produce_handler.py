import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.kafka.handlers.desk import SESSION, Desk, answered

from stratalog.batch.errors import BatchTooLargeError, CrcMismatchError, UnsupportedCodecError
from stratalog.block.errors import BlockFailedError
from stratalog.control.errors import ControlUnavailableError
from stratalog.errors import OutcomeUnknownError, StratalogError
from stratalog.ids import Offset
from stratalog.kafka.server.acceptor import Running
from stratalog.kafka.wire.api import ApiKey
from stratalog.topic import catalog
from stratalog.topic.errors import FencedProducerError, OutOfOrderSequenceError
from stratalog.topic.model import PartitionWritten

VERSIONS = range(3, 14)
ORDERS = UUID(int=1)
UNKNOWN_ID = UUID(int=0xFFFF)


@pytest.fixture
async def desk() -> Desk:
    desk = Desk()
    await desk.control.topics.create("orders", partition_count=3, configs={})
    return desk


def produce(
    version: int,
    *,
    topic: str = "orders",
    topic_id: UUID = ORDERS,
    acks: int = -1,
    records: bytes | None = b"a batch",
    partitions: tuple[int, ...] = (0,),
    transactional_id: str | None = None,
) -> dict[str, Any]:
    data = [{"index": index, "records": records} for index in partitions]
    return {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout": timedelta(seconds=30),
        "topic_data": [{"name": topic, "topic_id": topic_id, "partition_data": data}],
    }


async def codes(desk: Desk, version: int, **how: Any) -> list[ErrorCode]:
    response = await desk.ask(ApiKey.PRODUCE, version, **produce(version, **how))
    return [one.error_code for topic in response.responses for one in topic.partition_responses]


@pytest.mark.parametrize("version", VERSIONS)
async def test_records_are_appended_and_answered_with_their_offset(
    desk: Desk, version: int
) -> None:
    response = await desk.ask(ApiKey.PRODUCE, version, **produce(version, partitions=(2, 0)))
    first, second = response.responses[0].partition_responses
    assert (first.index, second.index) == (2, 0)
    assert first.error_code is ErrorCode.none
    assert first.base_offset == 42
    assert [(write.partition, bytes(write.data)) for write in desk.appends.writes] == [
        (2, b"a batch"),
        (0, b"a batch"),
    ]


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_unknown_topic_fails_its_partitions_and_writes_nothing(
    desk: Desk, version: int
) -> None:
    found = await codes(desk, version, topic="nope", topic_id=UNKNOWN_ID, partitions=(0, 1))
    unknown = ErrorCode.unknown_topic_id if version >= 13 else ErrorCode.unknown_topic_or_partition
    assert found == [unknown, unknown]
    assert desk.appends.writes == []


async def test_records_are_appended_under_the_number_of_their_connection(desk: Desk) -> None:
    await desk.ask(ApiKey.PRODUCE, 12, **produce(12))
    assert desk.appends.senders == [SESSION.number]


async def test_no_topic_has_an_id_of_zeros(desk: Desk) -> None:
    found = await codes(desk, 13, topic="nope", topic_id=UUID(int=0), partitions=(0,))
    assert found == [ErrorCode.unknown_topic_id]
    assert desk.appends.writes == []


async def test_a_topic_is_taken_as_last_seen_while_the_control_plane_is_away(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.control.failure = ControlUnavailableError("away")
    assert await codes(desk, 12) == [ErrorCode.kafka_storage_error]
    desk.control.failure = None
    monkeypatch.setattr(catalog, "_EXPIRY_S", -1.0)
    assert await codes(desk, 12) == [ErrorCode.none]
    desk.control.failure = ControlUnavailableError("away")
    assert await codes(desk, 12) == [ErrorCode.none]


async def test_good_partitions_are_written_beside_bad_ones(desk: Desk) -> None:
    request = produce(9)
    request["topic_data"] += [
        {"name": "nope", "partition_data": [{"index": 0, "records": b"x"}]},
        {"name": "orders", "partition_data": [{"index": -1, "records": b"x"}]},
        {"name": "orders", "partition_data": [{"index": 2, "records": b""}]},
        {"name": "orders", "partition_data": [{"index": 1, "records": b"x"}]},
    ]
    response = await desk.ask(ApiKey.PRODUCE, 9, **request)
    assert [topic.partition_responses[0].error_code for topic in response.responses] == [
        ErrorCode.none,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.invalid_record,
        ErrorCode.none,
    ]
    assert [write.partition for write in desk.appends.writes] == [0, 1]


async def test_records_that_are_null_are_invalid(desk: Desk) -> None:
    assert await codes(desk, 8, records=None) == [ErrorCode.invalid_record]


@pytest.mark.parametrize("acks", [-1, 1])
async def test_acks_of_one_and_all_are_the_same(desk: Desk, acks: int) -> None:
    assert await codes(desk, 7, acks=acks) == [ErrorCode.none]


@pytest.mark.parametrize("acks", [-2, 2])
async def test_other_acks_are_refused(desk: Desk, acks: int) -> None:
    assert await codes(desk, 7, acks=acks) == [ErrorCode.invalid_required_acks]
    assert desk.appends.writes == []


async def test_acks_of_zero_are_not_answered_but_written(desk: Desk) -> None:
    accepted = await desk.accept(ApiKey.PRODUCE, 7, **produce(7, acks=0))
    assert await answered(accepted) is None
    assert len(desk.appends.writes) == 1


async def test_acks_of_zero_that_fail_are_not_answered_but_logged(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    desk.appends.failure = BlockFailedError("no store")
    accepted = await desk.accept(ApiKey.PRODUCE, 7, **produce(7, acks=0))
    assert await answered(accepted) is None
    assert "orders-0 failed: no store" in caplog.text


async def test_a_transactional_id_is_refused_for_good(desk: Desk) -> None:
    found = await codes(desk, 7, transactional_id="t")
    assert found == [ErrorCode.unsupported_version]
    assert not found[0].retriable


async def test_accepting_puts_records_in_order_before_anything_is_answered(desk: Desk) -> None:
    desk.appends.held = asyncio.Event()
    first = await desk.accept(ApiKey.PRODUCE, 9, **produce(9, records=b"first"))
    second = await desk.accept(ApiKey.PRODUCE, 9, **produce(9, records=b"second"))
    assert [bytes(write.data) for write in desk.appends.writes] == [b"first", b"second"]
    assert isinstance(first, Running)
    assert first.outlives_client
    assert not first.done.done()
    desk.appends.held.set()
    assert await answered(first) is not None
    assert await answered(second) is not None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CrcMismatchError(17, "bad"), ErrorCode.corrupt_message),
        (UnsupportedCodecError(21, "7"), ErrorCode.unsupported_compression_type),
        (BatchTooLargeError(8, "big"), ErrorCode.message_too_large),
        (OutOfOrderSequenceError("gap"), ErrorCode.out_of_order_sequence_number),
        (FencedProducerError("old"), ErrorCode.invalid_producer_epoch),
        (BlockFailedError("no store"), ErrorCode.kafka_storage_error),
        (OutcomeUnknownError("who knows"), ErrorCode.request_timed_out),
    ],
)
async def test_what_the_append_says_is_what_the_producer_is_told(
    desk: Desk, error: StratalogError, code: ErrorCode
) -> None:
    desk.appends.answer = PartitionWritten(error=error)
    response = await desk.ask(ApiKey.PRODUCE, 9, **produce(9))
    answer = response.responses[0].partition_responses[0]
    assert (answer.error_code, answer.error_message) == (code, str(error))
    assert answer.base_offset == -1


async def test_an_append_that_fails_as_a_whole_fails_every_partition(desk: Desk) -> None:
    desk.appends.failure = BlockFailedError("no store")
    found = await codes(desk, 9, partitions=(0, 1))
    assert found == [ErrorCode.kafka_storage_error] * 2


async def test_a_mistake_of_ours_is_logged_and_not_told_in_detail(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.appends.failure = RuntimeError("secret detail")
    response = await desk.ask(ApiKey.PRODUCE, 9, **produce(9))
    answer = response.responses[0].partition_responses[0]
    assert answer.error_code is ErrorCode.unknown_server_error
    assert "secret" not in answer.error_message
    assert "secret detail" in caplog.text


async def test_log_append_time_is_answered(desk: Desk) -> None:
    desk.appends.answer = PartitionWritten(base_offset=Offset(1), append_time_ms=1_700_000_000_000)
    response = await desk.ask(ApiKey.PRODUCE, 9, **produce(9))
    time = response.responses[0].partition_responses[0].log_append_time
    assert time.timestamp() == 1_700_000_000
