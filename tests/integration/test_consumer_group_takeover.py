"""A consumer group outlives its coordinator: another broker goes on where that one was killed."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient
from tests.integration.broker_process import BrokerProcess, process
from tests.support.clients.client import ANSWER_SECONDS
from tests.support.clients.confluent_client import ConfluentClient
from tests.support.clients.consumer_fleet import Fleet
from tests.support.clients.message import numbered, values
from tests.support.clusters import Cluster, create, fresh_topic, wait_until_met
from tests.support.servers import PostgresServer, S3Server

PARTITIONS = 4
SETTINGS = (
    "block.window_ms=5ms",
    "broker.lease_ms=1500ms",
    "groups.consumer_heartbeat_interval_ms=100ms",
    "groups.consumer_session_timeout_ms=10s",
    "groups.consumer_topics_poll_ms=200ms",
)


@pytest.fixture
def flags(postgres_dsn: str, s3_server: S3Server, postgres_server: PostgresServer) -> list[str]:
    options = [f"storage.object_options.{name}={v}" for name, v in s3_server.options.items()]
    given = ["--objects", s3_server.fresh_url(), "--control", postgres_dsn]
    for each in (*options, *SETTINGS):
        given += ["--set", each]
    return given


@pytest.fixture
def brokers(flags: list[str], tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    with process(flags, tmp_path) as one, process(flags, tmp_path) as other:
        wait_until_met([one.address, other.address])
        yield [one, other]


def coordinator_of(cluster: Cluster, group_id: str) -> str:
    """The address of the broker that has the group."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    group = admin.describe_consumer_groups([group_id])[group_id].result(ANSWER_SECONDS)
    return f"{group.coordinator.host}:{group.coordinator.port}"


def test_members_go_on_with_another_broker_when_their_coordinator_is_killed(
    brokers: list[BrokerProcess],
) -> None:
    cluster = Cluster([broker.address for broker in brokers])
    topic = create(cluster, fresh_topic("outlived"), partitions=PARTITIONS)
    with Fleet(cluster.bootstrap, f"group-{uuid4().hex[:8]}") as fleet:
        fleet.add(topic)
        fleet.add(topic)
        fleet.settle(2, 2)
        early = write(cluster, topic, "early")
        fleet.run_until(lambda: set(fleet.values) == early)
        owned = [set(member.owned) for member in fleet.members]

        address = coordinator_of(cluster, fleet.group_id)
        (coordinator,) = [broker for broker in brokers if broker.address == address]
        coordinator.kill()
        survivor = Cluster([cluster.other_than(address)])
        late = write(survivor, topic, "late")
        fleet.run_until(lambda: set(fleet.values) == early | late)
        assert [member.owned for member in fleet.members] == owned
        assert sorted(fleet.values) == sorted(early | late)

        # The group still lives: it takes a member in, and lets one go.
        fleet.add(topic)
        fleet.settle(1, 1, 2)
        assert coordinator_of(survivor, fleet.group_id) == survivor.bootstrap
        fleet.close(fleet.members[0])
        fleet.settle(2, 2)


def write(cluster: Cluster, topic: str, prefix: str) -> set[bytes]:
    written: set[bytes] = set()
    for partition in range(PARTITIONS):
        messages = numbered(5, f"{prefix}-{partition}")
        ConfluentClient().write(cluster.bootstrap, topic, messages, partition=partition)
        written.update(value for value in values(messages) if value is not None)
    return written
