"""Every client reads the messages of every other: contents, order, codecs, sizes and times."""

import time
from typing import Any

import pytest
from aiokafka.errors import MessageSizeTooLargeError as AiokafkaTooLargeError
from confluent_kafka import KafkaError, KafkaException
from kafka.errors import MessageSizeTooLargeError as KafkaPythonTooLargeError
from tests.support.clients.client import CODECS, Client
from tests.support.clients.confluent_client import ConfluentClient
from tests.support.clients.kcat_client import KcatError
from tests.support.clients.message import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    Message,
    Received,
    numbered,
    values,
)
from tests.support.clusters import Cluster, create, fresh_topic

MAX_MESSAGE_BYTES = 300_000
FRAME_ROOM_BYTES = 100
"""More than a batch's header and a record's own fields take."""

ALL_SORTS = [
    Message(b"plain"),
    Message(b"with a key", key=b"key"),
    Message(b"with headers", key=b"key", headers=(("a", b"1"), ("b", b"2"), ("a", b"3"))),
    Message("Grüße aus 東京".encode(), key="schlüssel".encode()),
    Message(b"", key=b""),
    Message(None, key=b"only a key"),
]


def contents(messages: "list[Message] | list[Received]") -> list[Any]:
    return [(message.key, message.value, message.headers) for message in messages]


def test_every_client_reads_what_every_client_wrote(
    cluster: Cluster, client: Client, reader: Client
) -> None:
    topic = create(cluster, fresh_topic("matrix"))
    client.write(cluster.bootstrap, topic, ALL_SORTS)
    received = reader.read(cluster.bootstrap, topic, count=len(ALL_SORTS))
    assert contents(received) == contents(ALL_SORTS)
    assert [message.offset for message in received] == list(range(len(ALL_SORTS)))


def test_every_client_reads_messages_without_key_and_value(
    cluster: Cluster, reader: Client
) -> None:
    """kafka-python and aiokafka do not send those, but they must be able to read them."""
    topic = create(cluster, fresh_topic("nothing"))
    ConfluentClient().write(cluster.bootstrap, topic, [Message(None), Message(b"")])
    received = reader.read(cluster.bootstrap, topic, count=2)
    assert contents(received) == [(None, None, ()), (None, b"", ())]


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_keeps_order_and_contents(cluster: Cluster, client: Client, codec: str) -> None:
    topic = create(cluster, fresh_topic(codec))
    sent = numbered(300, "a value that is worth compressing " * 3)
    client.write(cluster.bootstrap, topic, sent, codec=codec)
    received = client.read(cluster.bootstrap, topic, count=len(sent))
    assert values(received) == values(sent)
    assert [message.offset for message in received] == list(range(len(sent)))


def test_partitions_keep_their_own_order(cluster: Cluster, client: Client) -> None:
    topic = create(cluster, fresh_topic("order"), partitions=3)
    for partition in range(3):
        client.write(cluster.bootstrap, topic, numbered(100, f"p{partition}"), partition=partition)
    for partition in range(3):
        received = client.read(cluster.bootstrap, topic, count=100, partition=partition)
        assert values(received) == values(numbered(100, f"p{partition}"))


def test_the_offsets_told_are_those_at_which_messages_are_read(
    cluster: Cluster, client: Client
) -> None:
    topic = create(cluster, fresh_topic("told"))
    client.write(cluster.bootstrap, topic, numbered(10))
    told = client.write(cluster.bootstrap, topic, numbered(10, "later"))
    received = client.read(cluster.bootstrap, topic, count=10, start=10)
    assert values(received) == values(numbered(10, "later"))
    if client.tells_offsets:
        assert told == [message.offset for message in received]


def test_a_message_just_below_the_limit_is_taken(cluster: Cluster, client: Client) -> None:
    topic = create(cluster, fresh_topic("fits"), max_message_bytes=str(MAX_MESSAGE_BYTES))
    value = b"x" * (MAX_MESSAGE_BYTES - FRAME_ROOM_BYTES)
    client.write(cluster.bootstrap, topic, [Message(value)])
    assert values(client.read(cluster.bootstrap, topic, count=1)) == [value]


def test_a_message_just_above_the_limit_is_refused(cluster: Cluster, client: Client) -> None:
    topic = create(cluster, fresh_topic("too-large"), max_message_bytes=str(MAX_MESSAGE_BYTES))
    with pytest.raises(
        (KafkaException, KafkaPythonTooLargeError, AiokafkaTooLargeError, KcatError)
    ) as refused:
        client.write(cluster.bootstrap, topic, [Message(b"x" * MAX_MESSAGE_BYTES)])
    if isinstance(refused.value, KafkaException):
        assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    if isinstance(refused.value, KcatError):
        assert "Message size too large" in str(refused.value)
    client.write(cluster.bootstrap, topic, [Message(b"next")])
    assert values(client.read(cluster.bootstrap, topic, count=1)) == [b"next"]


def test_a_message_larger_than_a_block_is_taken(cluster: Cluster, client: Client) -> None:
    topic = create(cluster, fresh_topic("huge"), max_message_bytes="20000000")
    value = b"0123456789" * 900_000
    client.write(cluster.bootstrap, topic, [Message(b"before"), Message(value), Message(b"after")])
    received = values(client.read(cluster.bootstrap, topic, count=3))
    assert received[0] == b"before"
    assert received[2] == b"after"
    assert received[1] == value


def test_a_producers_timestamp_is_kept(cluster: Cluster, client: Client) -> None:
    topic = create(cluster, fresh_topic("create-time"))
    now_ms = round(time.time() * 1000)
    sent_ms = now_ms - 3_600_000 if client.sets_timestamps else None
    client.write(cluster.bootstrap, topic, [Message(b"timed", timestamp_ms=sent_ms)])
    for reader in (client, ConfluentClient()):
        received = reader.read(cluster.bootstrap, topic, count=1)[0]
        assert received.timestamp_type == CREATE_TIME
        if sent_ms is not None:
            assert received.timestamp_ms == sent_ms
        else:
            assert abs(received.timestamp_ms - now_ms) < 30_000


def test_a_log_append_time_topic_stamps_its_own_time(cluster: Cluster, client: Client) -> None:
    topic = create(cluster, fresh_topic("append"), message_timestamp_type="LogAppendTime")
    before_ms = round(time.time() * 1000)
    old_ms = before_ms - 3_600_000
    client.write(cluster.bootstrap, topic, [Message(b"timed", timestamp_ms=old_ms)] * 3)
    for reader in (client, ConfluentClient()):
        received = reader.read(cluster.bootstrap, topic, count=3)
        assert [message.timestamp_type for message in received] == [LOG_APPEND_TIME] * 3
        for message in received:
            assert before_ms - 1000 <= message.timestamp_ms <= round(time.time() * 1000) + 1000


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "none"])
def test_every_client_reads_what_a_topic_has_compressed_anew(
    cluster: Cluster, reader: Client, codec: str
) -> None:
    topic = create(cluster, fresh_topic("recompressed"), compression_type=codec)
    sent = numbered(50, "a value that is worth compressing " * 3)
    given = "lz4" if codec == "gzip" else "gzip"
    ConfluentClient().write(cluster.bootstrap, topic, sent, codec=given)
    assert values(reader.read(cluster.bootstrap, topic, count=50)) == values(sent)
