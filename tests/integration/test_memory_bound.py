"""The memory of a broker stays within the formula of docs/operations.md, whatever 100 clients send,
and other clients go on."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.faults.hostile_requests import TURN_S, WIDE, attacks
from tests.integration.broker_process import BrokerProcess, process
from tests.support.clients.client import ANSWER_SECONDS

MIB = 1 << 20
SETTINGS = {
    "block.window_ms": 50,
    "block.max_inflight_bytes": 32 * MIB,
    "block.cache_bytes": 16 * MIB,
    "broker.max_request_entries": 5000,
    "broker.request_memory_bytes": 32 * MIB,
    "broker.answer_memory_bytes": 64 * MIB,
    "broker.max_decompressed_bytes": 4 * MIB,
    "remote.index_cache_bytes": 4 * MIB,
    "remote.chunk_cache_bytes": 4 * MIB,
    "groups.max_state_bytes": 16 * MIB,
}
PYTHON_BYTES = 270 * MIB
CONNECTIONS = 100
CALM_SECONDS = 5.0
TURN_SECONDS = 0.01
PER_TURN = 10
MOST_UNANSWERED = 200


def attack_seconds() -> float:
    """Long enough for a turn of every attack."""
    return len(attacks(SETTINGS["broker.max_request_entries"], "")) * TURN_S + 1


def bound_bytes() -> int:
    """The formula of docs/operations.md, "The memory of a broker"."""
    parts = (
        2 * SETTINGS["block.max_inflight_bytes"],
        SETTINGS["block.cache_bytes"],
        SETTINGS["broker.request_memory_bytes"],
        SETTINGS["broker.answer_memory_bytes"],
        2 * SETTINGS["broker.max_decompressed_bytes"],
        SETTINGS["remote.index_cache_bytes"],
        SETTINGS["remote.chunk_cache_bytes"],
        SETTINGS["groups.max_state_bytes"],
        CONNECTIONS * MIB,
    )
    return PYTHON_BYTES + sum(parts) * 4 // 3


def test_a_hundred_hostile_clients_pass_no_bound_of_memory_and_stop_no_honest_client(
    tmp_path: Path,
) -> None:
    flags = [f"--set={name}={value}" for name, value in SETTINGS.items()]
    with process(["--no-pipeline", *flags], tmp_path) as broker:
        fill(broker.address)
        with Honest(broker.address) as honest:
            calm = honest.operations_per_second(CALM_SECONDS)
            with attacking(broker.address):
                attacked = honest.operations_per_second(attack_seconds())
            # Other work of the machine may come and go meanwhile.
            calm_again = honest.operations_per_second(CALM_SECONDS)
        peak = peak_bytes(broker)
    assert honest.errors == []
    assert peak < bound_bytes(), f"{peak // MIB} MiB, the bound is {bound_bytes() // MIB} MiB"
    for kind, rate in attacked.items():
        before = min(calm[kind], calm_again[kind])
        assert rate >= before / 2, f"{kind}: {before:.1f}/s, then {rate:.1f}/s"


def fill(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    topics = [
        NewTopic("honest", 1),
        NewTopic(WIDE, 1000),
        *(NewTopic(f"t{i}", 2) for i in range(100)),
    ]
    for created in admin.create_topics(topics).values():
        created.result(ANSWER_SECONDS)
    producer = Producer({"bootstrap.servers": address})
    for place in range(2000):
        producer.produce(WIDE, bytes(10_000), partition=place % 16)
    assert producer.flush(ANSWER_SECONDS) == 0


@contextmanager
def attacking(address: str) -> Iterator[None]:
    command = [sys.executable, "-m", "tests.faults.hostile_requests", address]
    command += ["--connections", str(CONNECTIONS), "--seconds", "1000"]
    command += ["--entries", str(SETTINGS["broker.max_request_entries"])]
    attackers = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert attackers.stdout is not None
    try:
        assert attackers.stdout.readline() == b"attacking\n"
        yield
    finally:
        attackers.kill()
        attackers.wait()
        attackers.stdout.close()


def peak_bytes(broker: BrokerProcess) -> int:
    for line in Path(f"/proc/{broker.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the system does not tell the peak of a process")


class Honest:
    """A producer of a steady thousand records a second, and a consumer that reads them.

    The producer has few records unanswered: it falls behind when answers take a fifth of a second.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._stopping = threading.Event()
        self.done = {"produced": 0, "consumed": 0}
        self.errors: list[str] = []
        self._threads = [threading.Thread(target=one) for one in (self._produce, self._consume)]

    def __enter__(self) -> "Honest":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def operations_per_second(self, seconds: float) -> dict[str, float]:
        before, began = dict(self.done), time.monotonic()
        time.sleep(seconds)
        lasted = time.monotonic() - began
        return {kind: (count - before[kind]) / lasted for kind, count in self.done.items()}

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self._address})
        due_s = time.monotonic()
        while not self._stopping.is_set():
            due_s = max(due_s, time.monotonic() - TURN_SECONDS) + TURN_SECONDS
            while time.monotonic() < due_s or len(producer) >= MOST_UNANSWERED:
                producer.poll(0.002)
            for _ in range(PER_TURN):
                producer.produce("honest", b"value", on_delivery=self._delivered)
        producer.flush(ANSWER_SECONDS)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self.errors.append(str(error))
        self.done["produced"] += 1

    def _consume(self) -> None:
        config: dict[str, str | int] = {
            "bootstrap.servers": self._address,
            "group.id": "honest",
            "auto.offset.reset": "earliest",
        }
        consumer = Consumer(config)
        consumer.subscribe(["honest"])
        while not self._stopping.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.done["consumed"] += 1
        consumer.close()
