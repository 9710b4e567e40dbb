"""One broker of several processes, at one address: clients cannot tell, and a worker may die."""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.integration.broker_process import BrokerProcess, process
from tests.support.clients.client import ANSWER_SECONDS

WORKERS = 3
PARTITIONS = 4
CLIENTS = 12
"""So many that no worker has none of their connections."""


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    data = ["--data", str(tmp_path / "data"), "--no-pipeline", "--workers", str(WORKERS)]
    return [*data, "--set", "groups.initial_rebalance_delay_ms=0", "--set", "block.window_ms=20ms"]


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
            value = f"message {self._count}".encode()
            producer = self._producers[self._count % CLIENTS]
            producer.produce(
                self._topic, value, partition=self._count % PARTITIONS, callback=self._answered
            )
            self._count += 1
            producer.poll(0)
        for producer in self._producers:
            assert producer.flush(ANSWER_SECONDS) == 0

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


def test_a_group_shares_partitions_whichever_workers_its_members_reach(
    broker: BrokerProcess,
) -> None:
    create(broker, "shared")
    members = [
        Consumer(
            {
                "bootstrap.servers": broker.address,
                "group.id": "members",
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        for _ in range(PARTITIONS)
    ]
    for member in members:
        member.subscribe(["shared"])
    deadline = time.monotonic() + ANSWER_SECONDS
    while sorted(len(member.assignment()) for member in members) != [1] * PARTITIONS:
        assert time.monotonic() < deadline
        for member in members:
            member.poll(0.1)
    writes = Writes(broker, "shared")
    writes.write(200)
    found: Counter[bytes] = Counter()
    while found.total() < 200:
        assert time.monotonic() < deadline
        for member in members:
            message = member.poll(0.05)
            if message is not None and message.error() is None:
                found[message.value() or b""] += 1
    assert found == Counter(writes.acknowledged)
    for member in members:
        member.commit(asynchronous=False)
        member.close()


def test_a_worker_that_is_killed_loses_no_acknowledged_message_and_repeats_none(
    broker: BrokerProcess,
) -> None:
    create(broker, "killed")
    writes = Writes(broker, "killed")
    for _ in range(2):
        writes.write(120)
        victim = workers_of(broker)[0]
        os.kill(victim, signal.SIGKILL)
        writes.write(120)
        wait_until(lambda victim=victim: victim not in workers_of(broker))  # type: ignore[misc]
        wait_until(lambda: len(workers_of(broker)) == WORKERS - 1)
    assert not writes.failures
    assert read(broker, "killed", 480) == Counter(writes.acknowledged)


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
