"""Classic consumer groups, with the clients that people have."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from kio.schema.find_coordinator.v2 import request as find_request
from kio.schema.find_coordinator.v2.response import FindCoordinatorResponse
from tests.compat.clusters import (
    BASE,
    Cluster,
    create,
    folder_storage,
    fresh_topic,
    one_broker,
    running_cluster,
    shared_storage,
    wait_until_met,
)
from tests.compat.confluent_client import ConfluentClient, confluent_consumer
from tests.compat.group_members import (
    MEMBERS,
    SESSION_MS,
    AiokafkaMember,
    ConfluentMember,
    Member,
    wait_until,
)
from tests.compat.message import numbered
from tests.compat.wire import connected
from tests.servers import PostgresServer, S3Server

from stratalog.settings import GroupsSettings, Settings
from stratalog.testing import Broker

PARTITIONS = 4
EACH = 20
QUICK = replace(
    BASE, groups=GroupsSettings(initial_rebalance_delay_ms=0, min_session_timeout_ms=1000)
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers of which each coordinates some of the groups."""
    settings = replace(QUICK, storage=folder_storage(tmp_path_factory.mktemp("pair")))
    with running_cluster([settings, settings]) as cluster:
        yield cluster


@pytest.fixture
def group() -> str:
    return f"group-{uuid4().hex[:8]}"


@pytest.fixture
def topic(pair: Cluster) -> str:
    return create(pair, fresh_topic("shared"), partitions=PARTITIONS)


Start = Callable[..., Member]


@pytest.fixture
def start(pair: Cluster, group: str, topic: str) -> Iterator[Start]:
    """Starts members of the group, which are stopped in the end."""
    with ExitStack() as stack:

        def begin(kind: type[Member], **more: Any) -> Member:
            member = kind(pair.bootstrap, group, topic, **more)
            stack.callback(member.stop)
            return member

        yield begin


def fill(cluster: Cluster, topic: str, count: int = EACH) -> None:
    for partition in range(PARTITIONS):
        ConfluentClient().write(cluster.bootstrap, topic, numbered(count), partition=partition)


def shares(*members: Member) -> list[int]:
    return sorted(len(member.owned) for member in members)


def settle(wanted: list[int], *members: Member) -> None:
    """Until the members own so many partitions each, and every partition has one owner."""

    def is_settled() -> bool:
        for member in members:
            assert member.failure is None, member.failure
        all_owned = [each for member in members for each in member.owned]
        return shares(*members) == sorted(wanted) and len(set(all_owned)) == len(all_owned)

    wait_until(is_settled, lambda: [member.owned for member in members])


def offsets_read(*members: Member) -> set[tuple[int, int]]:
    return {place for member in members for place in member.read}


def expected(count: int = EACH) -> set[tuple[int, int]]:
    return {(partition, offset) for partition in range(PARTITIONS) for offset in range(count)}


def committed(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    consumer = confluent_consumer(bootstrap, **{"group.id": group})
    asked = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    try:
        return {each.partition: each.offset for each in consumer.committed(asked, 20)}
    finally:
        consumer.close()


def coordinator_of(address: str, group: str) -> str:
    with connected(address) as wire:
        request = find_request.FindCoordinatorRequest(key=group, key_type=0)  # type: ignore[arg-type]
        found = wire.ask(request, FindCoordinatorResponse)
    return f"{found.host}:{found.port}"


# Sharing.


@pytest.mark.parametrize("kind", MEMBERS, ids=lambda kind: kind.name)
def test_members_share_what_there_is_as_they_come_and_go(
    pair: Cluster, topic: str, start: Start, kind: type[Member]
) -> None:
    fill(pair, topic)
    first = start(kind)
    settle([PARTITIONS], first)
    second = start(kind)
    settle([2, 2], first, second)
    first.stop()
    settle([PARTITIONS], second)
    wait_until(
        lambda: offsets_read(first, second) == expected(), lambda: len(offsets_read(first, second))
    )


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_every_assignor_of_librdkafka_is_served(start: Start, strategy: str) -> None:
    members = [start(ConfluentMember, strategy=strategy)]
    settle([4], *members)
    before = members[0].owned
    members.append(start(ConfluentMember, strategy=strategy))
    settle([2, 2], *members)
    if strategy == "cooperative-sticky":
        assert members[0].owned < before
    members.append(start(ConfluentMember, strategy=strategy))
    settle([1, 1, 2], *members)
    members[1].stop()
    settle([0, 2, 2], *members)


def test_three_clients_share_one_group(pair: Cluster, topic: str, start: Start) -> None:
    members = [start(kind) for kind in MEMBERS]
    settle([1, 1, 2], *members)
    fill(pair, topic)
    wait_until(lambda: offsets_read(*members) == expected())
    settle([1, 1, 2], *members)


def test_a_member_that_dies_is_replaced_when_its_session_ends(
    pair: Cluster, topic: str, group: str, start: Start
) -> None:
    staying = start(ConfluentMember)
    settle([4], staying)
    script = (
        "import sys\n"
        "from confluent_kafka import Consumer\n"
        f"c = Consumer({{'bootstrap.servers': {pair.bootstrap!r}, 'group.id': {group!r},"
        f" 'session.timeout.ms': {SESSION_MS}, 'heartbeat.interval.ms': 100,"
        " 'partition.assignment.strategy': 'range'})\n"
        f"c.subscribe([{topic!r}])\n"
        "while True:\n    c.poll(0.05)\n"
    )
    doomed = subprocess.Popen([sys.executable, "-c", script])
    try:
        settle([2], staying)
        killed_s = time.monotonic()
    finally:
        doomed.kill()
        doomed.wait()
    settle([4], staying)
    assert time.monotonic() - killed_s > SESSION_MS / 1000 - 0.5


@pytest.mark.parametrize("kind", MEMBERS, ids=lambda kind: kind.name)
def test_a_static_member_that_comes_back_gets_its_partitions_and_disturbs_nobody(
    start: Start, kind: type[Member]
) -> None:
    staying = start(kind, instance="a", session_ms=20_000)
    returning = start(kind, instance="b", session_ms=20_000)
    settle([2, 2], staying, returning)
    before = returning.owned
    given = staying.assignments
    returning.stop()
    again = start(kind, instance="b", session_ms=20_000)
    settle([2, 2], staying, again)
    assert again.owned == before
    assert staying.assignments == given


# Offsets.


@pytest.mark.parametrize("kind", MEMBERS, ids=lambda kind: kind.name)
def test_the_next_member_begins_where_the_last_one_ended(
    pair: Cluster, topic: str, group: str, start: Start, kind: type[Member]
) -> None:
    fill(pair, topic)
    first = start(kind)
    wait_until(lambda: first.committed == dict.fromkeys(range(PARTITIONS), EACH))
    first.stop()
    assert committed(pair.bootstrap, group, topic) == first.committed
    second = start(kind)
    settle([4], second)
    fill(pair, topic, 1)
    wait_until(lambda: len(second.read) >= PARTITIONS)
    assert sorted(second.read) == [(partition, EACH) for partition in range(PARTITIONS)]


def test_committed_offsets_and_their_metadata_survive_a_restart(tmp_path: Path, group: str) -> None:
    sent = TopicPartition("kept", 0, 7, metadata="wie weit ist's? 😀")
    with one_broker(tmp_path, base=QUICK) as cluster:
        create(cluster, "kept")
        consumer = confluent_consumer(cluster.bootstrap, **{"group.id": group})
        assert consumer.commit(offsets=[sent], asynchronous=False)
        consumer.close()
    with one_broker(tmp_path, base=QUICK) as cluster:
        consumer = confluent_consumer(cluster.bootstrap, **{"group.id": group})
        [found] = consumer.committed([TopicPartition("kept", 0)], 20)
        consumer.close()
    assert (found.offset, found.metadata) == (7, sent.metadata)


# Coordinators that go away.


@contextmanager
def two_to_stop(settings: Settings) -> Iterator[dict[str, Callable[[], None]]]:
    """Two brokers: how to stop each, by its address. Those still running are stopped in the end."""
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


# Administration.


def test_groups_are_listed_described_reset_and_deleted(
    pair: Cluster, topic: str, group: str, start: Start
) -> None:
    admin = AdminClient({"bootstrap.servers": pair.bootstrap, "log_level": 0})
    listed = partial(admin.list_consumer_groups, request_timeout=20)
    member = start(ConfluentMember, instance="i")
    settle([4], member)
    [mine] = [each for each in listed().result().valid if each.group_id == group]
    assert mine.state is ConsumerGroupState.STABLE

    shown = admin.describe_consumer_groups([group], request_timeout=20)[group].result()
    assert (shown.state, shown.partition_assignor) == (ConsumerGroupState.STABLE, "range")
    [one] = shown.members
    assert (one.group_instance_id, one.host) == ("i", "/127.0.0.1")
    assert {each.partition for each in one.assignment.topic_partitions} == set(range(4))

    with pytest.raises(Exception, match=r"NON_EMPTY_GROUP|not empty"):
        admin.delete_consumer_groups([group], request_timeout=20)[group].result()
    member.stop()
    wait_until(
        lambda: (
            admin.describe_consumer_groups([group])[group].result().state
            is ConsumerGroupState.EMPTY
        )
    )
    reset = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 1, 3)])
    admin.alter_consumer_group_offsets([reset], request_timeout=20)[group].result()
    assert committed(pair.bootstrap, group, topic)[1] == 3
    everything = ConsumerGroupTopicPartitions(group)
    told = admin.list_consumer_group_offsets([everything], request_timeout=20)[group].result()
    assert [(each.partition, each.offset) for each in told.topic_partitions] == [(1, 3)]
    admin.delete_consumer_groups([group], request_timeout=20)[group].result()
    assert group not in {each.group_id for each in listed().result().valid}
