"""The instruments of a user's test suite: `Broker`, and the fixture `stratalog_broker`."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from stratalog.errors import CallError
from stratalog.settings import StorageSettings
from stratalog.testing import Broker
from stratalog.testing.broker import FAST

QUIET = {"log_level": 0}


def produce(broker: Broker, topic: str, values: list[bytes]) -> list[int]:
    """Write the values and answer their offsets."""
    offsets: list[int] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, **QUIET})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda _, got: offsets.append(got.offset() or 0))
    assert producer.flush(20) == 0
    return offsets


def consume(broker: Broker, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            **QUIET,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes | None] = []
    deadline = time.monotonic() + 20
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(count, 0.5):
            assert message.error() is None
            found.append(message.value())
    consumer.close()
    return found


def test_a_client_writes_to_and_reads_from_the_broker() -> None:
    values = [b"%d" % number for number in range(100)]
    with Broker() as broker:
        assert produce(broker, "events", values) == list(range(100))
        assert consume(broker, "events", 100) == values


def test_two_brokers_know_nothing_of_each_other() -> None:
    with Broker() as one, Broker() as other:
        assert one.bootstrap != other.bootstrap
        produce(one, "events", [b"a"])
        topics = AdminClient({"bootstrap.servers": other.bootstrap, **QUIET}).list_topics(
            timeout=10
        )
        assert topics.topics == {}


def test_nothing_is_left_when_the_block_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Broker() as broker:
        produce(broker, "events", [b"a"])
        assert len(list(tmp_path.iterdir())) == 1
        bootstrap = broker.bootstrap
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": bootstrap, **QUIET}).list_topics(timeout=1)


def test_a_failure_of_the_test_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError), Broker():
        raise ZeroDivisionError


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    storage = StorageSettings(objects="memory:", control=f"sqlite:{tmp_path / 'file' / 'db'}")
    with (
        pytest.raises(CallError, match="cannot be created"),
        Broker(replace(FAST, storage=storage)),
    ):
        pass


def test_a_broker_whose_database_is_away_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("stratalog.testing.broker._START_TIMEOUT_S", 0.3)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # Bound and not listening: connections are refused.
        absent = f"postgresql://postgres@127.0.0.1:{taken.getsockname()[1]}/stratalog"
        settings = replace(FAST, storage=StorageSettings(objects="memory:", control=absent))
        with pytest.raises(TimeoutError, match="its log says why"), Broker(settings):
            pass
    assert "The control plane is not ready" in caplog.text


def test_a_broker_that_cannot_start_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Broker() as first:
        address = replace(FAST.broker, listen=first.bootstrap)
        with pytest.raises(OSError, match="address"), Broker(replace(FAST, broker=address)):
            pass
        assert len(list(tmp_path.iterdir())) == 1, "that of the first"
    assert list(tmp_path.iterdir()) == []


def test_data_outlives_the_broker_if_it_is_given_a_place(tmp_path: Path) -> None:
    storage = StorageSettings(
        objects=f"file:{tmp_path / 'objects'}", control=f"sqlite:{tmp_path / 'control.db'}"
    )
    settings = replace(FAST, storage=storage)
    with Broker(settings) as first:
        produce(first, "events", [b"a", b"b"])
    with Broker(settings) as second:
        assert consume(second, "events", 2) == [b"a", b"b"]
        assert produce(second, "events", [b"c"]) == [2]


def test_a_broker_is_ready_quickly(record_property: Callable[[str, object], None]) -> None:
    """The time is recorded, not judged: it says more about the machine than about the code."""
    started = time.perf_counter()
    with Broker():
        ready_s = time.perf_counter() - started
    record_property("ready_s", ready_s)
    print(f"ready after {ready_s:.3f} s")


SUITE = """
from confluent_kafka import Producer

def test_first(stratalog_broker):
    offsets = []
    producer = Producer({"bootstrap.servers": stratalog_broker.bootstrap})
    producer.produce("t", b"v", on_delivery=lambda error, got: offsets.append(got.offset()))
    producer.flush(20)
    assert offsets == [0]

def test_second_finds_an_empty_broker(stratalog_broker):
    test_first(stratalog_broker)
"""


def test_the_fixture_is_there_for_every_suite(tmp_path: Path) -> None:
    (tmp_path / "test_users.py").write_text(SUITE)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio", "-W", "error", "test_users.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
