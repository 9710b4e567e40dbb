"""The price of walking the records of a produced batch at its entry, in processor time.

Run: python -m bench.entry_walk [--megabytes 200] [--rounds 5]

A batch is first checked as a broker does it, with the walk and without: header, checksum, rules.
All in one thread, in the smallest of several turns, so that other work of the machine hardly
counts. Then a broker takes uncompressed records for two topics in turns, of which one has the walk
switched off. There are two ratios of a broker's processor time without the walk to that with it:
the first takes the walk's own time off, the second compares the two topics. The second tells more
and needs a quiet machine. The floor is 0.95.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from stratalog.batch.build import build_batch
from stratalog.batch.header import parse_header
from stratalog.batch.records import Record
from stratalog.batch.validate import validate
from stratalog.cli.bench import TemporaryBroker, temporary_broker

SHAPES = ((1, 100), (1000, 1024), (10_000, 100))
"""Records, and the bytes of each."""
TURNS = 9
TURN_SECONDS = 0.05
WALKED, RELAXED = "walked", "relaxed"


def least_us(work: Callable[[], object]) -> float:
    work()
    least, rounds = float("inf"), 1
    for _ in range(TURNS):
        start = time.process_time()
        for _ in range(rounds):
            work()
        spent = time.process_time() - start
        least = min(least, spent / rounds)
        rounds = max(rounds, round(TURN_SECONDS / max(least, 1e-9)))
    return least * 1e6


def walk_cost(count: int, size_bytes: int) -> float:
    """Nanoseconds a byte."""
    now_ms = time.time_ns() // 1_000_000
    records = [Record(place, now_ms, None, bytes(size_bytes)) for place in range(count)]
    batch = memoryview(bytearray(build_batch(records)))
    header = parse_header(batch)
    plain = least_us(lambda: validate(batch, 0, header, latest_timestamp_ms=now_ms))
    deep = least_us(lambda: validate(batch, 0, header, latest_timestamp_ms=now_ms, deep=True))
    cost = (deep - plain) * 1e3 / len(batch)
    walk = f"the walk {deep - plain:.1f} us, {cost:.3f} ns/byte"
    print(f"{count:6} records of {size_bytes:4} bytes: checked {plain:5.1f} us, {walk}")
    return cost


def broker_seconds(broker: TemporaryBroker, topic: str, record: bytes, total_bytes: int) -> float:
    """Processor time of the broker for so many bytes, and until all are acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": broker.address,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.kbytes": 200_000,
            "queue.buffering.max.messages": 10_000_000,
        }
    )
    before = broker.cpu_seconds()
    for number in range(total_bytes // len(record)):
        while True:
            try:
                producer.produce(topic, record)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()
    return broker.cpu_seconds() - before


def compare(
    broker: TemporaryBroker, record_bytes: int, total_bytes: int, rounds: int, walk: float
) -> None:
    record = bytes(record_bytes)
    costs: dict[str, list[float]] = {WALKED: [], RELAXED: []}
    for place in range(rounds + 1):
        for topic in (WALKED, RELAXED) if place % 2 else (RELAXED, WALKED):
            seconds = broker_seconds(broker, topic, record, total_bytes)
            if place:  # The first round warms up.
                costs[topic].append(seconds * 1e9 / total_bytes)
    walked, relaxed = median(costs[WALKED]), median(costs[RELAXED])
    ratios = f"{1 - walk / walked:.3f}, {relaxed / walked:.2f}"
    broker_costs = f"a broker {walked:.2f} ns/byte, without the walk {relaxed:.2f}"
    print(f"records of {record_bytes} bytes: {broker_costs}; ratios {ratios}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    walks = {size_bytes: walk_cost(count, size_bytes) for count, size_bytes in SHAPES}
    with temporary_broker(["tiering.enabled=false"]) as broker:
        admin = AdminClient({"bootstrap.servers": broker.address})
        relaxed = {"stratalog.accept.undecodable.batches": "true"}
        for created in admin.create_topics(
            [NewTopic(WALKED, 4), NewTopic(RELAXED, 4, config=relaxed)]
        ).values():
            created.result()
        for record_bytes, walk in walks.items():
            compare(broker, record_bytes, options.megabytes * 1_000_000, options.rounds, walk)


if __name__ == "__main__":
    main()
