"""Responses that are written by hand equal kio's, byte for byte, in every version."""

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from stratalog.batch.errors import RecordFault
from stratalog.ids import LeaderEpoch, Offset, PartitionIndex, ProducerId
from stratalog.kafka.wire.api import ApiKey
from stratalog.kafka.wire.fetch_response import PartitionFetched, TopicFetched, fetch_response
from stratalog.kafka.wire.metadata_response import (
    BrokerDescribed,
    TopicDescribed,
    metadata_response,
    topic_part,
)
from stratalog.kafka.wire.produce_response import PartitionProduced, TopicProduced, produce_response
from stratalog.kafka.wire.schema_writer import write_response
from stratalog.segment.model import AbortedTransaction

TOPIC_ID = UUID("0f0e0d0c-1234-4567-89ab-000000000001")


def kio_bytes(key: ApiKey, version: int, values: dict[str, Any]) -> bytes:
    """kio's writer behind our mapping of values, which has a test of its own."""
    return b"".join(write_response(key, version, values))


def time_of(timestamp_ms: int) -> datetime | None:
    return None if timestamp_ms < 0 else datetime.fromtimestamp(timestamp_ms / 1000, UTC)


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_responses(version: int) -> None:
    partitions = [
        PartitionProduced(0, 0, 42, -1, 7, None),
        PartitionProduced(130, 0, 2**40, 1_700_000_000_000, 0, None),
        PartitionProduced(2, 87, -1, -1, -1, "no records: größer"),
        PartitionProduced(
            3, 32, -1, -1, -1, "late", [RecordFault(3, "größer"), RecordFault(2**20, "late")]
        ),
    ]
    topics = [
        TopicProduced("a-topic", TOPIC_ID, partitions),
        TopicProduced("other" * 40, UUID(int=5), partitions * 50),
        TopicProduced("empty", UUID(int=6), []),
    ]
    expected = {
        "responses": [
            {
                "name": topic.name,
                "topic_id": topic.topic_id,
                "partition_responses": [
                    {
                        "index": one.partition,
                        "error_code": ErrorCode(one.error_code),
                        "base_offset": one.base_offset,
                        "log_append_time": time_of(one.append_time_ms),
                        "log_start_offset": one.log_start,
                        "record_errors": [
                            {"batch_index": record, "batch_index_error_message": reason}
                            for record, reason in one.record_faults
                        ],
                        "error_message": one.error_message,
                    }
                    for one in topic.partitions
                ],
            }
            for topic in topics
        ]
    }
    assert produce_response(version, topics) == kio_bytes(ApiKey.PRODUCE, version, expected)


@pytest.mark.parametrize("read_committed", [False, True])
@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_responses(version: int, read_committed: bool) -> None:
    random = Random(version)
    aborted = [
        AbortedTransaction(ProducerId(2**40), Offset(5), Offset(7), Offset(8)),
        AbortedTransaction(ProducerId(3), Offset(6), Offset(9), Offset(10)),
    ]
    partitions = [
        PartitionFetched(0, 0, 10, 9, 1, [random.randbytes(5), memoryview(random.randbytes(300))]),
        PartitionFetched(1, 0, 0, 0, 0, []),
        PartitionFetched(2, 1, -1, -1, -1),
        PartitionFetched(3, 0, 10, 9, 1, [random.randbytes(9)], aborted=aborted),
    ]
    topics = [
        TopicFetched("a-topic", TOPIC_ID, partitions),
        TopicFetched("none", UUID(int=6), []),
        TopicFetched("other" * 40, UUID(int=5), partitions * 50),
    ]
    expected = {
        "error_code": ErrorCode.none,
        "responses": [
            {
                "topic": topic.name,
                "topic_id": topic.topic_id,
                "partitions": [
                    {
                        "partition_index": one.partition,
                        "error_code": ErrorCode(one.error_code),
                        "high_watermark": one.high_watermark,
                        "last_stable_offset": one.last_stable,
                        "log_start_offset": one.log_start,
                        "aborted_transactions": [
                            {"producer_id": each.producer_id, "first_offset": each.first_offset}
                            for each in one.aborted
                        ]
                        if read_committed
                        else None,
                        "records": b"".join(one.parts),
                    }
                    for one in topic.partitions
                ],
            }
            for topic in topics
        ],
    }
    written = fetch_response(version, topics, read_committed=read_committed)
    assert b"".join(written) == kio_bytes(ApiKey.FETCH, version, expected)


@pytest.mark.parametrize("version", range(7, 19))
def test_fetch_responses_with_an_error_of_the_whole_request(version: int) -> None:
    code = ErrorCode.fetch_session_id_not_found
    expected = {"error_code": code, "responses": []}
    written = b"".join(fetch_response(version, [], error_code=code))
    assert written == kio_bytes(ApiKey.FETCH, version, expected)


def test_fetch_responses_pass_record_data_on_without_copying() -> None:
    data = memoryview(bytearray(1000))
    topics = [TopicFetched("t", None, [PartitionFetched(0, 0, 1, 1, 0, [data])])]
    assert any(part is data for part in fetch_response(12, topics))


@pytest.mark.parametrize("version", range(14))
def test_metadata_responses(version: int) -> None:
    epochs = {PartitionIndex(3): LeaderEpoch(5), PartitionIndex(299): LeaderEpoch(2**30)}
    brokers = [BrokerDescribed(1, "a.example", 9092, "zone-1"), BrokerDescribed(7, "b", 1, None)]
    topics = [
        TopicDescribed(0, "a-topic", TOPIC_ID, [1, 7, 1]),
        TopicDescribed(0, "other" * 40, UUID(int=5), [7] * 300, epochs),
        TopicDescribed(17, "bad", None, []),
    ]
    if version >= 12:
        topics.append(TopicDescribed(100, None, UUID(int=9), []))
    expected = {
        "brokers": [broker._asdict() for broker in brokers],
        "cluster_id": "a-cluster",
        "controller_id": 7,
        "error_code": ErrorCode.none,
        "topics": [
            {
                "error_code": ErrorCode(topic.error_code),
                "name": topic.name,
                "topic_id": topic.topic_id,
                "partitions": [
                    {
                        "error_code": ErrorCode.none,
                        "partition_index": index,
                        "leader_id": leader,
                        "leader_epoch": topic.epochs.get(PartitionIndex(index), 0),
                        "replica_nodes": (leader,),
                        "isr_nodes": (leader,),
                    }
                    for index, leader in enumerate(topic.leaders)
                ],
            }
            for topic in topics
        ],
    }
    written = metadata_response(
        version,
        brokers=brokers,
        cluster_id="a-cluster",
        controller_id=7,
        topics=[topic_part(version, topic) for topic in topics],
    )
    assert b"".join(written) == kio_bytes(ApiKey.METADATA, version, expected)


def test_metadata_of_very_many_topics_has_few_parts() -> None:
    """An event loop that is given two million parts closes the connection."""
    topics = [b"topic"] * 200_001
    written = metadata_response(12, brokers=[], cluster_id="c", controller_id=1, topics=topics)
    assert len(written) < 1000
    assert b"".join(topics) in b"".join(written)


def test_kio_still_has_the_defaults_that_the_hand_written_code_relies_on() -> None:
    newest: Any = load_response_schema(ApiKey.FETCH, 18)
    response = newest(throttle_time=timedelta(0), error_code=ErrorCode.none, responses=())
    assert response.session_id == 0
    assert response.node_endpoints == ()
