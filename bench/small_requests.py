"""How many small requests a broker takes, beside the fastest thing that answers them.

Run: python -m bench.small_requests [--producers 20] [--records 2000] [--rounds 3]

librdkafka producers, all in one process, that put every record of 100 bytes into a request of its
own (linger.ms=0, batch.num.messages=1), acks=all; to a broker with durable blocks in a local
folder, and to librdkafka's mock cluster, which keeps batches in the memory of its client. They
take turns; the ratio is that of the medians. The broker's processor time per request is printed
beside it, because the clients share the machine with it.
"""

import argparse
import statistics
import time
from uuid import uuid4

from confluent_kafka import KafkaError, Message, Producer

from stratalog.cli.bench import temporary_broker
from stratalog.cli.bench_client import PARTITIONS

RECORD = bytes(100)
CONNECT_SECONDS = 5.0


def producer_of(bootstrap: str, **more: str | int) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 0,
            "batch.num.messages": 1,
            "queue.buffering.max.messages": 1_000_000,
            "delivery.report.only.error": True,
            "on_delivery": _on_failure,
            "log_level": 0,
            **more,
        }
    )


def _on_failure(error: KafkaError | None, _message: Message) -> None:
    raise SystemExit(f"a record was not stored: {error}")


def send(producers: list[Producer], topic: str, records: int) -> None:
    """Every producer's records in turn over all partitions, until the last is acknowledged."""
    for number in range(records):
        for producer in producers:
            producer.produce(topic, RECORD, partition=number % PARTITIONS)
    for producer in producers:
        producer.flush()


def requests_per_second(bootstrap: str, producers: int, records: int) -> float:
    topic = f"small-{uuid4().hex[:8]}"
    clients = [producer_of(bootstrap) for _ in range(producers)]
    send(clients, topic, PARTITIONS)  # The first record creates the topic on both sides.
    started = time.perf_counter()
    send(clients, topic, records)
    return producers * records / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--producers", type=int, default=20)
    parser.add_argument("--records", type=int, default=2000, help="of each producer")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    mock = producer_of("mock", **{"test.mock.num.brokers": 1})
    (mocked,) = mock.list_topics(timeout=CONNECT_SECONDS).brokers.values()
    rates: dict[str, list[float]] = {"mock": [], "broker": []}
    # Warm-ups are requests, too.
    asked = (options.records + PARTITIONS) * options.producers * options.rounds
    with temporary_broker([f"broker.default_partitions={PARTITIONS}"]) as broker:
        sides = {"mock": f"{mocked.host}:{mocked.port}", "broker": broker.address}
        cpu_before = broker.cpu_seconds()
        for number in range(options.rounds):
            for name, address in sides.items():
                rate = requests_per_second(address, options.producers, options.records)
                rates[name].append(rate)
                print(f"round {number + 1}: {name:6} {rate:7.0f} requests/s", flush=True)
        cost_us = (broker.cpu_seconds() - cpu_before) / asked * 1e6
    ratio = statistics.median(rates["broker"]) / statistics.median(rates["mock"])
    print(f"ratio {ratio:.2f}, {cost_us:.0f} us of the broker's processor time per request")


if __name__ == "__main__":
    main()
