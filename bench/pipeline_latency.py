"""How long a produce takes while the pipeline runs, as a ratio to how long it takes without.

Run: python -m bench.pipeline_latency [--size-mib 2048] [--window-ms 50] [--rounds 3]

A broker on a local folder and SQLite acknowledges one small record after the other. Three times
take turns: nothing else happens; `stratalog pipeline run` works in processes of its own on the same
folder and the same machine, from the start of its JVM to its end, as fast as it can; and so it does
again, but gently, as a pipeline beside a broker does. Each run has a new topic to convert, which
was filled before the clock started. Each ratio compares percentiles over all rounds, and may be
1.3 at the most beside a broker.
All processes share the machine in this measurement, the producer included: with two cores and
a pipeline that may use both, this is as bad as it gets.
"""

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from bench.figures import percentiles
from bench.pipeline_load import MIB, Filling, folder_settings, opened, usual_batches
from confluent_kafka import Producer

from stratalog.settings import TieringSettings

RECORD_BYTES = 100
BLOCK_BYTES = 8 * MIB
PARTITIONS = 50
CEILING = 1.3
ADDRESS = re.compile(r"Stratalog is up on (\S+),")


class Latency:
    """One producer, which sends a record when the one before it is acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            # Without its messages about a broker that was stopped.
            {"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all", "log_level": 0}
        )
        self._send()

    def measure(self, goes_on: Callable[[int], bool]) -> list[float]:
        """Milliseconds from `produce` to the acknowledgement, of each record."""
        times: list[float] = []
        while goes_on(len(times)):
            started = time.perf_counter()
            self._send()
            times.append((time.perf_counter() - started) * 1000)
        return times

    def _send(self) -> None:
        self._producer.produce("latency", os.urandom(RECORD_BYTES))
        self._producer.flush()


@contextmanager
def broker_on(folder: Path, *overrides: str) -> Iterator[str]:
    """A broker whose data outlives it. Gives its address."""
    command = [sys.executable, "-m", "stratalog.cli.main", "up", "--listen", "127.0.0.1:0"]
    command += ["--data", str(folder)]
    for override in overrides:
        command += ["--set", override]
    # Its log goes to a file: no reader empties a pipe meanwhile, and a full pipe would stop it.
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        yield next(found[1] for line in process.stdout if (found := ADDRESS.search(line)))
    finally:
        process.terminate()
        process.communicate()


async def fill(folder: Path, size_bytes: int) -> str:
    """A topic with something to convert. Returns its name."""
    name = f"aged-{uuid4().hex[:8]}"
    async with opened(folder_settings(folder, TieringSettings())) as (control, store):
        topic = await control.topics.create(name, partition_count=PARTITIONS, configs={})
        await Filling(control, store, topic, usual_batches()).fill(size_bytes, BLOCK_BYTES)
    os.sync()
    return name


def start_pipeline(folder: Path, topic: str, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "stratalog.cli.main", "pipeline", "run", *options]
    command += ["--data", str(folder), "--topic", topic]
    command += ["--set", "tiering.age_ms=0", "--set", "tiering.min_segment_bytes=1MiB"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def while_running(latency: Latency, folder: Path, size_bytes: int, *options: str) -> list[float]:
    """The latencies while a run converts so much."""
    topic = asyncio.run(fill(folder, size_bytes))
    process = start_pipeline(folder, topic, *options)
    times = latency.measure(lambda _: process.poll() is None)
    told, _ = process.communicate()
    assert process.returncode == 0, told
    [moved] = [line for line in told.splitlines() if line.startswith("moved")]
    print(f"  {moved}")
    return times


def measure(options: argparse.Namespace, folder: Path) -> dict[str, list[float]]:
    size_bytes = options.size_mib * MIB
    window = f"block.window_ms={options.window_ms}"
    with broker_on(folder, window, "tiering.enabled=false") as address:
        latency = Latency(address)
        sides: dict[str, Callable[[], list[float]]] = {
            "without": lambda: latency.measure(lambda count: count < options.records),
            "pipeline": lambda: while_running(latency, folder, size_bytes),
            "gently": lambda: while_running(latency, folder, size_bytes, "--gently"),
        }
        times: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(options.rounds):
            for name, side in sides.items():
                found = side()
                times[name] += found
                print(f"round {number + 1}: {told(name, found)}", flush=True)
    return times


def told(name: str, times: Sequence[float]) -> str:
    p50, p99 = percentiles(times)
    return f"{name:8} p50 {p50:6.1f} ms, p99 {p99:6.1f} ms, {len(times)} records"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size-mib", type=int, default=2048, help="converted by each run")
    parser.add_argument("--window-ms", type=int, default=50)
    parser.add_argument("--records", type=int, default=200, help="of a round without the pipeline")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to write; otherwise a temporary one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        times = measure(options, Path(temporary))
    print("all rounds:")
    base = percentiles(times["without"])
    for name, found in times.items():
        ratios = [one / other for one, other in zip(percentiles(found), base, strict=True)]
        print(f"  {told(name, found)}: ratios {ratios[0]:.2f} and {ratios[1]:.2f}")
    print(f"ratios of at most {CEILING} are wanted of those that go gently")


if __name__ == "__main__":
    main()
