"""Counts the files and functions that one produce and one fetch run through in a broker.

Run: python -m tools.trace_walks
Another tree: PYTHONPATH=<tree>/src python tools/trace_walks.py
"""

import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

import stratalog
from stratalog.testing import Broker

SOURCE = str(Path(stratalog.__file__).parent)
TOPIC = "walks"
WALKS = 10
QUIET: dict[str, Any] = {"log_level": 0}


class Trace:
    """The functions of the package that were called while the trace was on."""

    def __init__(self) -> None:
        self.is_on = False
        self.calls: set[tuple[str, str]] = set()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if self.is_on and event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            path = frame.f_code.co_filename[len(SOURCE) + 1 :]
            self.calls.add((path, frame.f_code.co_qualname))

    def of(self, walk: Callable[[], None]) -> set[tuple[str, str]]:
        """Return the file and the name of every function that is called during a walk."""
        self.calls = set()
        self.is_on = True
        walk()
        self.is_on = False
        return self.calls


def report(name: str, calls: set[tuple[str, str]]) -> None:
    files = {path for path, _ in calls}
    rooms = {path.partition("/")[0] for path in files if "/" in path}
    numbers = f"{len(rooms)}, {len(files)}, {len(calls)}"
    print(f"| one {name}: rooms, files, functions | {numbers} |")


def produce(producer: Producer) -> None:
    producer.produce(TOPIC, b"hello", partition=0)
    assert producer.flush(20) == 0


def fetch(consumer: Consumer) -> None:
    message = consumer.poll(20)
    assert message is not None
    assert message.error() is None


def main() -> None:
    trace = Trace()
    threading.setprofile(trace)
    with Broker() as broker:
        clients = {"bootstrap.servers": broker.bootstrap, **QUIET}
        producer = Producer({**clients, "enable.idempotence": False})
        measure("produce", trace, lambda: produce(producer))
        consumer = Consumer({**clients, "group.id": "walks", "fetch.wait.max.ms": 5_000})
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        fetch(consumer)

        def wait_and_fetch() -> None:
            produce(producer)
            fetch(consumer)

        measure("produce and fetch", trace, wait_and_fetch)
        consumer.close()


def measure(name: str, trace: Trace, walk: Callable[[], None]) -> None:
    """Report the functions that every walk calls, so that work beside it does not count.

    An earlier walk, which is not counted, creates the topic and fills caches.
    """
    walk()
    report(name, set.intersection(*(trace.of(walk) for _ in range(WALKS))))


if __name__ == "__main__":
    main()
