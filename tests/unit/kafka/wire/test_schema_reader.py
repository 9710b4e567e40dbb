import struct
import typing
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from datetime import timedelta
from random import Random
from typing import Any, NamedTuple

import pytest
from kio.index import load_request_schema
from tests.unit.kafka.wire.samples import encoded, plain, sample

from stratalog.kafka.registry import handler_classes, served
from stratalog.kafka.wire.api import ApiKey
from stratalog.kafka.wire.errors import (
    MalformedRequestError,
    SchemaMismatchError,
    TooManyEntriesError,
)
from stratalog.kafka.wire.schema_reader import (
    compiled_reader,
    declared_name,
)
from stratalog.kafka.wire.schema_writer import entity_of

EVERY_VERSION = [
    (key, version)
    for key, versions in served().items()
    for version in range(versions.first, versions.last + 1)
]


def read(key: ApiKey, version: int, frame: memoryview, position: int = 0) -> Any:
    return compiled_reader(handler_classes()[key].body, key, version)(frame, position)


def declared_part(body: Any, entity: Any) -> Any:
    """The part of kio's entity that the handler declared, as nested dictionaries."""
    if isinstance(entity, tuple | list):
        return [declared_part(body, element) for element in entity]
    if not is_dataclass(entity):
        return plain(entity)
    values = {declared_name(field): getattr(entity, field.name) for field in fields(entity)}
    return {
        name: declared_part(nested_body(body, name), values[name])
        if name in values
        else plain(body._field_defaults[name])
        for name in body._fields
    }


def nested_body(body: Any, name: str) -> Any:
    """The class of a field's elements, if it is a declared one."""

    def found(hint: Any) -> Any:
        if hasattr(hint, "_fields"):
            return hint
        return next((inner for arg in typing.get_args(hint) if (inner := found(arg))), None)

    return found(typing.get_type_hints(body)[name])


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
def test_a_request_is_read_as_kio_wrote_it(key: ApiKey, version: int) -> None:
    random = Random(version)
    for _ in range(20):
        entity = sample(load_request_schema(key, version), random)
        frame = memoryview(b"head" + encoded(entity) + b"tail")
        expected = declared_part(handler_classes()[key].body, entity)
        assert plain(read(key, version, frame, 4)) == expected


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
def test_a_request_that_is_cut_off_anywhere_is_malformed(key: ApiKey, version: int) -> None:
    whole = encoded(sample(load_request_schema(key, version), Random(version)))
    for size in range(len(whole)):
        with pytest.raises(MalformedRequestError):
            read(key, version, memoryview(whole)[:size])


class WithoutDefault(NamedTuple):
    topics: Sequence[str] | None
    allow_auto_topic_creation: bool


class WrongType(NamedTuple):
    max_wait_ms: str


class NeverNull(NamedTuple):
    transactional_id: str


@pytest.mark.parametrize(
    ("body", "key", "version", "message"),
    [
        (WithoutDefault, ApiKey.METADATA, 1, "needs a default"),
        (WrongType, ApiKey.FETCH, 12, "not <class 'str'>"),
        (NeverNull, ApiKey.PRODUCE, 9, "can be null"),
    ],
)
def test_a_declared_request_that_does_not_fit_the_schema_is_a_mistake(
    body: Any, key: ApiKey, version: int, message: str
) -> None:
    with pytest.raises(SchemaMismatchError, match=message):
        compiled_reader(body, key, version)


def test_records_are_not_copied() -> None:
    topic = {"name": "t", "partition_data": [{"index": 0, "records": b"some records"}]}
    values = {"acks": 1, "timeout": timedelta(0), "topic_data": [topic]}
    frame = memoryview(encoded(entity_of(load_request_schema(ApiKey.PRODUCE, 9), values)))
    ((only,),) = [topic.partition_data for topic in read(ApiKey.PRODUCE, 9, frame).topic_data]
    assert bytes(only.records) == b"some records"
    assert only.records.obj is frame.obj


@pytest.mark.parametrize("count", [2**31 - 1, 1000, 17])
def test_an_array_that_claims_more_elements_than_there_are_bytes_is_malformed(count: int) -> None:
    frame = memoryview(struct.pack(">i", count) + b"\x00" * 16)
    with pytest.raises(MalformedRequestError, match="exceeds"):
        read(ApiKey.METADATA, 1, frame)


def test_negative_lengths_other_than_null_are_malformed() -> None:
    with pytest.raises(MalformedRequestError):
        read(ApiKey.METADATA, 1, memoryview(struct.pack(">i", -2)))
    assert read(ApiKey.METADATA, 1, memoryview(struct.pack(">i", -1))).topics is None


def test_null_where_the_schema_wants_a_value_is_malformed() -> None:
    with pytest.raises(MalformedRequestError, match="null"):
        read(ApiKey.METADATA, 0, memoryview(struct.pack(">i", -1)))
    with pytest.raises(MalformedRequestError, match="null"):
        read(ApiKey.METADATA, 1, memoryview(struct.pack(">ih", 1, -1)))


def test_null_as_an_element_of_an_array_is_malformed() -> None:
    """A group id that is null would otherwise fail only when the response is written."""
    with pytest.raises(MalformedRequestError, match="null"):
        read(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, memoryview(b"\x02\x00\x01\x00"))


def test_tagged_fields_that_are_not_known_are_ignored() -> None:
    frame = memoryview(b"\x01" + b"\x01\x00\x00" + b"\x02" + b"\x05\x03abc" + b"\x63\x00")
    request = read(ApiKey.METADATA, 9, frame)
    assert request.topics == []
    assert request.allow_auto_topic_creation is True


class WithTag(NamedTuple):
    cluster_id: str | None


def test_a_tagged_field_cannot_reach_beyond_its_size() -> None:
    base = struct.pack(">iiiibii", -1, 500, 1, 1000, 0, 0, -1) + b"\x01\x01\x01"
    read_cluster = compiled_reader(WithTag, ApiKey.FETCH, 12)
    assert read_cluster(memoryview(base + b"\x01\x00\x02\x02a"), 0).cluster_id == "a"
    with pytest.raises(MalformedRequestError):
        read_cluster(memoryview(base + b"\x01\x00\x02\x05abcd"), 0)


def test_a_varint_of_more_than_five_bytes_is_malformed() -> None:
    with pytest.raises(MalformedRequestError, match="varint"):
        read(ApiKey.METADATA, 9, memoryview(b"\xff" * 12))


def test_text_that_is_not_utf8_is_malformed() -> None:
    frame = memoryview(struct.pack(">ih", 1, 2) + b"\xff\xfe")
    with pytest.raises(MalformedRequestError):
        read(ApiKey.METADATA, 1, frame)


@pytest.mark.parametrize("most", [3, 4])
def test_no_more_entries_are_read_than_allowed(most: int) -> None:
    """Topics and partitions count alike, so that arrays inside of arrays are bounded together."""
    two_topics = struct.pack(">ih1sii", 2, 1, b"a", 1, 7) + struct.pack(">h1sii", 1, b"b", 1, 8)
    reader = compiled_reader(handler_classes()[ApiKey.DESCRIBE_LOG_DIRS].body, 35, 1)
    if most < 4:
        with pytest.raises(TooManyEntriesError):
            reader(memoryview(two_topics), 0, most)
    else:
        reader(memoryview(two_topics), 0, most)
        assert reader.entries == 4


def test_long_texts_and_unknown_tagged_fields_count_as_entries() -> None:
    reader = compiled_reader(handler_classes()[ApiKey.METADATA].body, ApiKey.METADATA, 1)
    frame = memoryview(struct.pack(">ih", 1, 2600) + b"x" * 2600)
    reader(frame, 0, 11)
    with pytest.raises(TooManyEntriesError):
        reader(frame, 0, 10)
    flexible = compiled_reader(handler_classes()[ApiKey.METADATA].body, ApiKey.METADATA, 9)
    tags = b"\x01" + b"\x01\x00\x00" + b"\x40" + b"\x63\x00" * 64
    flexible(memoryview(tags), 0, 64)
    with pytest.raises(TooManyEntriesError):
        flexible(memoryview(tags), 0, 63)
