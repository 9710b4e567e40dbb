"""One broker of several processes, at one address: clients cannot tell, and a worker may die."""

import os
import signal
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.integration.broker_process import BrokerProcess, process
from tests.support.clients.client import ANSWER_SECONDS
from tests.support.servers import PostgresServer

with warnings.catch_warnings():
    # It reads its schemas by a function that Python 3.11 and 3.12 call deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

WORKERS = 3
GROUP = "members"
PARTITIONS = 4
CLIENTS = 12
"""So many that no worker has none of their connections."""
KILLS = 4
IN_FLIGHT = 300
"""Messages without an answer, while a worker is killed."""


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    data = ["--data", str(tmp_path / "data"), "--no-pipeline", "--workers", str(WORKERS)]
    return [*data, "--set", "groups.initial_rebalance_delay_ms=0", "--set", "block.window_ms=20ms"]


@pytest.fixture
def sqlite(flags: list[str]) -> list[str]:
    return flags


@pytest.fixture
def postgres(flags: list[str], postgres_server: PostgresServer) -> Iterator[list[str]]:
    dsn = postgres_server.create_database()
    yield [*flags, "--control", dsn]
    postgres_server.drop_database(dsn)


@pytest.fixture
def broker(flags: list[str], tmp_path: Path) -> Iterator[BrokerProcess]:
    with process(flags, tmp_path) as running:
        yield running


def create(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    for created in admin.create_topics([NewTopic(topic, PARTITIONS)]).values():
        created.result()


def producers(broker: BrokerProcess) -> list[Producer]:
    settings = {
        "bootstrap.servers": broker.address,
        "enable.idempotence": True,
        "linger.ms": 1,
        "log_level": 0,
    }
    return [Producer(settings) for _ in range(CLIENTS)]


class Writes:
    """Messages of many producers, and the ones that were acknowledged."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        self.acknowledged: list[bytes] = []
        self.failures: list[str] = []
        self._topic = topic
        self._producers = producers(broker)
        self._count = 0

    def write(self, count: int) -> None:
        """Write so many messages, and wait until all are answered."""
        for _ in range(count):
            self._send()
        for producer in self._producers:
            assert producer.flush(ANSWER_SECONDS) == 0

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Write without a pause, and wait for all answers in the end."""
        enough = threading.Event()
        writer = threading.Thread(target=self._write_until, args=(enough,))
        writer.start()
        try:
            yield
        finally:
            enough.set()
            writer.join()

    def _write_until(self, enough: threading.Event) -> None:
        while not enough.is_set():
            self._send()
            while sum(map(len, self._producers)) > IN_FLIGHT and not enough.is_set():
                for producer in self._producers:
                    producer.poll(0.001)
        self.write(0)

    def _send(self) -> None:
        value = f"message {self._count}".encode()
        producer = self._producers[self._count % CLIENTS]
        producer.produce(
            self._topic, value, partition=self._count % PARTITIONS, callback=self._answered
        )
        self._count += 1
        producer.poll(0)

    def _answered(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged.append(message.value())  # type: ignore[attr-defined]
        else:
            self.failures.append(str(error))


def read(broker: BrokerProcess, topic: str, count: int) -> Counter[bytes]:
    """Read until so many messages have come, and a little longer, which would show a repeat."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "a reader",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found: Counter[bytes] = Counter()
    deadline = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found[message.value() or b""] += 1
        elif message is None and found.total() >= count:
            break
    consumer.close()
    return found


def workers_of(broker: BrokerProcess) -> list[int]:
    """The processes of the workers beside the first one."""
    children = Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text().split()
    return [
        int(child)
        for child in children
        if b"stratalog.node.workers.process" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + ANSWER_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_many_clients_write_and_read_through_all_workers(broker: BrokerProcess) -> None:
    create(broker, "all")
    assert len(workers_of(broker)) == WORKERS - 1
    writes = Writes(broker, "all")
    writes.write(600)
    assert not writes.failures
    assert read(broker, "all", 600) == Counter(writes.acknowledged)


def members_of_a_group(broker: BrokerProcess, topic: str) -> list[Consumer]:
    """So many members as partitions, each with one of them."""
    members = [
        Consumer(
            {
                "bootstrap.servers": broker.address,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 200,
                "log_level": 0,
            }
        )
        for _ in range(PARTITIONS)
    ]
    for member in members:
        member.subscribe([topic])
    deadline = time.monotonic() + ANSWER_SECONDS
    while sorted(len(member.assignment()) for member in members) != [1] * PARTITIONS:
        assert time.monotonic() < deadline
        for member in members:
            member.poll(0.1)
    return members


def read_by(members: list[Consumer], count: int) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    deadline = time.monotonic() + ANSWER_SECONDS
    while found.total() < count:
        assert time.monotonic() < deadline
        for member in members:
            message = member.poll(0.05)
            if message is not None and message.error() is None:
                found[message.value() or b""] += 1
    return found


def leave(members: list[Consumer]) -> None:
    for member in members:
        member.commit(asynchronous=False)
        member.close()


def test_a_group_shares_partitions_whichever_workers_its_members_reach(
    broker: BrokerProcess,
) -> None:
    create(broker, "shared")
    members = members_of_a_group(broker, "shared")
    writes = Writes(broker, "shared")
    writes.write(200)
    assert read_by(members, 200) == Counter(writes.acknowledged)
    leave(members)


def assignments(broker: BrokerProcess) -> dict[str, list[TopicPartition]]:
    admin = AdminClient({"bootstrap.servers": broker.address})
    described = admin.describe_consumer_groups([GROUP])[GROUP].result()
    return {one.member_id: one.assignment.topic_partitions for one in described.members}


def test_members_keep_their_partitions_when_the_workers_that_relay_them_are_killed(
    broker: BrokerProcess,
) -> None:
    create(broker, "kept")
    members = members_of_a_group(broker, "kept")
    before = assignments(broker)
    victims = workers_of(broker)
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
    writes = Writes(broker, "kept")
    writes.write(200)
    assert read_by(members, 200) == Counter(writes.acknowledged)
    leaving = [member.memberid() for member in members]
    assert assignments(broker) == before
    assert set(before) == set(leaving)
    leave(members)


class Reading:
    """A reader in fetch sessions, which end with the worker that has its connection."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        self.values: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=[broker.address],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        self._consumer.assign([kafka.TopicPartition(topic, index) for index in range(PARTITIONS)])

    def read(self) -> None:
        for place, records in self._consumer.poll(timeout_ms=100).items():
            self.values[place.partition] += [record.value for record in records]

    @property
    def count(self) -> int:
        return sum(map(len, self.values.values()))

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("control", ["sqlite", "postgres"])
def test_workers_that_are_killed_under_load_lose_no_acknowledged_message_and_repeat_none(
    control: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with process(request.getfixturevalue(control), tmp_path) as broker:
        create(broker, "killed")
        writes, reading = Writes(broker, "killed"), Reading(broker, "killed")
        with writes.going_on():
            for number in range(KILLS):
                enough = len(writes.acknowledged) + IN_FLIGHT
                read_until(reading, lambda enough=enough: len(writes.acknowledged) >= enough)  # type: ignore[misc]
                victim = workers_of(broker)[number % (WORKERS - 1)]
                os.kill(victim, signal.SIGKILL)
                read_until(reading, lambda victim=victim: victim not in workers_of(broker))  # type: ignore[misc]
                read_until(reading, lambda: len(workers_of(broker)) == WORKERS - 1)
        read_until(reading, lambda: reading.count >= len(writes.acknowledged))
        reading.read()
        reading.close()
        assert not writes.failures
        acknowledged = Counter(writes.acknowledged)
        assert Counter(value for values in reading.values.values() for value in values) == (
            acknowledged
        )
        assert read(broker, "killed", acknowledged.total()) == acknowledged
    for values in reading.values.values():
        for client in range(CLIENTS):
            numbers = [int(value.split()[1]) for value in values]
            own = [number for number in numbers if number % CLIENTS == client]
            assert own == sorted(own), "a producer's messages have its order"


def read_until(reading: Reading, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 2 * ANSWER_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        reading.read()


def test_the_workers_of_a_first_one_that_was_killed_end_and_their_messages_stay(
    broker: BrokerProcess, flags: list[str], tmp_path: Path
) -> None:
    create(broker, "orphans")
    writes = Writes(broker, "orphans")
    writes.write(120)
    workers = workers_of(broker)
    broker.kill()
    wait_until(lambda: not any(is_running(worker) for worker in workers))
    with process(flags, tmp_path) as again:
        assert read(again, "orphans", 120) == Counter(writes.acknowledged)


def test_a_broker_that_stops_ends_its_workers_and_their_messages_stay(
    broker: BrokerProcess, flags: list[str], tmp_path: Path
) -> None:
    create(broker, "stopped")
    writes = Writes(broker, "stopped")
    writes.write(120)
    workers = workers_of(broker)
    broker.stop()
    assert not any(is_running(worker) for worker in workers)
    with process(flags, tmp_path) as again:
        assert read(again, "stopped", 120) == Counter(writes.acknowledged)


def test_objects_in_memory_cannot_be_shared(tmp_path: Path) -> None:
    flags = ["--objects", "memory:", "--data", str(tmp_path), "--workers", "2"]
    broker = BrokerProcess(flags, tmp_path)
    code, said = broker.wait()
    broker.stop()
    assert code != 0
    assert "leave broker.workers at 1" in " ".join(said.split())
