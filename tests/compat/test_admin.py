"""Topics made, described, grown and deleted through every client that can."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from tests.support.clients.admin import Admin, RefusedError
from tests.support.clients.aiokafka_admin import AiokafkaAdmin
from tests.support.clients.client import Client
from tests.support.clients.confluent_admin import ConfluentAdmin
from tests.support.clients.confluent_client import ConfluentClient
from tests.support.clients.kafka_python_admin import KafkaPythonAdmin
from tests.support.clients.kcat_client import KcatError, run_kcat
from tests.support.clients.message import Message, values
from tests.support.clusters import BASE, Cluster, fresh_topic, one_broker

UNKNOWN_TOPIC = 3
INVALID_TOPIC = 17
TOPIC_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_CONFIG = 40
ADMINS: list[Admin] = [ConfluentAdmin(), KafkaPythonAdmin(), AiokafkaAdmin()]


@pytest.fixture(params=ADMINS, ids=lambda admin: admin.name)
def admin(request: pytest.FixtureRequest) -> Admin:
    found: Admin = request.param
    return found


def test_a_topic_is_created_described_grown_and_deleted(cluster: Cluster, admin: Admin) -> None:
    topic = fresh_topic("life")
    admin.create(cluster.bootstrap, topic, 3, {"retention.ms": "86400000"})
    assert admin.partitions(cluster.bootstrap)[topic] == 3
    admin.grow(cluster.bootstrap, topic, 5)
    assert admin.partitions(cluster.bootstrap)[topic] == 5
    ConfluentClient().write(cluster.bootstrap, topic, [Message(b"new")], partition=4)
    admin.delete(cluster.bootstrap, topic)
    assert topic not in admin.partitions(cluster.bootstrap)


def test_configs_are_described_with_their_defaults(cluster: Cluster, admin: Admin) -> None:
    topic = fresh_topic("configs")
    admin.create(cluster.bootstrap, topic, 1, {"retention.ms": "86400000"})
    configs = admin.configs(cluster.bootstrap, topic)
    assert configs["retention.ms"] == "86400000"
    assert configs["cleanup.policy"] == "delete"
    assert configs["max.message.bytes"] == "1048588"


def test_what_cannot_be_is_refused_with_kafkas_codes(cluster: Cluster, admin: Admin) -> None:
    topic, bootstrap = fresh_topic("refused"), cluster.bootstrap
    admin.create(bootstrap, topic, 2, {})
    refusals: dict[int, Callable[[], None]] = {
        TOPIC_EXISTS: lambda: admin.create(bootstrap, topic, 2, {}),
        INVALID_TOPIC: lambda: admin.create(bootstrap, "no spaces", 1, {}),
        INVALID_CONFIG: lambda: admin.create(bootstrap, fresh_topic("x"), 1, {"no.such": "1"}),
        INVALID_PARTITIONS: lambda: admin.grow(bootstrap, topic, 2),
        UNKNOWN_TOPIC: lambda: admin.delete(bootstrap, fresh_topic("never-was")),
    }
    for code, attempt in refusals.items():
        with pytest.raises(RefusedError) as refused:
            attempt()
        assert refused.value.code == code


def test_a_deleted_topic_can_be_made_anew_and_is_empty(cluster: Cluster, admin: Admin) -> None:
    topic = fresh_topic("again")
    admin.create(cluster.bootstrap, topic, 1, {})
    ConfluentClient().write(cluster.bootstrap, topic, [Message(b"old")])
    admin.delete(cluster.bootstrap, topic)
    admin.create(cluster.bootstrap, topic, 1, {})
    ConfluentClient().write(cluster.bootstrap, topic, [Message(b"new")])
    received = ConfluentClient().read(cluster.bootstrap, topic, count=1)
    assert [(each.offset, each.value) for each in received] == [(0, b"new")]


def test_kcat_lists_brokers_and_topics(cluster: Cluster) -> None:
    topic = fresh_topic("listed")
    ConfluentAdmin().create(cluster.bootstrap, topic, 2, {})
    listing = run_kcat(["-L", "-b", cluster.bootstrap]).decode()
    assert f"{len(cluster.addresses)} brokers:" in listing
    for address in cluster.addresses:
        assert address in listing
    assert f'topic "{topic}" with 2 partitions:' in listing


def test_a_topic_is_created_by_its_first_producer(cluster: Cluster, client: Client) -> None:
    topic = fresh_topic("auto")
    client.write(cluster.bootstrap, topic, [Message(b"first")])
    assert values(client.read(cluster.bootstrap, topic, count=1)) == [b"first"]
    assert ConfluentAdmin().partitions(cluster.bootstrap)[topic] == 2, "default_partitions"


@pytest.fixture(scope="module")
def strict_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    strict = replace(BASE, broker=replace(BASE.broker, auto_create_topics=False))
    with one_broker(tmp_path_factory.mktemp("strict"), base=strict) as cluster:
        yield cluster


def test_without_auto_creation_an_unknown_topic_stays_unknown(strict_cluster: Cluster) -> None:
    topic = fresh_topic("unknown")
    impatient = ["-X", "topic.metadata.propagation.max.ms=300"]
    with pytest.raises(KcatError, match="Unknown topic or partition"):
        run_kcat(["-P", "-b", strict_cluster.bootstrap, "-t", topic, *impatient], b"lost\n")
    assert topic not in ConfluentAdmin().partitions(strict_cluster.bootstrap)
    ConfluentAdmin().create(strict_cluster.bootstrap, topic, 1, {})
    ConfluentClient().write(strict_cluster.bootstrap, topic, [Message(b"kept")])
    assert values(ConfluentClient().read(strict_cluster.bootstrap, topic, count=1)) == [b"kept"]
