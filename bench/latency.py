"""The wait of a produce beyond its window and its upload.

Run: python -m bench.latency [--records 150] [--window-ms 250]

One record at a time, each alone in its block, against a broker on a local folder and SQLite. The
floor is taken in the same run: the window, and the puts of equally large objects into the same
folder.
"""

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path

from bench.figures import percentiles
from confluent_kafka import Producer

from stratalog.cli.bench import temporary_broker
from stratalog.clock import SystemClock
from stratalog.objects.open import open_store

RECORD_BYTES = 1024


def produce_ms(bootstrap: str, records: int) -> list[float]:
    """Milliseconds from `produce` to the acknowledgement, one record after the other."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    producer.produce("latency", os.urandom(RECORD_BYTES))
    producer.flush()
    times = []
    for _ in range(records):
        started = time.perf_counter()
        producer.produce("latency", os.urandom(RECORD_BYTES))
        producer.flush()
        times.append((time.perf_counter() - started) * 1000)
    return times


async def upload_ms(folder: Path, puts: int) -> list[float]:
    store = open_store(f"file:{folder}", clock=SystemClock())
    times = []
    for number in range(puts):
        started = time.perf_counter()
        await store.put(f"blocks/{number}", [os.urandom(RECORD_BYTES)])
        times.append((time.perf_counter() - started) * 1000)
    await store.close()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=150)
    parser.add_argument("--window-ms", type=int, default=250)
    options = parser.parse_args()
    # Without early blocks, which do not wait for the window.
    settings = [f"block.window_ms={options.window_ms}", "block.requests_per_second=0"]
    with temporary_broker(settings) as broker:
        produced = percentiles(produce_ms(broker.address, options.records))
    with tempfile.TemporaryDirectory() as folder:
        uploaded = percentiles(asyncio.run(upload_ms(Path(folder), options.records)))
    print(f"window {options.window_ms} ms, {options.records} records of {RECORD_BYTES} bytes\n")
    print("        produce    upload   above both")
    for name, latency, upload in zip(("p50", "p99"), produced, uploaded, strict=True):
        above = latency - options.window_ms - upload
        print(f"{name}  {latency:8.1f} ms {upload:6.1f} ms {above:9.1f} ms")


if __name__ == "__main__":
    main()
