"""librdkafka's mock cluster in a process of its own: prints its address, and stays."""

import signal

from confluent_kafka import Producer


def main() -> None:
    owner = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = owner.list_topics(timeout=5).brokers.values()
    print(f"{broker.host}:{broker.port}", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
