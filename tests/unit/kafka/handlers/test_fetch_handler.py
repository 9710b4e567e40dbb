from dataclasses import replace
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.kafka.handlers.desk import Desk
from tests.unit.kafka.handlers.read_requests import ORDERS, fetch, wanted

from stratalog.batch.errors import BatchDamagedError
from stratalog.control.errors import ControlUnavailableError
from stratalog.control.topics.errors import UnknownTopicError
from stratalog.ids import LeaderEpoch, Offset, PartitionIndex, ProducerId, TopicId
from stratalog.kafka.server.acceptor import InTurn
from stratalog.kafka.wire.api import ApiKey
from stratalog.segment.errors import ManifestDamagedError
from stratalog.segment.model import AbortedTransaction
from stratalog.topic.errors import RemoteReadsOffError

VERSIONS = range(4, 19)


@pytest.fixture
async def desk() -> Desk:
    desk = Desk()
    await desk.control.topics.create("orders", partition_count=3, configs={})
    return desk


@pytest.mark.parametrize("version", VERSIONS)
async def test_records_are_fetched_with_the_offsets_of_their_partition(
    desk: Desk, version: int
) -> None:
    response = await desk.ask(ApiKey.FETCH, version, **fetch(wanted("orders", ORDERS, 5, 11)))
    good, bad = response.responses[0].partitions
    assert good.error_code is ErrorCode.none
    assert bytes(good.records) == b"some records"
    assert (good.high_watermark, good.last_stable_offset) == (10, 8)
    assert good.aborted_transactions is None
    assert bad.error_code is ErrorCode.offset_out_of_range
    assert bad.records == b""
    spans, max_bytes, min_bytes, max_wait_ms = desk.reads.asked[0]
    assert (max_bytes, min_bytes, max_wait_ms) == (1000, 5, 500)
    assert [(span.partition, span.offset, span.max_bytes) for span in spans] == [
        (0, 5, 100),
        (1, 11, 100),
    ]


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_unknown_topic_is_told_at_once_beside_the_known_ones(
    desk: Desk, version: int
) -> None:
    asked = fetch(wanted("nope", UUID(int=99), 0), wanted("orders", ORDERS, 5))
    response = await desk.ask(ApiKey.FETCH, version, **asked)
    unknown = ErrorCode.unknown_topic_id if version >= 13 else ErrorCode.unknown_topic_or_partition
    assert [topic.partitions[0].error_code for topic in response.responses] == [
        unknown,
        ErrorCode.none,
    ]
    _, _, min_bytes, max_wait_ms = desk.reads.asked[0]
    assert (min_bytes, max_wait_ms) == (0, 0)


@pytest.mark.parametrize("version", VERSIONS)
async def test_readers_of_committed_records_get_a_list_of_aborted_transactions(
    desk: Desk, version: int
) -> None:
    asked = fetch(wanted("orders", ORDERS, 5), isolation=1)
    response = await desk.ask(ApiKey.FETCH, version, **asked)
    assert response.responses[0].partitions[0].aborted_transactions == ()
    desk.reads.aborted = [AbortedTransaction(ProducerId(7), Offset(3), Offset(6), Offset(7))]
    response = await desk.ask(ApiKey.FETCH, version, **asked)
    [aborted] = response.responses[0].partitions[0].aborted_transactions
    assert (aborted.producer_id, aborted.first_offset) == (7, 3)
    others = await desk.ask(ApiKey.FETCH, version, **fetch(wanted("orders", ORDERS, 5)))
    assert others.responses[0].partitions[0].aborted_transactions is None
    assert desk.reads.committed == [True, True, False]


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (-1, ErrorCode.none),
        (3, ErrorCode.fenced_leader_epoch),
        (4, ErrorCode.none),
        (5, ErrorCode.unknown_leader_epoch),
    ],
)
@pytest.mark.parametrize("version", [9, 12, 13, 18])
async def test_a_leader_epoch_that_is_not_the_partitions_own_is_told_at_once(
    desk: Desk, version: int, epoch: int, code: ErrorCode
) -> None:
    known = desk.control.by_id[TopicId(ORDERS)]
    desk.control.by_id[known.id] = replace(known, leader_epochs={PartitionIndex(0): LeaderEpoch(4)})
    other = wanted("orders", ORDERS, 5)
    other["partitions"][0]["partition"] = 1
    asked = fetch(wanted("orders", ORDERS, 5, epoch=epoch), other)
    response = await desk.ask(ApiKey.FETCH, version, **asked)
    [topic] = response.responses
    checked, _ = topic.partitions
    assert checked.error_code is code
    assert bytes(checked.records) == (b"" if code else b"some records")
    assert desk.reads.asked[0][3] == (0 if code else 500)


async def test_a_broker_that_remembers_an_older_epoch_does_not_turn_clients_away(
    desk: Desk,
) -> None:
    await desk.ask(ApiKey.FETCH, 9, **fetch(wanted("orders", ORDERS, 5, epoch=0)))
    known = desk.control.by_id[TopicId(ORDERS)]
    desk.control.by_id[known.id] = replace(known, leader_epochs={PartitionIndex(0): LeaderEpoch(1)})
    response = await desk.ask(ApiKey.FETCH, 9, **fetch(wanted("orders", ORDERS, 5, epoch=1)))
    assert response.responses[0].partitions[0].error_code is ErrorCode.none


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BatchDamagedError(0, "rotten"), ErrorCode.corrupt_message),
        (UnknownTopicError("gone"), ErrorCode.unknown_topic_or_partition),
        (ControlUnavailableError("away"), ErrorCode.kafka_storage_error),
        (RemoteReadsOffError("off"), ErrorCode.kafka_storage_error),
        (ManifestDamagedError("rotten"), ErrorCode.corrupt_message),
    ],
)
async def test_what_the_read_says_is_what_the_consumer_is_told(
    desk: Desk, error: Exception, code: ErrorCode
) -> None:
    desk.reads.error = error
    response = await desk.ask(ApiKey.FETCH, 12, **fetch(wanted("orders", ORDERS, 5)))
    assert response.responses[0].partitions[0].error_code is code


@pytest.mark.parametrize("version", [4, 12, 13])
async def test_a_fetch_that_fails_as_a_whole_fails_every_partition(
    desk: Desk, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise ControlUnavailableError("away")

    monkeypatch.setattr(desk.reads, "read", fail)
    response = await desk.ask(ApiKey.FETCH, version, **fetch(wanted("orders", ORDERS, 5, 6)))
    found = [one.error_code for one in response.responses[0].partitions]
    assert found == [ErrorCode.kafka_storage_error] * 2


@pytest.mark.parametrize("version", [4, 12, 13])
async def test_a_partition_that_is_named_again_and_again_is_answered_once(
    desk: Desk, version: int
) -> None:
    """Kafka reads the entries into a map: the last one counts, at the place of the first."""
    twice = wanted("orders", ORDERS, 5, 6)
    twice["partitions"] += [{**twice["partitions"][0], "fetch_offset": 7}] * 3000
    response = await desk.ask(ApiKey.FETCH, version, **fetch(twice, wanted("orders", ORDERS, 8)))
    [topic] = response.responses[:1]
    answered = [one.partition_index for topic in response.responses for one in topic.partitions]
    assert sorted(answered) == [0, 1]
    assert topic.partitions
    spans, *_ = desk.reads.asked[0]
    assert sorted((span.partition, span.offset) for span in spans) == [(0, 8), (1, 6)]


async def test_fetches_are_worked_on_in_turn(desk: Desk) -> None:
    accepted = await desk.accept(ApiKey.FETCH, 12, **fetch(wanted("orders", ORDERS, 5)))
    assert isinstance(accepted, InTurn)
    assert desk.reads.asked == []
