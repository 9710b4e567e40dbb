"""Classic consumer groups, with the clients that people have."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.support.clients.confluent_client import confluent_consumer
from tests.support.clients.group_members import (
    MEMBERS,
    SESSION_MS,
    ConfluentMember,
    Member,
    wait_until,
)
from tests.support.clients.group_sharing import (
    EACH,
    PARTITIONS,
    QUICK,
    committed,
    expected,
    fill,
    offsets_read,
    settle,
)
from tests.support.clusters import (
    Cluster,
    create,
    folder_storage,
    fresh_topic,
    one_broker,
    running_cluster,
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
