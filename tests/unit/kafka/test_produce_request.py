import struct
from random import Random
from uuid import UUID

import pytest
from kio.index import load_request_schema
from tests.unit.kafka.samples import encoded, plain, sample

from stratalog.kafka.api import ApiKey
from stratalog.kafka.errors import MalformedRequestError
from stratalog.kafka.produce_request import ProduceRequest, parse_produce

VERSIONS = range(3, 14)


def as_kio(request: ProduceRequest, version: int) -> dict[str, object]:
    key = "topic_id" if version >= 13 else "name"
    return {
        "transactional_id": request.transactional_id,
        "acks": request.acks,
        "timeout": request.timeout_ms,
        "topic_data": [
            {
                key: _none_if_zero(topic.topic_id) if version >= 13 else topic.name,
                "partition_data": [
                    {
                        "index": one.partition,
                        "records": None if one.records is None else bytes(one.records),
                    }
                    for one in topic.partitions
                ],
            }
            for topic in request.topics
        ],
    }


def _none_if_zero(topic_id: UUID | None) -> UUID | None:
    return None if topic_id == UUID(int=0) else topic_id


@pytest.mark.parametrize("version", VERSIONS)
def test_a_produce_request_is_read_as_kio_wrote_it(version: int) -> None:
    random = Random(version)
    for _ in range(50):
        entity = sample(load_request_schema(ApiKey.PRODUCE, version), random)
        frame = memoryview(b"head" + encoded(entity))
        assert as_kio(parse_produce(frame, 4, version), version) == plain(entity)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_produce_request_that_is_cut_off_anywhere_is_malformed(version: int) -> None:
    whole = encoded(sample(load_request_schema(ApiKey.PRODUCE, version), Random(version)))
    for size in range(len(whole)):
        with pytest.raises(MalformedRequestError):
            parse_produce(memoryview(whole)[:size], 0, version)


def test_records_are_views_into_the_frame_and_no_copies() -> None:
    records = b"r" * 100
    body = struct.pack(">hhi", -1, -1, 1000)
    body += struct.pack(">ih1s", 1, 1, b"t") + struct.pack(">iii", 1, 0, len(records)) + records
    frame = bytearray(body)
    parsed = parse_produce(memoryview(frame), 0, 3)
    view = parsed.topics[0].partitions[0].records
    assert view is not None
    assert view.obj is frame
    frame[-1] = ord("x")
    assert view[-1] == ord("x")


@pytest.mark.parametrize("size", [-2, 2**31 - 1, 101])
def test_records_longer_than_the_request_are_malformed(size: int) -> None:
    body = struct.pack(">hhi", -1, -1, 1000) + struct.pack(">ih1s", 1, 1, b"t")
    body += struct.pack(">iii", 1, 0, size) + b"r" * 100
    with pytest.raises(MalformedRequestError):
        parse_produce(memoryview(body), 0, 3)
