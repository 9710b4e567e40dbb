"""The pipeline end to end: real Kafka clients, real Spark, the command line, and a broker."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from tests.servers import S3Server

pytestmark = pytest.mark.timeout(400)

PARTITIONS = 3
RECORDS = 300
PATIENCE_S = 100.0
EAGER = ("tiering.age_ms=0", "tiering.min_segment_bytes=1", "tiering.master=local[2]")


class Cluster:
    """Storage that brokers and pipelines share, and how they are told of it."""

    def __init__(self, folder: Path, settings: Sequence[str]) -> None:
        self.folder = folder
        self._settings = [part for each in settings for part in ("--set", each)]

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "stratalog.cli.main", *arguments, *self._settings]

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            self.command(*arguments), capture_output=True, text=True, cwd=self.folder, timeout=110
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json"))

    @contextmanager
    def broker(self, *settings: str) -> Iterator[str]:
        """A broker in a process of its own. Answers its address."""
        more = [part for each in settings for part in ("--set", each)]
        process = subprocess.Popen(
            self.command("up", "--listen", "127.0.0.1:0", *more),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert process.stdout is not None
        with process.stdout:
            first = process.stdout.readline()
            assert "is up" in first, first
            yield first.split(" on ")[1].split(",")[0]
            process.send_signal(signal.SIGTERM)
            process.stdout.read()
            assert process.wait(60) == 0


def produce(bootstrap: str, prefix: str = "value") -> dict[tuple[int, int], bytes]:
    """Write records to the topic, and tell what is where."""
    written: dict[tuple[int, int], bytes] = {}

    def note(error: object, message: Any) -> None:
        assert error is None
        written[(message.partition(), message.offset())] = message.value()

    admin = AdminClient({"bootstrap.servers": bootstrap})
    if "orders" not in admin.list_topics().topics:
        for future in admin.create_topics([NewTopic("orders", PARTITIONS)]).values():
            future.result()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(RECORDS):
        value = f"{prefix} {number}".encode()
        producer.produce("orders", value, partition=number % PARTITIONS, on_delivery=note)
        if number % 30 == 0:
            producer.flush()
    assert producer.flush(30) == 0
    return written


def consume(bootstrap: str, count: int) -> dict[tuple[int, int], bytes]:
    """Everything in the topic, from its beginning."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "test", "enable.auto.commit": False}
    )
    consumer.assign(
        [TopicPartition("orders", index, OFFSET_BEGINNING) for index in range(PARTITIONS)]
    )
    found: dict[tuple[int, int], bytes] = {}
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None:
            assert message.error() is None
            found[(message.partition() or 0, message.offset() or 0)] = message.value() or b""
    consumer.close()
    return found


def local_cluster(folder: Path) -> Cluster:
    storage = (
        f"storage.objects=file:{folder / 'objects'}",
        f"storage.control=sqlite:{folder / 'control.db'}",
    )
    return Cluster(folder, [*storage, *EAGER])


def s3_cluster(folder: Path, dsn: str, server: S3Server) -> Cluster:
    config = folder / "stratalog.toml"
    options = "\n".join(f'{name} = "{value}"' for name, value in server.options.items())
    config.write_text(f"[storage.object_options]\n{options}\n")
    return Cluster(
        folder, [f"storage.objects={server.fresh_url()}", f"storage.control={dsn}", *EAGER]
    )


@pytest.fixture(params=["folder", "s3"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Cluster:
    if request.param == "folder":
        return local_cluster(tmp_path)
    dsn: str = request.getfixturevalue("postgres_dsn")
    server: S3Server = request.getfixturevalue("s3_server")
    return s3_cluster(tmp_path, dsn, server)


def test_what_clients_wrote_is_converted_without_a_broker_and_read_as_before(
    cluster: Cluster,
) -> None:
    with cluster.broker("tiering.enabled=false") as bootstrap:
        written = produce(bootstrap)
    plan = cluster.json("pipeline", "run", "--dry-run")
    assert plan["segments"] == PARTITIONS
    assert status_of(cluster)["pending_rows"] > PARTITIONS
    report = cluster.json("pipeline", "run", "--until-idle")
    assert report["segments"] == PARTITIONS
    assert report["failed"] == {}
    assert report["bytes_read"] >= report["merged_bytes"] == plan["bytes"]
    status = status_of(cluster)
    assert (status["segments"], status["pending_rows"]) == (PARTITIONS, 0)
    assert all(
        each["tiered_end"] == each["high_watermark"] == RECORDS // PARTITIONS
        for each in status["partitions"]
    )
    assert len(cluster.json("pipeline", "history")) == 2
    with cluster.broker("tiering.enabled=false") as bootstrap:
        assert consume(bootstrap, len(written)) == written
        written |= produce(bootstrap, "later")
        assert consume(bootstrap, len(written)) == written
    assert "ok" in cluster.run("fsck", "--deep")


def test_a_broker_converts_by_itself_while_clients_read_and_write(tmp_path: Path) -> None:
    cluster = local_cluster(tmp_path)
    often = ("tiering.splitter_interval_ms=200", "tiering.merger_interval_ms=200")
    with cluster.broker(*often) as bootstrap:
        written = produce(bootstrap)
        wait_until_converted(cluster)
        assert consume(bootstrap, len(written)) == written
        written |= produce(bootstrap, "later")
        assert consume(bootstrap, len(written)) == written
        wait_until_converted(cluster)
        assert consume(bootstrap, len(written)) == written
    assert "ok" in cluster.run("fsck", "--deep")


def test_a_topic_is_paused_triggered_and_resumed(tmp_path: Path) -> None:
    cluster = local_cluster(tmp_path)
    with cluster.broker("tiering.enabled=false") as bootstrap:
        produce(bootstrap)
    cluster.run("pipeline", "pause", "orders")
    assert status_of(cluster)["paused_since_ms"] is not None
    assert cluster.json("pipeline", "run", "--dry-run")["segments"] == 0
    cluster.run("pipeline", "resume", "orders")
    young = ("--set", "tiering.age_ms=1h")
    assert cluster.json("pipeline", "run", "--dry-run", *young)["segments"] == PARTITIONS
    assert "Nothing is parked" not in cluster.run("pipeline", "status", "orders")
    cluster.run("pipeline", "trigger", "orders")
    assert status_of(cluster)["triggered_ms"] is not None
    cluster.run("pipeline", "unpark", "orders", "0")


def status_of(cluster: Cluster) -> Mapping[str, Any]:
    [status] = cluster.json("pipeline", "status", "orders")
    found: Mapping[str, Any] = status
    return found


def wait_until_converted(cluster: Cluster) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while status_of(cluster)["pending_rows"]:
        assert time.monotonic() < deadline, "nothing was converted"
        time.sleep(0.5)
