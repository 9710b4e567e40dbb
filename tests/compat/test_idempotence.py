"""Idempotent producers behind a network that breaks: everything once, and in order.

The proxies cut connections in the middle of requests, and after a request before its response, so
that producers send batches again that are already stored.
"""

from collections.abc import Iterator

import pytest
from tests.support.clients.client import Client
from tests.support.clients.confluent_client import ConfluentClient, confluent_producer
from tests.support.clients.message import Message, numbered, values
from tests.support.clusters import Cluster, create, fresh_topic
from tests.support.wire import batch_of, connected

MESSAGES = 3000
CUTS = 10


@pytest.fixture
def broken_cluster(proxied_cluster: Cluster) -> Iterator[Cluster]:
    yield proxied_cluster
    mend_connections(proxied_cluster)


def break_connections(cluster: Cluster, seed: int) -> None:
    """A connection lives long enough for its first questions, and for some batches."""
    for proxy in cluster.proxies:
        proxy.cut_requests = proxy.cut_responses = 0
        proxy.cut_randomly(
            times=CUTS, there_bytes=(5_000, 80_000), back_bytes=(600, 1500), seed=seed
        )


def mend_connections(cluster: Cluster) -> tuple[int, int]:
    """Returns how many requests and how many responses were cut."""
    for proxy in cluster.proxies:
        proxy.behave()
    requests = sum(proxy.cut_requests for proxy in cluster.proxies)
    responses = sum(proxy.cut_responses for proxy in cluster.proxies)
    return requests, responses


def test_everything_arrives_once_and_in_order_over_broken_connections(
    broken_cluster: Cluster, client: Client
) -> None:
    topic = create(broken_cluster, fresh_topic("broken"))
    sent = numbered(MESSAGES, "x" * 300)
    break_connections(broken_cluster, seed=1)
    told = client.write(broken_cluster.bootstrap, topic, sent, idempotent=True)
    cut_requests, cut_responses = mend_connections(broken_cluster)
    assert min(cut_requests, cut_responses) >= 1, "too little was put to the test"
    if client.tells_offsets:
        assert told == list(range(MESSAGES))
    with connected(broken_cluster.leader_of(topic)) as wire:
        assert wire.fetch_values(topic) == values(sent)


def test_many_partitions_stay_in_order_over_broken_connections(broken_cluster: Cluster) -> None:
    topic = create(broken_cluster, fresh_topic("broken-wide"), partitions=8)
    break_connections(broken_cluster, seed=3)
    failures: list[object] = []
    producer = confluent_producer(broken_cluster.bootstrap, idempotent=True)
    for number in range(4 * MESSAGES):
        producer.produce(
            topic,
            b"%d" % number,
            partition=number % 8,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(60) == 0
    assert failures == []
    mend_connections(broken_cluster)
    for partition in range(8):
        expected = [b"%d" % number for number in range(partition, 4 * MESSAGES, 8)]
        with connected(broken_cluster.addresses[0]) as wire:
            assert wire.fetch_values(topic, partition=partition) == expected


def test_a_repeated_batch_is_answered_with_its_first_offset(cluster: Cluster) -> None:
    topic = create(cluster, fresh_topic("repeated"))
    first, second = (
        batch_of(
            [b"%d" % sequence, b"%d" % (sequence + 1)],
            producer_id=2**50,
            producer_epoch=0,
            base_sequence=sequence,
        )
        for sequence in (0, 2)
    )
    answers = []
    for address in (cluster.addresses[0], cluster.addresses[-1]):
        with connected(address) as wire:
            for batch in (first, second, first):
                answer = wire.produce(topic, batch)
                answers.append((answer.error_code, answer.base_offset))
    assert answers == [(0, 0), (0, 2), (0, 0)] * 2
    assert values(ConfluentClient().read(cluster.bootstrap, topic, count=4)) == [
        b"0",
        b"1",
        b"2",
        b"3",
    ]


def test_a_gap_in_the_sequence_is_refused(cluster: Cluster) -> None:
    topic = create(cluster, fresh_topic("gap"))

    def batch(sequence: int, epoch: int = 0) -> bytes:
        return batch_of([b"x"], producer_id=2**41, producer_epoch=epoch, base_sequence=sequence)

    with connected(cluster.addresses[-1]) as wire:
        codes = [
            wire.produce(topic, batch(sequence, epoch)).error_code.name
            for sequence, epoch in ((0, 1), (2, 1), (1, 1), (2, 0), (0, 2))
        ]
    assert codes == [
        "none",
        "out_of_order_sequence_number",
        "none",
        "invalid_producer_epoch",
        "none",
    ]


def test_two_idempotent_producers_do_not_disturb_each_other(
    cluster: Cluster, client: Client
) -> None:
    topic = create(cluster, fresh_topic("two-producers"))
    client.write(cluster.bootstrap, topic, [Message(b"first")], idempotent=True)
    client.write(cluster.bootstrap, topic, [Message(b"second")], idempotent=True)
    assert values(client.read(cluster.bootstrap, topic, count=2)) == [b"first", b"second"]
