"""The common part of the tests of classic groups: ownership, reads and commits of the members."""

from dataclasses import replace

from confluent_kafka import TopicPartition
from kio.schema.find_coordinator.v2 import request as find_request
from kio.schema.find_coordinator.v2.response import FindCoordinatorResponse
from tests.support.clients.confluent_client import ConfluentClient, confluent_consumer
from tests.support.clients.group_members import Member, wait_until
from tests.support.clients.message import numbered
from tests.support.clusters import BASE, Cluster
from tests.support.wire import connected

from stratalog.settings import GroupsSettings

PARTITIONS = 4
EACH = 20
QUICK = replace(
    BASE, groups=GroupsSettings(initial_rebalance_delay_ms=0, min_session_timeout_ms=1000)
)


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
