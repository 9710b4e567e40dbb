import struct
from random import Random

import pytest
from kio.index import load_request_schema
from tests.unit.kafka.samples import encoded, plain, sample

from stratalog.kafka.api import SERVED, ApiKey
from stratalog.kafka.errors import MalformedRequestError
from stratalog.kafka.schema_reader import read_request

READ_BY_SCHEMA = [
    (key, version)
    for key, served in SERVED.items()
    if key is not ApiKey.PRODUCE
    for version in range(served.first, served.last + 1)
]


@pytest.mark.parametrize(("key", "version"), READ_BY_SCHEMA)
def test_a_request_is_read_as_kio_wrote_it(key: ApiKey, version: int) -> None:
    random = Random(version)
    for _ in range(20):
        entity = sample(load_request_schema(key, version), random)
        frame = memoryview(b"head" + encoded(entity) + b"tail")
        assert plain(read_request(key, version, frame, 4)) == plain(entity)


@pytest.mark.parametrize(("key", "version"), READ_BY_SCHEMA)
def test_a_request_that_is_cut_off_anywhere_is_malformed(key: ApiKey, version: int) -> None:
    whole = encoded(sample(load_request_schema(key, version), Random(version)))
    for size in range(len(whole)):
        with pytest.raises(MalformedRequestError):
            read_request(key, version, memoryview(whole)[:size], 0)


@pytest.mark.parametrize("count", [2**31 - 1, 1000, 17])
def test_an_array_that_claims_more_elements_than_there_are_bytes_is_malformed(count: int) -> None:
    frame = memoryview(struct.pack(">i", count) + b"\x00" * 16)
    with pytest.raises(MalformedRequestError, match="exceeds"):
        read_request(ApiKey.METADATA, 1, frame, 0)


def test_negative_lengths_other_than_null_are_malformed() -> None:
    with pytest.raises(MalformedRequestError):
        read_request(ApiKey.METADATA, 1, memoryview(struct.pack(">i", -2)), 0)
    assert read_request(ApiKey.METADATA, 1, memoryview(struct.pack(">i", -1)), 0).topics is None


def test_null_where_the_schema_wants_a_value_is_malformed() -> None:
    with pytest.raises(MalformedRequestError, match="null"):
        read_request(ApiKey.METADATA, 0, memoryview(struct.pack(">i", -1)), 0)
    with pytest.raises(MalformedRequestError, match="null"):
        read_request(ApiKey.METADATA, 1, memoryview(struct.pack(">ih", 1, -1)), 0)


def test_tagged_fields_that_are_not_known_are_ignored() -> None:
    frame = memoryview(b"\x01" + b"\x01\x00\x00" + b"\x02" + b"\x05\x03abc" + b"\x63\x00")
    request = read_request(ApiKey.METADATA, 9, frame, 0)
    assert request.topics == []
    assert request.allow_auto_topic_creation is True


def test_a_tagged_field_cannot_reach_beyond_its_size() -> None:
    base = struct.pack(">iiiibii", -1, 500, 1, 1000, 0, 0, -1) + b"\x01\x01\x01"
    cluster_id = b"\x01\x00\x02\x02a"
    assert read_request(ApiKey.FETCH, 12, memoryview(base + cluster_id), 0).cluster_id == "a"
    beyond = b"\x01\x00\x02\x05abcd"
    with pytest.raises(MalformedRequestError):
        read_request(ApiKey.FETCH, 12, memoryview(base + beyond), 0)


def test_a_varint_of_more_than_five_bytes_is_malformed() -> None:
    with pytest.raises(MalformedRequestError, match="varint"):
        read_request(ApiKey.METADATA, 9, memoryview(b"\xff" * 12), 0)


def test_text_that_is_not_utf8_is_malformed() -> None:
    frame = memoryview(struct.pack(">ih", 1, 2) + b"\xff\xfe")
    with pytest.raises(MalformedRequestError):
        read_request(ApiKey.METADATA, 1, frame, 0)
