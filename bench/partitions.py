"""How the cost of a batch grows with the number of partitions.

Run: python -m bench.partitions [--batches 20000] [--partitions 10 100 1000 10000]

The same number of one-record batches, spread over ever more partitions. The cost is the processor
time of the broker, its SQLite control plane included, per batch. The ratio is to the first.
"""

import argparse

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from stratalog.cli.bench import TemporaryBroker, temporary_broker

RECORD = bytes(100)


def produce(producer: Producer, topic: str, batches: int, partitions: int) -> None:
    for number in range(batches):
        producer.produce(topic, RECORD, partition=number % partitions)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()


def cost_us(broker: TemporaryBroker, batches: int, partitions: int) -> float:
    """Microseconds of processor time per batch."""
    topic = f"spread-{partitions}"
    admin = AdminClient({"bootstrap.servers": broker.address})
    for created in admin.create_topics([NewTopic(topic, partitions)]).values():
        created.result()
    producer = Producer(
        {
            "bootstrap.servers": broker.address,
            "batch.num.messages": 1,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    produce(producer, topic, max(batches // 4, partitions), partitions)
    before = broker.cpu_seconds()
    produce(producer, topic, batches, partitions)
    return (broker.cpu_seconds() - before) / batches * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=20_000)
    parser.add_argument("--partitions", type=int, nargs="+", default=[10, 100, 1000, 10_000])
    options = parser.parse_args()
    first: float | None = None
    print("partitions   cost per batch   ratio")
    for partitions in options.partitions:
        with temporary_broker() as broker:
            cost = cost_us(broker, options.batches, partitions)
        first = first or cost
        print(f"{partitions:10}   {cost:11.1f} us   {cost / first:5.2f}", flush=True)


if __name__ == "__main__":
    main()
