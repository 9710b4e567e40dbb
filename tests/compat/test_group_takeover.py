"""Groups whose coordinator goes away: the next one goes on where it ended."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from tests.support.clients.confluent_client import ConfluentClient
from tests.support.clients.group_members import AiokafkaMember, ConfluentMember, Member, wait_until
from tests.support.clients.group_sharing import (
    EACH,
    PARTITIONS,
    QUICK,
    committed,
    coordinator_of,
    expected,
    fill,
    offsets_read,
    settle,
)
from tests.support.clients.message import numbered
from tests.support.clusters import (
    Cluster,
    create,
    folder_storage,
    fresh_topic,
    shared_storage,
    wait_until_met,
)
from tests.support.servers import PostgresServer, S3Server

from stratalog.settings import Settings
from stratalog.testing import Broker


@contextmanager
def two_to_stop(settings: Settings) -> Iterator[dict[str, Callable[[], None]]]:
    """Two brokers: how to stop each, by its address. Brokers that still run are stopped in the
    end."""
    with ExitStack() as first, ExitStack() as second:
        yield {
            stack.enter_context(Broker(settings)).bootstrap: stack.close
            for stack in (first, second)
        }


def test_a_broker_that_stops_hands_its_groups_over_without_a_rebalance(tmp_path: Path) -> None:
    settings = replace(QUICK, storage=folder_storage(tmp_path))
    with two_to_stop(settings) as stops:
        wait_until_met(list(stops))
        cluster = Cluster(list(stops))
        topic = create(cluster, fresh_topic("handed"), partitions=PARTITIONS)
        fill(cluster, topic)
        members = [
            ConfluentMember(cluster.bootstrap, "handed", topic, session_ms=10_000) for _ in range(2)
        ]
        try:
            settle([2, 2], *members)
            wait_until(lambda: offsets_read(*members) == expected())
            given = [member.assignments for member in members]
            gone = coordinator_of(cluster.bootstrap.split(",")[0], "handed")
            stops[gone]()
            left = cluster.other_than(gone)
            wait_until(lambda: coordinator_of(left, "handed") == left)
            ConfluentClient().write(left, topic, numbered(5))
            for partition in range(1, PARTITIONS):
                ConfluentClient().write(left, topic, numbered(5), partition=partition)
            wait_until(lambda: offsets_read(*members) == expected(EACH + 5))
            wait_until(lambda: _all_committed(members) == dict.fromkeys(range(4), EACH + 5))
            assert [member.assignments for member in members] == given
            assert committed(left, "handed", topic) == _all_committed(members)
        finally:
            for member in members:
                member.stop()


def _all_committed(members: Sequence[Member]) -> dict[int, int]:
    together: dict[int, int] = {}
    for member in members:
        for partition, offset in member.committed.items():
            together[partition] = max(together.get(partition, 0), offset)
    return together


@contextmanager
def two_processes(folder: Path, flags: list[str]) -> Iterator[dict[str, "subprocess.Popen[bytes]"]]:
    command = [sys.executable, "-m", "stratalog.cli.main", "up", "--listen", "127.0.0.1:0"]
    command.append("--quiet")  # The pipe is not read.
    started = [
        subprocess.Popen(
            [*command, *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder
        )
        for _ in range(2)
    ]
    try:
        yield {_address(process): process for process in started}
    finally:
        for process in started:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def _address(process: "subprocess.Popen[bytes]") -> str:
    assert process.stdout is not None
    said = b""
    for line in process.stdout:
        said += line
        if line.startswith(b"Stratalog is up on "):
            return line.split()[4].rstrip(b",").decode()
    raise AssertionError(f"the broker did not start:\n{said.decode()}")


def test_no_commit_is_lost_or_moved_back_when_the_coordinator_is_killed(
    postgres_server: PostgresServer, s3_server: S3Server, tmp_path: Path
) -> None:
    dsn = postgres_server.create_database()
    storage = shared_storage(dsn, s3_server)
    flags = ["--objects", storage.objects, "--control", dsn]
    options = [f"storage.object_options.{name}={v}" for name, v in s3_server.options.items()]
    for each in (
        *options,
        "block.window_ms=5ms",
        "broker.lease_ms=1500ms",
        "groups.initial_rebalance_delay_ms=0",
        "groups.min_session_timeout_ms=1s",
    ):
        flags += ["--set", each]
    with two_processes(tmp_path, flags) as running:
        wait_until_met(list(running))
        cluster = Cluster(list(running))
        topic = create(cluster, fresh_topic("killed"), partitions=PARTITIONS)
        fill(cluster, topic, 50)
        doomed = coordinator_of(cluster.addresses[0], "killed")
        left = cluster.other_than(doomed)
        # Not kafka-python, which never closes the sockets of its attempts to reach the dead one.
        members = [
            kind(cluster.bootstrap, "killed", topic, session_ms=6000)
            for kind in (ConfluentMember, AiokafkaMember)
        ]
        try:
            settle([2, 2], *members)
            wait_until(lambda: len(_all_committed(members)) == PARTITIONS)
            told = _all_committed(members)
            running[doomed].kill()
            running[doomed].wait()
            wait_until(lambda: coordinator_of(left, "killed") == left)
            found = committed(left, "killed", topic)
            assert all(found[partition] >= offset for partition, offset in told.items())
            for partition in range(PARTITIONS):
                ConfluentClient().write(left, topic, numbered(50), partition=partition)
            wait_until(lambda: offsets_read(*members) == expected(100))
            wait_until(lambda: _all_committed(members) == dict.fromkeys(range(4), 100))
            assert committed(left, "killed", topic) == _all_committed(members)
        finally:
            for member in members:
                member.stop()
    postgres_server.drop_database(dsn)
