"""The wait for an acknowledgement while the broker's event loop is never idle.

Run: python -m bench.starvation [--seconds 10] [--rounds 3] [--connections 4] [--window-ms 5]

Uploads and commits run on threads, which need the interpreter's lock again after each call to the
system. A loop that is always busy gives the lock back late. Other clients keep the loop busy with
small requests, more at a time than it can answer, while one producer sends one record after the
other. Two brokers take turns: one whose threads ask for the lock as early as `stratalog.threads`
says, and one with the interpreter's own interval. The same producer is measured alone, too.
"""

import argparse
import itertools
import multiprocessing
import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench.figures import percentiles
from confluent_kafka import Producer

from stratalog.cli.bench import TemporaryBroker, temporary_broker

RECORD_BYTES = 1024
API_VERSIONS = 18
REQUESTS_AT_ONCE = 2
LATE = (
    "-c",
    "import sys; from stratalog import threads; threads.SWITCH_SECONDS = sys.getswitchinterval();"
    "from stratalog.cli.main import run; run()",
)
"""A broker as Python's own interval would have it."""
PROGRAMS = {"early": ("-m", "stratalog.cli.main"), "late": LATE}


def ask_for_ever(host: str, port: int) -> None:
    """Keep some small requests unanswered all the time."""
    body = struct.pack(">hhih", API_VERSIONS, 0, 1, -1)
    request = struct.pack(">i", len(body)) + body
    with socket.create_connection((host, port)) as connection:
        answers = connection.makefile("rb")
        connection.sendall(request * REQUESTS_AT_ONCE)
        while True:
            (size,) = struct.unpack(">i", answers.read(4))
            answers.read(size)
            connection.sendall(request)


@contextmanager
def busy_loop(address: str, connections: int) -> Iterator[None]:
    host, _, port = address.rpartition(":")
    clients = [
        multiprocessing.Process(target=ask_for_ever, args=(host, int(port)), daemon=True)
        for _ in range(connections)
    ]
    for client in clients:
        client.start()
    try:
        yield
    finally:
        for client in clients:
            client.kill()
            client.join()


def acknowledged_ms(producer: Producer, seconds: float) -> list[float]:
    """Milliseconds from `produce` to the acknowledgement, one record after the other."""
    times = []
    end = time.perf_counter() + seconds
    while (started := time.perf_counter()) < end:
        producer.produce("starvation", os.urandom(RECORD_BYTES))
        producer.flush()
        times.append((time.perf_counter() - started) * 1000)
    return times


class Side:
    """One of the brokers, its producer, and the waits of that producer."""

    def __init__(self, broker: TemporaryBroker) -> None:
        self.broker = broker
        self._producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0})
        self.waits: dict[str, list[float]] = {"idle": [], "busy": []}
        acknowledged_ms(self._producer, 1)

    def measure(self, seconds: float, connections: int) -> float:
        """Return the share of a core that the broker used while its loop was busy."""
        self.waits["idle"] += acknowledged_ms(self._producer, seconds)
        with busy_loop(self.broker.address, connections):
            before, started = self.broker.cpu_seconds(), time.perf_counter()
            self.waits["busy"] += acknowledged_ms(self._producer, seconds)
            used = self.broker.cpu_seconds() - before
            return used / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10, help="of each run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--window-ms", type=int, default=5)
    options = parser.parse_args()
    with ExitStack() as stack:
        overrides = [f"block.window_ms={options.window_ms}"]
        sides = {
            name: Side(stack.enter_context(temporary_broker(overrides, program=program)))
            for name, program in PROGRAMS.items()
        }
        for number, (name, side) in itertools.product(range(options.rounds), sides.items()):
            used = side.measure(options.seconds, options.connections)
            print(f"round {number + 1}: lock asked for {name}, {used:.2f} of a core", flush=True)
    for name, side in sides.items():
        for loop, times in side.waits.items():
            middle, late = percentiles(times)
            print(
                f"lock asked for {name:5} loop {loop}: {len(times):6} records, "
                f"p50 {middle:7.1f} ms, p99 {late:7.1f} ms, longest {max(times):7.1f} ms"
            )


if __name__ == "__main__":
    main()
