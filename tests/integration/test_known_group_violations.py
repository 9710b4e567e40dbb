"""Failures of other systems with the offsets of groups.

The table in docs/safety.md names the failures and all the tests that guard against them.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from tests.integration.asking import (
    EARLIEST,
    LATEST,
    Told,
    all_committed,
    boundaries,
    commit_offset,
    committed_offset,
    delete_offset,
    epoch_end,
    group_of,
    list_offset,
    make_anew,
)
from tests.integration.breakable import (
    Frail,
    away,
    frail_broker,
    run_sql,
    threads,
)
from tests.integration.known_violations import IMPATIENT, NONE, TIDY, member_of
from tests.support.clients.confluent_client import (
    confluent_consumer,
    confluent_poll,
)
from tests.support.clients.group_members import wait_until
from tests.support.clients.group_sharing import coordinator_of
from tests.support.clients.message import Received
from tests.support.clusters import (
    Cluster,
    create,
    folder_storage,
    fresh_topic,
    wait_until_met,
)
from tests.support.servers import PostgresServer, S3Server
from tests.support.wire import batch_of, connected

from stratalog.settings import GroupsSettings
from stratalog.testing import Broker

# Answers with offsets.


@pytest.fixture(scope="module")
def frail(postgres_server: PostgresServer, s3_server: S3Server) -> Iterator[Frail]:
    with frail_broker(postgres_server, s3_server, IMPATIENT) as broker:
        yield broker


def test_an_offset_that_cannot_be_known_is_an_error_and_never_a_number(frail: Frail) -> None:
    """Elsewhere brokers in trouble answered offset 0, or no committed offset, and consumers
    started over."""
    topic = create(Cluster([frail.address]), fresh_topic("unknown"))
    group = fresh_topic("group")
    starting_over = {"group.id": group, "auto.offset.reset": "earliest"}
    received: list[Received] = []
    with (
        connected(frail.address) as wire,
        closing(confluent_consumer(frail.address, **starting_over)) as consumer,
    ):
        assert wire.produce(topic, batch_of([b"0", b"1", b"2", b"3"])).error_code is NONE
        assert commit_offset(wire, group, topic, 2) is NONE
        with away(frail.database):
            produced = wire.produce(topic, batch_of([b"refused"]))
            told = [
                Told(produced.error_code, produced.base_offset),
                *(list_offset(wire, topic, when) for when in (EARLIEST, LATEST, 0)),
                committed_offset(wire, group, topic),
                Told(*epoch_end(wire, topic, 0)[::2]),
                Told(*boundaries(wire, topic, 0)[::2]),
            ]
            assert [each.offset for each in told] == [-1] * len(told)
            assert NONE not in [each.code for each in told]
            turned_away = frail.database.turned_away
            consumer.subscribe([topic])
            with threads(lambda: received.extend(confluent_poll(consumer, 2))):
                wait_until(lambda: frail.database.turned_away > turned_away)
                frail.database.come_back()
        assert [each.offset for each in received] == [2, 3]


def test_a_commit_of_offsets_that_is_answered_is_stored(frail: Frail) -> None:
    """Elsewhere commits were answered and not stored, and a rebalance lost a quarter of the
    messages."""
    topic = create(Cluster([frail.address]), fresh_topic("stored"))
    group = fresh_topic("group")

    def stored() -> int:
        """As the next coordinator would find it: not through this broker."""
        query = "SELECT committed_offset FROM group_offsets WHERE group_id = $1"
        rows = run_sql(frail.storage.dsn, query, group)
        return int(rows[0][0]) if rows else -1

    refused = 0
    with connected(frail.address) as wire:
        for offset in range(1, 25):
            if offset % 3 == 0:
                frail.database.cut_at(b"COMMIT\0", times=1)
            code = commit_offset(wire, group, topic, offset)
            frail.database.behave()
            if code is NONE:
                assert stored() == offset
            else:
                refused += 1
                assert stored() in (offset - 1, offset)
                wait_until(lambda: commit_offset(wire, group, topic, offset) is NONE)  # noqa: B023
            assert committed_offset(wire, group, topic) == (NONE, offset)
    assert refused >= 2, "too little was put to the test"


def test_offsets_of_a_topic_that_was_made_anew_elsewhere_are_neither_dropped_nor_missed(
    tmp_path: Path,
) -> None:
    """The same, where a coordinator still takes the name for the topic that was deleted."""
    settings = replace(TIDY, storage=folder_storage(tmp_path))
    with Broker(settings) as staying:
        with Broker(settings) as leaving:
            here, there = staying.bootstrap, leaving.bootstrap
            wait_until_met([here, there])
            topic = create(Cluster([here, there]), fresh_topic("anew"))
            mine, theirs = group_of(here, here), group_of(here, there)
            with connected(here) as wire, connected(there) as other:
                assert commit_offset(wire, mine, topic, 7) is NONE
                make_anew(other, topic)
                assert commit_offset(other, theirs, topic, 4) is NONE
                wait_until(lambda: commit_offset(wire, mine, topic, 3) is NONE)
                assert committed_offset(wire, mine, topic) == (NONE, 3)
                assert list_offset(wire, topic, EARLIEST) == (NONE, 0)
                make_anew(other, topic)
                assert commit_offset(other, theirs, topic, 5) is NONE
        wait_until(lambda: coordinator_of(here, theirs) == here)
        with connected(here) as wire:
            assert committed_offset(wire, theirs, topic) == (NONE, 5)


def test_offsets_of_groups_are_the_same_at_the_next_coordinator(tmp_path: Path) -> None:
    """Elsewhere the coordinator's memory and its log came to differ: deleted offsets came back,
    committed ones were gone."""
    groups = GroupsSettings(initial_rebalance_delay_ms=0, offsets_retention_ms=300)
    settings = replace(TIDY, storage=folder_storage(tmp_path), groups=groups)
    with ExitStack() as first, ExitStack() as second:
        stops = {
            stack.enter_context(Broker(settings)).bootstrap: stack.close
            for stack in (first, second)
        }
        wait_until_met(list(stops))
        cluster = Cluster(list(stops))
        read, beside = (create(cluster, fresh_topic(name), partitions=2) for name in "rb")
        held, left = fresh_topic("held"), fresh_topic("left")
        doomed = coordinator_of(cluster.addresses[0], held)
        with member_of(cluster, held, read) as member:
            for topic, partition, offset in ((read, 0, 5), (read, 1, 7), (beside, 0, 3)):
                member.commit(
                    offsets=[TopicPartition(topic, partition, offset)], asynchronous=False
                )
            with connected(coordinator_of(cluster.addresses[0], left)) as wire:
                assert commit_offset(wire, left, read, 9) is NONE
                wait_until(lambda: committed_offset(wire, left, read) == (NONE, -1))
            with connected(doomed) as wire:
                assert delete_offset(wire, held, beside) is NONE
                known = all_committed(wire, held, read, beside)
            assert known == [(NONE, 5), (NONE, 7), (NONE, -1), (NONE, -1)]
            stops[doomed]()
            survivor = cluster.other_than(doomed)
            wait_until(lambda: coordinator_of(survivor, held) == survivor)
            with connected(survivor) as wire:
                assert all_committed(wire, held, read, beside) == known
                wait_until(lambda: coordinator_of(survivor, left) == survivor)
                assert committed_offset(wire, left, read) == (NONE, -1)
                member.commit(offsets=[TopicPartition(read, 0, 6)], asynchronous=False)
                assert committed_offset(wire, held, read) == (NONE, 6)
