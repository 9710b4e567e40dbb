"""Requests that no client should send: each costs its sender an error or a connection, and no
other client anything."""

import logging
import random
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from crc32c import crc32c
from kio.schema.api_versions.v0.response import ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v5 import request as metadata_request
from kio.schema.metadata.v5.response import MetadataResponse
from kio.schema.produce.v9 import request as produce_request
from kio.schema.produce.v9.response import ProduceResponse
from kio.schema.types import TopicName
from kio.serial import entity_reader
from kio.static.primitive import Records, i16, i32, i32Timedelta
from tests.support.clients.confluent_client import ConfluentClient
from tests.support.clients.message import numbered, values
from tests.support.clusters import BASE, Cluster, create, fresh_topic, one_broker
from tests.support.wire import batch_of, connected, frame_of, produce_of

from stratalog.batch.header import CRC_POSITION, CRC_START, Codec
from stratalog.kafka.registry import served

MAX_REQUEST_BYTES = 1 << 20
MAX_MESSAGE_BYTES = 10_000
HEAD = struct.Struct(">hhih")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    tight = replace(BASE, broker=replace(BASE.broker, max_request_bytes=MAX_REQUEST_BYTES))
    with one_broker(tmp_path_factory.mktemp("bad-input"), base=tight) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def neighbour(broker: Cluster) -> Iterator[str]:
    """A topic that stays unharmed: at the end every acknowledged record is there."""
    topic = create(broker, fresh_topic("neighbour"))
    yield topic
    count = WRITTEN_TO_NEIGHBOUR.pop(topic)
    with connected(broker.addresses[0]) as wire:
        assert wire.fetch_values(topic) == [b"%d" % number for number in range(count)]


WRITTEN_TO_NEIGHBOUR: dict[str, int] = {}


@pytest.fixture(autouse=True)
def others_are_served(
    broker: Cluster, neighbour: str, caplog: pytest.LogCaptureFixture
) -> Iterator[None]:
    """A client that was connected all the time writes before and after each case. The broker
    never takes a client's mistake for one of its own, which it would log as an error."""
    with connected(broker.addresses[0]) as wire:
        for turn in range(2):
            count = WRITTEN_TO_NEIGHBOUR.setdefault(neighbour, 0)
            answer = wire.produce(neighbour, batch_of([b"%d" % count]))
            assert (answer.error_code, answer.base_offset) == (ErrorCode.none, count)
            WRITTEN_TO_NEIGHBOUR[neighbour] = count + 1
            if turn == 0:
                yield
    ours = [record for record in caplog.records if record.name.startswith("stratalog")]
    assert [record.getMessage() for record in ours if record.levelno >= logging.ERROR] == []


GARBAGE = {
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a TLS hello": bytes.fromhex("1603010200010001fc0303") + bytes(64),
    "a negative length": struct.pack(">i", -1) + bytes(16),
    "a length of nothing": struct.pack(">i", 0) + bytes(16),
    "a length too short for a header": struct.pack(">i", 7) + bytes(16),
    "a length just above the limit": struct.pack(">i", MAX_REQUEST_BYTES + 1) + bytes(16),
    "the largest length": struct.pack(">i", 2**31 - 1) + bytes(16),
    "random bytes of the right length": struct.pack(">i", 64) + random.Random(0).randbytes(64),
    "an unknown API key": struct.pack(">i", 10) + HEAD.pack(999, 0, 1, -1),
    "a negative API key": struct.pack(">i", 10) + HEAD.pack(-1, 0, 1, -1),
    "a version above those served": struct.pack(">i", 10) + HEAD.pack(3, 99, 1, -1),
    "a version below those served": struct.pack(">i", 10) + HEAD.pack(0, 2, 1, -1),
    "a negative version": struct.pack(">i", 10) + HEAD.pack(0, -1, 1, -1),
    "a client's name that does not end": struct.pack(">i", 10) + HEAD.pack(3, 1, 1, 500),
    "a client's name that is no text": struct.pack(">i", 12) + HEAD.pack(3, 1, 1, 2) + b"\xff\xff",
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_garbage_closes_its_connection(broker: Cluster, garbage: bytes) -> None:
    with connected(broker.addresses[0]) as wire:
        wire.send_bytes(garbage)
        assert wire.is_closed_by_peer()


def test_a_request_of_the_largest_length_is_waited_for(broker: Cluster) -> None:
    """Just inside the limit: the broker reads on and answers. The padding is a client's name."""
    topic = create(broker, fresh_topic("padded"))
    frame = frame_of(produce_of(topic, batch_of([b"x"])))
    head, body = frame[:8], frame[8 + 2 + len(b"wire") :]
    room = MAX_REQUEST_BYTES - len(head) - 2 - len(body)
    name = b"n" * min(room, 2**15 - 1)
    tags = _tags_of(room - len(name))
    padded = head + struct.pack(">h", len(name)) + name + tags + body[1:]
    assert len(padded) == MAX_REQUEST_BYTES
    with connected(broker.addresses[0]) as wire:
        wire.send_frame(padded)
        answer: ProduceResponse = wire.answer(ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none


def _tags_of(extra: int) -> bytes:
    """A tagged field that no version defines, so that the tags are `extra` bytes longer than
    none."""
    overhead = len(b"\x01\x63") + 3
    size = extra + 1 - overhead
    return (
        b"\x01\x63" + bytes((size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14)) + bytes(size)
    )


def test_a_newer_api_versions_request_is_told_the_range(broker: Cluster) -> None:
    with connected(broker.addresses[0]) as wire:
        wire.send_frame(HEAD.pack(18, 99, 7, -1))
        frame = memoryview(wire.receive_frame())
    assert bytes(frame[:4]) == struct.pack(">i", 7)
    response, _ = entity_reader(ApiVersionsResponse)(frame, 4)
    assert response.error_code is ErrorCode.unsupported_version
    assert {int(key.api_key): key.max_version for key in response.api_keys}[18] == 4


def test_requests_before_garbage_are_answered(broker: Cluster) -> None:
    topic = create(broker, fresh_topic("before"))
    frame = frame_of(produce_of(topic, batch_of([b"kept"])))
    with connected(broker.addresses[0]) as wire:
        wire.send_bytes(struct.pack(">i", len(frame)) + frame + GARBAGE["a negative length"])
        answer: ProduceResponse = wire.answer(ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none
        assert wire.is_closed_by_peer()
    with connected(broker.addresses[0]) as wire:
        assert wire.fetch_values(topic) == [b"kept"]


@pytest.mark.parametrize("part", [0.1, 0.5, 0.99])
def test_half_a_request_writes_nothing(broker: Cluster, part: float) -> None:
    topic = create(broker, fresh_topic("half"))
    frame = frame_of(produce_of(topic, batch_of([b"x" * 5000])))
    with connected(broker.addresses[0]) as wire:
        wire.send_bytes(struct.pack(">i", len(frame)) + frame[: int(len(frame) * part)])
        wire.end_sending()
        assert wire.is_closed_by_peer()
    with connected(broker.addresses[0]) as wire:
        assert wire.fetch_values(topic) == []


@pytest.mark.parametrize("key", served(), ids=lambda key: key.name)
def test_bodies_of_random_bytes_are_answered_or_close_the_connection(
    broker: Cluster, key: int
) -> None:
    """Every API in every version. `others_are_served` checks that other clients are not
    affected."""
    chance = random.Random(int(key))
    first, last, first_flexible = served()[key]  # type: ignore[index]
    for version in range(first, last + 1):
        tags = b"\0" if version >= first_flexible else b""
        for body in (b"", b"\xff" * 40, chance.randbytes(80), struct.pack(">i", 2**31 - 1) * 4):
            with connected(broker.addresses[0]) as wire:
                wire.send_frame(HEAD.pack(key, version, 1, -1) + tags + body)
                wire.end_sending()
                wire.is_closed_by_peer()


def good_batch() -> bytes:
    return batch_of([b"one", b"two"])


def with_crc(batch: bytearray) -> bytes:
    struct.pack_into(">I", batch, CRC_POSITION, crc32c(bytes(batch[CRC_START:])))
    return bytes(batch)


def flipped() -> bytes:
    batch = bytearray(good_batch())
    batch[-1] ^= 1
    return bytes(batch)


def with_header(position: int, format: str, value: int) -> bytes:
    """A field of the header set to something else, with the CRC made to fit."""
    batch = bytearray(good_batch())
    struct.pack_into(format, batch, position, value)
    return with_crc(batch)


def garbage_compressed(codec: Codec) -> bytes:
    batch = bytearray(good_batch())
    struct.pack_into(">h", batch, 21, codec)
    return with_crc(batch)


def in_a_week_ms() -> int:
    return round((time.time() + 7 * 86_400) * 1000)


BAD_RECORDS = {
    "a wrong checksum": (flipped(), ErrorCode.corrupt_message),
    "no records": (b"", ErrorCode.invalid_record),
    "null records": (None, ErrorCode.invalid_record),
    "a batch cut short": (good_batch()[:-1], ErrorCode.invalid_record),
    "half a header": (good_batch()[:30], ErrorCode.invalid_record),
    "bytes behind the batch": (good_batch() + b"\0" * 5, ErrorCode.invalid_record),
    "magic 1": (with_header(16, ">b", 1), ErrorCode.invalid_record),
    "magic 3": (with_header(16, ">b", 3), ErrorCode.invalid_record),
    "a length of 0": (with_header(8, ">i", 0), ErrorCode.invalid_record),
    "a negative length": (with_header(8, ">i", -5), ErrorCode.invalid_record),
    "a length beyond the request": (with_header(8, ">i", 10**6), ErrorCode.invalid_record),
    "too many records counted": (with_header(57, ">i", 9), ErrorCode.invalid_record),
    "no records counted": (with_header(57, ">i", 0), ErrorCode.invalid_record),
    "an unknown codec": (with_header(21, ">h", 7), ErrorCode.unsupported_compression_type),
    "a control batch": (with_header(21, ">h", 0x20), ErrorCode.invalid_record),
    "too large a batch": (batch_of([b"x" * MAX_MESSAGE_BYTES]), ErrorCode.message_too_large),
    "a time in the future": (
        batch_of([b"x"], timestamp_ms=in_a_week_ms()),
        ErrorCode.invalid_timestamp,
    ),
}


@pytest.mark.parametrize(("records", "expected"), BAD_RECORDS.values(), ids=BAD_RECORDS)
def test_bad_records_fail_their_partition_alone(
    broker: Cluster, records: bytes | None, expected: ErrorCode
) -> None:
    topic = create(
        broker, fresh_topic("bad"), partitions=2, max_message_bytes=str(MAX_MESSAGE_BYTES)
    )
    with connected(broker.addresses[0]) as wire:
        answer: ProduceResponse = wire.ask(two_partitions(topic, records), ProduceResponse)
        codes = {one.index: one.error_code for one in answer.responses[0].partition_responses}
        assert codes == {0: expected, 1: ErrorCode.none}
        assert wire.fetch_values(topic, partition=0) == []
        assert wire.fetch_values(topic, partition=1) == [b"one", b"two"]


def two_partitions(topic: str, records: bytes | None) -> produce_request.ProduceRequest:
    """One request with bad records for partition 0 and good ones for partition 1."""
    both = ((0, records), (1, good_batch()))
    data = tuple(
        produce_request.PartitionProduceData(
            index=i32(index), records=None if each is None else Records(each)
        )
        for index, each in both
    )
    return produce_request.ProduceRequest(
        acks=i16(-1),
        timeout=i32Timedelta.parse(timedelta(seconds=30)),
        topic_data=(produce_request.TopicProduceData(name=TopicName(topic), partition_data=data),),
    )


@pytest.mark.parametrize("codec", [each for each in Codec if each is not Codec.NONE])
def test_records_that_do_not_decompress_never_spoil_a_topic(broker: Cluster, codec: Codec) -> None:
    """A topic with a codec of its own decompresses batches to compress them again, and must refuse
    these."""
    target = "gzip" if codec is not Codec.GZIP else "zstd"
    topic = create(broker, fresh_topic("opened"), compression_type=target)
    with connected(broker.addresses[0]) as wire:
        answer = wire.produce(topic, garbage_compressed(codec))
        assert answer.error_code in (ErrorCode.invalid_record, ErrorCode.corrupt_message)
        assert wire.produce(topic, good_batch()).error_code is ErrorCode.none
        assert wire.fetch_values(topic) == [b"one", b"two"]


def test_a_batch_as_large_as_the_limit_is_taken_and_one_byte_more_is_not(broker: Cluster) -> None:
    overhead = len(batch_of([b"x" * 9000])) - 9000
    largest = batch_of([b"x" * (MAX_MESSAGE_BYTES - overhead)])
    assert len(largest) == MAX_MESSAGE_BYTES
    topic = create(broker, fresh_topic("edge"), max_message_bytes=str(MAX_MESSAGE_BYTES))
    with connected(broker.addresses[0]) as wire:
        assert wire.produce(topic, largest).error_code is ErrorCode.none
        above = batch_of([b"x" * (MAX_MESSAGE_BYTES - overhead + 1)])
        assert wire.produce(topic, above).error_code is ErrorCode.message_too_large


@pytest.mark.parametrize("acks", [-2, 2, 7])
def test_acknowledgements_that_do_not_exist_are_refused(broker: Cluster, acks: int) -> None:
    topic = create(broker, fresh_topic("acks"))
    with connected(broker.addresses[0]) as wire:
        answer = wire.produce(topic, good_batch(), acks=acks)
        assert answer.error_code is ErrorCode.invalid_required_acks
        assert wire.fetch_values(topic) == []


@pytest.mark.parametrize("partition", [-1, 1, 2**31 - 1])
def test_partitions_that_do_not_exist_are_unknown(broker: Cluster, partition: int) -> None:
    topic = create(broker, fresh_topic("one-partition"))
    with connected(broker.addresses[0]) as wire:
        answer = wire.produce(topic, good_batch(), partition=partition)
        assert answer.error_code is ErrorCode.unknown_topic_or_partition
        assert wire.fetch(topic, partition, 0) == (ErrorCode.unknown_topic_or_partition, [])


@pytest.mark.parametrize("offset", [-5, 3, 2**62])
def test_offsets_outside_the_partition_are_out_of_range(broker: Cluster, offset: int) -> None:
    topic = create(broker, fresh_topic("offsets"))
    with connected(broker.addresses[0]) as wire:
        wire.produce(topic, good_batch())
        assert wire.fetch(topic, 0, offset) == (ErrorCode.offset_out_of_range, [])
        assert wire.fetch(topic, 0, 2) == (ErrorCode.none, [])


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "a/b", "a\0b", "x" * 250])
def test_bad_topic_names_are_refused_and_not_created(broker: Cluster, name: str) -> None:
    request = metadata_request.MetadataRequest(
        topics=(metadata_request.MetadataRequestTopic(name=TopicName(name)),),
        allow_auto_topic_creation=True,
    )
    with connected(broker.addresses[0]) as wire:
        answer: MetadataResponse = wire.ask(request, MetadataResponse)
        assert answer.topics[0].error_code is ErrorCode.invalid_topic_exception
        refused = wire.produce(name, good_batch())
        assert refused.error_code in (
            ErrorCode.unknown_topic_or_partition,
            ErrorCode.invalid_topic_exception,
        )


def test_a_name_of_249_characters_is_taken(broker: Cluster) -> None:
    name = fresh_topic("x" * 240)
    assert len(name) == 249
    ConfluentClient().write(broker.bootstrap, name, numbered(3))
    assert values(ConfluentClient().read(broker.bootstrap, name, count=3)) == values(numbered(3))
