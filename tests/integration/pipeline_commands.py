"""Storage with records in it, and the commands that brokers and pipelines are started with."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from tests.support.servers import S3Server
from typer.testing import CliRunner

from stratalog.cli.main import app

PARTITIONS = 3
RECORDS = 300
COMMAND_S = 180.0
EAGER = ("tiering.age_ms=0", "tiering.min_segment_bytes=1", "tiering.master=local[2]")


class Cluster:
    """Storage that brokers and pipelines share, and the flags that name it."""

    def __init__(self, folder: Path, settings: Sequence[str]) -> None:
        self.folder = folder
        self.settings = [part for each in settings for part in ("--set", each)]
        self._started: list[subprocess.Popen[str]] = []

    def command(self, *arguments: str) -> list[str]:
        """As a process of its own."""
        return [sys.executable, "-m", "stratalog.cli.main", *self._arguments(arguments)]

    def _arguments(self, arguments: Sequence[str]) -> list[str]:
        """Settings in the arguments win."""
        words = [*takewhile(lambda each: not each.startswith("-"), arguments)]
        options = arguments[len(words) :]
        return [*words, *self.settings, *options]

    def ask(self, *arguments: str) -> str:
        """A command that needs no Spark, in this process: another one takes seconds to start."""
        with chdir(self.folder):
            done = CliRunner().invoke(app, self._arguments(arguments))
        assert done.exit_code == 0, done.output
        return done.stdout

    def ask_json(self, *arguments: str) -> Any:
        return json.loads(self.ask(*arguments, "--json"))

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            self.command(*arguments),
            capture_output=True,
            text=True,
            cwd=self.folder,
            timeout=COMMAND_S,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """A command that goes on by itself. See `report` and `end`."""
        process = subprocess.Popen(
            self.command(*arguments),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def end(self) -> None:
        """Leave no command behind that was started, whatever the test made of it."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def report(self, process: "subprocess.Popen[str]") -> Any:
        """Return the report of a command that was started with --json."""
        said, complaint = process.communicate(timeout=COMMAND_S)
        assert process.returncode == 0, complaint + said
        return json.loads(said)

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
    """Write records to the topic, and return their partitions and offsets."""
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
    # Tests hold requests for as long as another process takes to start, so that no request may
    # time out.
    given = {**server.options, "timeout": f"{COMMAND_S:.0f}s"}
    options = "\n".join(f'{name} = "{value}"' for name, value in given.items())
    config.write_text(f"[storage.object_options]\n{options}\n")
    return Cluster(
        folder, [f"storage.objects={server.fresh_url()}", f"storage.control={dsn}", *EAGER]
    )


def status_of(cluster: Cluster) -> Mapping[str, Any]:
    [status] = cluster.ask_json("pipeline", "status", "orders")
    found: Mapping[str, Any] = status
    return found
