"""Groups of consumers with `group.protocol=consumer` (KIP-848), as librdkafka speaks it."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from tests.support.clients.client import ANSWER_SECONDS
from tests.support.clients.confluent_client import (
    ConfluentClient,
    confluent_consumer,
    confluent_poll,
)
from tests.support.clients.consumer_fleet import Fleet
from tests.support.clients.message import numbered, values
from tests.support.clusters import BASE, Cluster, create, fresh_topic, one_broker

from stratalog.settings import GroupsSettings

PARTITIONS = 4
SESSION_MS = 2000
QUICK = replace(
    BASE,
    groups=GroupsSettings(
        initial_rebalance_delay_ms=0,
        max_size=4,
        consumer_session_timeout_ms=SESSION_MS,
        consumer_heartbeat_interval_ms=100,
        consumer_topics_poll_ms=100,
    ),
)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with one_broker(tmp_path_factory.mktemp("quick"), base=QUICK) as cluster:
        yield cluster


@pytest.fixture
def topic(quick: Cluster) -> str:
    return create(quick, fresh_topic("read"), partitions=PARTITIONS)


@pytest.fixture
def fleet(quick: Cluster) -> Iterator[Fleet]:
    with Fleet(quick.bootstrap, f"group-{uuid4().hex[:8]}") as members:
        yield members


@pytest.fixture
def admin(quick: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": quick.bootstrap, "log_level": 0})


def write(cluster: Cluster, topic: str, count: int, prefix: str) -> set[bytes]:
    """So many messages into every partition."""
    written: set[bytes] = set()
    for partition in range(PARTITIONS):
        messages = numbered(count, f"{prefix}-{partition}")
        ConfluentClient().write(cluster.bootstrap, topic, messages, partition=partition)
        written.update(value for value in values(messages) if value is not None)
    return written


def described(admin: AdminClient, group_id: str) -> Any:
    return admin.describe_consumer_groups([group_id])[group_id].result(ANSWER_SECONDS)


def test_members_share_the_partitions_and_read_every_message_once(
    quick: Cluster, topic: str, fleet: Fleet
) -> None:
    written = write(quick, topic, 5, "early")
    fleet.add(topic)
    fleet.run_until(lambda: len(fleet.values) == len(written))
    fleet.settle(4)
    fleet.add(topic)
    fleet.settle(2, 2)
    fleet.add(topic)
    fleet.settle(1, 1, 2)
    written |= write(quick, topic, 5, "late")
    fleet.run_until(lambda: len(fleet.values) == len(written))
    assert set(fleet.values) == written


def test_a_new_member_takes_partitions_from_others_without_stopping_them(
    topic: str, fleet: Fleet
) -> None:
    first = fleet.add(topic)
    fleet.settle(4)
    second = fleet.add(topic)
    fleet.settle(2, 2)
    assert first.given_up == second.owned


def test_a_member_that_leaves_hands_on_where_it_was(
    quick: Cluster, topic: str, fleet: Fleet
) -> None:
    leaving = fleet.add(topic)
    fleet.add(topic)
    fleet.settle(2, 2)
    written = write(quick, topic, 3, "before")
    fleet.run_until(lambda: len(fleet.values) == len(written))
    seen = set(fleet.values)
    leaving.commit(dict.fromkeys(leaving.owned, 3))
    fleet.close(leaving)
    fleet.settle(4)
    written |= write(quick, topic, 3, "after")
    fleet.run_until(lambda: seen | set(fleet.values) == written)
    (staying,) = fleet.members
    assert len(staying.values) == len(set(staying.values))


def test_the_partitions_of_a_member_that_dies_go_to_the_others_after_its_session(
    quick: Cluster, topic: str, fleet: Fleet
) -> None:
    program = (
        "import sys; from tests.support.clients.consumer_fleet import Fleet\n"
        "fleet = Fleet(sys.argv[1], sys.argv[2])\n"
        "fleet.add(sys.argv[3])\n"
        "fleet.settle(2)\n"
        "print('settled', flush=True)\n"
        "fleet.run_for(60)\n"
    )
    fleet.add(topic)
    fleet.settle(4)
    command = [sys.executable, "-c", program, quick.bootstrap, fleet.group_id, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as doomed:
        fleet.settle(2)
        assert doomed.stdout is not None
        assert doomed.stdout.readline() == b"settled\n"
        doomed.send_signal(signal.SIGKILL)
        died = time.monotonic()
        fleet.settle(4)
        assert time.monotonic() - died > SESSION_MS / 1000 - 0.5


def test_a_topic_that_grows_is_shared_anew(topic: str, fleet: Fleet, admin: AdminClient) -> None:
    fleet.add(topic)
    fleet.add(topic)
    fleet.settle(2, 2)
    admin.create_partitions([NewPartitions(topic, 7)])[topic].result(ANSWER_SECONDS)
    fleet.settle(3, 4)


def test_a_pattern_follows_topics_as_they_come_and_go(
    quick: Cluster, fleet: Fleet, admin: AdminClient
) -> None:
    prefix = fresh_topic("by-pattern")
    first = create(quick, f"{prefix}-1", partitions=2)
    create(quick, fresh_topic("not-by-pattern"), partitions=2)
    fleet.add(f"^{prefix}.*")
    fleet.settle(2)
    create(quick, f"{prefix}-2", partitions=2)
    fleet.settle(4)
    fleet.add(f"^{prefix}.*")
    fleet.settle(2, 2)
    admin.delete_topics([first])[first].result(ANSWER_SECONDS)
    fleet.settle(1, 1)


@pytest.mark.parametrize(
    ("topics", "more", "expected"),
    [
        ([r"^(back)\1"], {}, KafkaError.INVALID_REGULAR_EXPRESSION),
        (["t"], {"group_remote_assignor": "nonsense"}, KafkaError.UNSUPPORTED_ASSIGNOR),
    ],
)
def test_members_are_told_what_is_wrong_with_their_wishes(
    fleet: Fleet, topics: list[str], more: dict[str, str], expected: int
) -> None:
    member = fleet.add(*topics, **more)
    fleet.run_until(lambda: member.was_told(expected))


def test_a_group_that_is_full_takes_no_more_members(topic: str, fleet: Fleet) -> None:
    for _ in range(4):
        fleet.add(topic)
    fleet.settle(1, 1, 1, 1)
    more = fleet.add(topic)
    fleet.run_until(lambda: more.was_told(KafkaError.GROUP_MAX_SIZE_REACHED))


def test_the_range_assignor_gives_like_partitions_of_like_topics_to_one_member(
    quick: Cluster, fleet: Fleet
) -> None:
    left, right = (create(quick, fresh_topic(name), partitions=2) for name in ("left", "right"))
    for _ in range(2):
        fleet.add(left, right, group_remote_assignor="range")
    fleet.settle(2, 2)
    for member in fleet.members:
        assert len({partition for _, partition in member.owned}) == 1


def test_a_static_member_that_restarts_disturbs_nobody(topic: str, fleet: Fleet) -> None:
    static = fleet.add(topic, group_instance_id="one")
    other = fleet.add(topic)
    fleet.settle(2, 2)
    had = set(static.owned)
    other.given_up.clear()
    fleet.close(static)
    again = fleet.add(topic, group_instance_id="one")
    fleet.settle(2, 2)
    assert again.owned == had
    assert other.given_up == set()


def test_the_group_can_be_described_and_deleted_when_it_is_empty(
    topic: str, fleet: Fleet, admin: AdminClient
) -> None:
    first = fleet.add(topic)
    second = fleet.add(topic, client_id="second", group_instance_id="two")
    fleet.settle(2, 2)
    group = described(admin, fleet.group_id)
    assert group.state is ConsumerGroupState.STABLE
    assert group.type is ConsumerGroupType.CONSUMER
    assert group.partition_assignor == "uniform"
    by_client = {member.client_id: member for member in group.members}
    assert by_client.keys() == {"rdkafka", "second"}
    assert by_client["second"].group_instance_id == "two"
    assert by_client["second"].host == "/127.0.0.1"
    assigned = by_client["second"].assignment.topic_partitions
    assert {(each.topic, each.partition) for each in assigned} == second.owned
    target = by_client["rdkafka"].target_assignment.topic_partitions
    assert {(each.topic, each.partition) for each in target} == first.owned
    (listed,) = [
        each
        for each in admin.list_consumer_groups().result(ANSWER_SECONDS).valid
        if each.group_id == fleet.group_id
    ]
    assert (listed.type, listed.state) == (group.type, group.state)

    fleet.close(first)
    fleet.close(second)
    deadline = time.monotonic() + ANSWER_SECONDS
    # The static member's place is kept for a session.
    while described(admin, fleet.group_id).state is not ConsumerGroupState.EMPTY:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    admin.delete_consumer_groups([fleet.group_id])[fleet.group_id].result(ANSWER_SECONDS)
    assert fleet.group_id not in [
        each.group_id for each in admin.list_consumer_groups().result(ANSWER_SECONDS).valid
    ]


def test_an_empty_group_changes_between_the_protocols_and_keeps_its_offsets(
    quick: Cluster, topic: str, fleet: Fleet
) -> None:
    group = {"group.id": fleet.group_id, "auto.offset.reset": "earliest"}
    classic = confluent_consumer(quick.bootstrap, **group)
    classic.subscribe([topic])
    written = write(quick, topic, 2, "classic")
    assert len(confluent_poll(classic, len(written))) == len(written)
    classic.commit(asynchronous=False)

    refused = fleet.add(topic)
    fleet.run_until(lambda: refused.was_told(KafkaError.GROUP_ID_NOT_FOUND))
    fleet.close(refused)
    classic.close()

    modern = fleet.add(topic)
    fleet.settle(4)
    later = write(quick, topic, 1, "modern")
    fleet.run_until(lambda: len(modern.values) == len(later))
    assert set(modern.values) == later
    modern.commit({(topic, partition): 3 for partition in range(PARTITIONS)})
    fleet.close(modern)

    back = confluent_consumer(quick.bootstrap, **group)
    back.subscribe([topic])
    last = write(quick, topic, 1, "back")
    received = confluent_poll(back, len(last))
    assert {message.value for message in received} == last
    assert {each.offset for each in back.committed(back.assignment(), ANSWER_SECONDS)} == {3}
    back.close()


def test_a_classic_member_is_refused_while_the_group_has_members_of_the_other_kind(
    quick: Cluster, topic: str, fleet: Fleet
) -> None:
    fleet.add(topic)
    fleet.settle(4)
    classic = confluent_consumer(quick.bootstrap, **{"group.id": fleet.group_id})
    classic.subscribe([topic])
    deadline = time.monotonic() + ANSWER_SECONDS
    while True:
        message = classic.poll(0.2)
        if message is not None and message.error() is not None:
            break
        assert time.monotonic() < deadline
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL
    classic.close()
    assert fleet.loads == [4]


def test_an_administrator_sets_offsets_of_an_empty_group_alone(
    topic: str, fleet: Fleet, admin: AdminClient
) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions

    member = fleet.add(topic)
    fleet.settle(4)
    wanted = ConsumerGroupTopicPartitions(fleet.group_id, [TopicPartition(topic, 0, 1)])
    changed = admin.alter_consumer_group_offsets([wanted])[fleet.group_id].result(ANSWER_SECONDS)
    (partition,) = changed.topic_partitions
    assert partition.error.code() == KafkaError.UNKNOWN_MEMBER_ID
    fleet.close(member)
    changed = admin.alter_consumer_group_offsets([wanted])[fleet.group_id].result(ANSWER_SECONDS)
    assert changed.topic_partitions[0].error is None
    again = fleet.add(topic)
    assert again.committed(topic, 0) == 1
