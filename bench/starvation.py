"""The wait for an acknowledgement while the broker's event loop is never idle.

Run: python -m bench.starvation [--seconds 20] [--connections 4] [--window-ms 5]

Uploads and commits run on threads, which need the interpreter's lock again after each call to the
system. A loop that is always busy gives the lock back late. Other clients keep the loop busy with
small requests, more at a time than it can answer, while one producer sends one record after the
other. The same producer is measured alone first.
"""

import argparse
import multiprocessing
import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.figures import percentiles
from confluent_kafka import Producer

from stratalog.cli.bench import temporary_broker

RECORD_BYTES = 1024
API_VERSIONS = 18
REQUESTS_AT_ONCE = 2


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--window-ms", type=int, default=5)
    options = parser.parse_args()
    with temporary_broker([f"block.window_ms={options.window_ms}"]) as broker:
        producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0})
        acknowledged_ms(producer, 1)
        waits = {"idle": acknowledged_ms(producer, options.seconds)}
        before, started = broker.cpu_seconds(), time.perf_counter()
        with busy_loop(broker.address, options.connections):
            waits["busy"] = acknowledged_ms(producer, options.seconds)
        used = (broker.cpu_seconds() - before) / (time.perf_counter() - started)
    for name, times in waits.items():
        middle, late = percentiles(times)
        print(
            f"loop {name}: {len(times):6} records, p50 {middle:7.1f} ms, p99 {late:7.1f} ms, "
            f"longest {max(times):7.1f} ms"
        )
    print(f"the broker used {used:.2f} of a core while its loop was busy")


if __name__ == "__main__":
    main()
