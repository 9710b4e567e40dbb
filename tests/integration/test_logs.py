"""The log of `stratalog up`, as users see it."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from tests.support.clients.client import ANSWER_SECONDS
from tests.support.wire import batch_of, connected

from stratalog.pipeline.hosting.child_process import pack_settings
from stratalog.settings import Settings, StorageSettings

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (INFO   |WARNING|ERROR  ) [a-z_.]+: .+")
HOSTILE = "\x1b]0;owned\x07"


@contextmanager
def logging_to(log: Path, *flags: str) -> Iterator[str]:
    """A broker whose log goes to a file, and its address."""
    command = [sys.executable, "-m", "stratalog.cli.main", "up", "--listen", "127.0.0.1:0"]
    command += ["--data", str(log.parent / "data"), "--no-pipeline", *flags]
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            found = re.search(r"Stratalog is up on (\S+),", process.stdout.readline())
            assert found, log.read_text()
            yield found[1]
            process.send_signal(signal.SIGTERM)
            assert process.wait(ANSWER_SECONDS) == 0, log.read_text()
        finally:
            process.kill()


def work_and_misbehave(bootstrap: str) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap, "client.id": "someone"})
    client.create_topics([NewTopic("orders", 2)])["orders"].result(ANSWER_SECONDS)
    change = ConfigEntry("retention.ms", "5000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "orders", incremental_configs=[change])
    client.incremental_alter_configs([resource])[resource].result(ANSWER_SECONDS)
    with connected(bootstrap) as wire:
        wire.produce("orders", batch_of([b"a secret"]))
        wire.produce("orders", b"no batch at all")
        wire.produce(HOSTILE, batch_of([b"a secret"]))
    with connected(bootstrap) as stranger:
        stranger.send_bytes(b"GET / HTTP/1.0\r\n\r\n")
        assert stranger.is_closed_by_peer()
    reset = ConsumerGroupTopicPartitions("readers", [TopicPartition("orders", 0, 0)])
    client.alter_consumer_group_offsets([reset])["readers"].result(ANSWER_SECONDS)
    client.delete_consumer_groups(["readers"])["readers"].result(ANSWER_SECONDS)
    client.delete_topics(["orders"])["orders"].result(ANSWER_SECONDS)


def test_every_step_of_a_brokers_life_leaves_a_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with logging_to(log) as bootstrap:
        work_and_misbehave(bootstrap)
    text = log.read_text()
    for line in text.splitlines():
        assert LINE.fullmatch(line), line
        assert line.isprintable()
    for wanted in (
        rf"node\.broker: Stratalog \S+ on Python \S+: broker 0 serves {bootstrap}, cluster \S+,",
        rf"control plane sqlite:{tmp_path}/data/control\.db, objects file://{tmp_path}/data/obj",
        r"User:ANONYMOUS, client 'someone' on connection \d+ \(.+ at 127\.0\.0\.1\) created topic"
        r" 'orders' with the id \S+ and 2 partitions",
        r"client 'someone' .+ changed retention\.ms of topic 'orders' from its default to 5000\.",
        r"client 'someone' .+ sets offsets of group 'readers' in 1 partitions",
        r"client 'someone' .+ deleted group 'readers' with its offsets",
        r"client 'someone' .+ deleted topic 'orders' with the id",
        r"A write of client 'wire' on connection \d+ .+ to orders-0 failed: ",
        r"Closing the connection of 127\.0\.0\.1:\d+: a request of \d+ bytes: the least is",
        r"node\.broker: Broker 0 stops\.",
        r"node\.broker: Broker 0 has stopped\.",
    ):
        assert re.search(wanted, text), f"{wanted}\n{text}"
    assert "a secret" not in text


@pytest.mark.parametrize(("flag", "expected"), [("--quiet", 0), ("--log-level=error", 0)])
def test_a_quiet_broker_logs_nothing_in_good_times(
    tmp_path: Path, flag: str, expected: int
) -> None:
    log = tmp_path / "log"
    with logging_to(log, flag):
        pass
    assert len(log.read_text().splitlines()) == expected, log.read_text()


def test_a_verbose_broker_also_names_its_parts(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with logging_to(log, "--verbose"):
        pass
    assert "DEBUG   node.parts: Starting the Kafka listener." in log.read_text()


def test_json_lines_are_for_collectors(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with logging_to(log, "--set", "log.format=json"):
        pass
    lines: list[Any] = [json.loads(line) for line in log.read_text().splitlines()]
    assert {line["level"] for line in lines} == {"info"}
    assert lines[-1]["message"] == "Broker 0 has stopped."


def test_the_process_of_the_pipeline_logs_like_its_broker(tmp_path: Path) -> None:
    storage = StorageSettings(
        control=f"sqlite:{tmp_path}/absent.db", objects=f"file:{tmp_path}/objects"
    )
    done = subprocess.run(
        [sys.executable, "-m", "stratalog.pipeline.hosting.child_main"],
        input=pack_settings(Settings(storage=storage)) + b"\nmerge\n",
        capture_output=True,
        check=False,
    )
    *_, last = done.stderr.decode().splitlines()
    assert re.search(r"^\d{4}-\S+Z ERROR   pipeline process, main: .*absent\.db", last), last
    assert done.returncode == 1


def test_reading_as_a_library_sets_no_logs_up() -> None:
    program = "import logging, stratalog; from stratalog.testing import Broker\n"
    program += "with Broker(): pass\n"
    program += (
        "assert not logging.getLogger().handlers and not logging.getLogger('stratalog').level"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
