"""The rounds of a client with few requests in flight, beside the syncs that each of them waits for.

Run: python -m bench.rounds [--kb 16] [--depth 5] [--seconds 2] [--rounds 5] [--folder PATH]

One sender appends `depth` batches straight to the writer of blocks, waits until all are answered,
and appends them again: no client, no connection, no parsing. The store is a folder, the control
plane SQLite. The floor is a bare loop on one thread that makes the same bytes durable by the same
system calls: the file of the object, its entry in the folder, and one row in SQLite's log.
The two take turns.
"""

import argparse
import os
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import uvloop
from bench.figures import percentiles

from stratalog.batch.build import build_batch
from stratalog.batch.entry import EntryBatch
from stratalog.batch.header import TimestampType, parse_header
from stratalog.batch.records import Record
from stratalog.block.announced_writer import AnnouncedWriter
from stratalog.block.fresh_blocks import FreshBlocks
from stratalog.block.writer import BlockWriter
from stratalog.clock import SYSTEM_CLOCK
from stratalog.control.open import open_control_plane
from stratalog.control.topics.model import Topic
from stratalog.control.writers.model import WriterKind
from stratalog.ids import BrokerId, PartitionIndex, system_entropy
from stratalog.metrics import Metrics
from stratalog.objects.direct_write import wants_direct, write_direct
from stratalog.objects.open import open_store
from stratalog.settings import BlockSettings
from stratalog.threads import share_the_lock

RECORD_BYTES = 500
SENDER = 1
WARM_UP_ROUNDS = 50


class Figure(NamedTuple):
    p50_ms: float
    p99_ms: float
    cpu_ms: float


class Writer:
    """Rounds through the broker's own writer."""

    def __init__(self, folder: Path, batch_bytes: int, depth: int) -> None:
        self._folder = folder
        self._batch_bytes = batch_bytes
        self._depth = depth

    async def open(self) -> None:
        self._metrics = Metrics()
        self._store = open_store(
            f"file:{self._folder / 'objects'}", clock=SYSTEM_CLOCK, metrics=self._metrics
        )
        self._control = await open_control_plane(f"sqlite:{self._folder / 'control.db'}")
        topic = await self._control.topics.create("bench", partition_count=1, configs={})
        announced = AnnouncedWriter(self._control.writers.new_tag())
        await self._control.writers.announce(announced.tag, WriterKind.BROKER, BrokerId(0))
        self._batches = [_batch(topic, self._batch_bytes) for _ in range(self._depth)]
        self._writer = BlockWriter(
            store=self._store,
            control=self._control,
            cache=FreshBlocks(64 << 20),
            broker_id=lambda: BrokerId(0),
            settings=BlockSettings(),
            clock=SYSTEM_CLOCK,
            entropy=system_entropy,
            metrics=self._metrics,
            on_commit=lambda _: None,
            announced=announced,
        )

    async def round(self) -> None:
        placed = [self._writer.append([batch], SENDER) for batch in self._batches]
        for each in placed:
            await each

    async def close(self) -> None:
        await self._writer.close()
        await self._control.close()
        await self._store.close()


class Bare:
    """The same bytes by the same system calls, one after the other."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        self._temporary = folder / "bare.tmp"
        self._objects = folder / "bare"
        self._objects.mkdir()
        self._data = os.urandom(size_bytes)
        self._count = 0
        self._raw = sqlite3.connect(folder / "bare.db", isolation_level=None)
        self._raw.execute("PRAGMA journal_mode = WAL").fetchone()
        self._raw.execute("PRAGMA synchronous = FULL")
        self._raw.execute("CREATE TABLE bare (number INTEGER PRIMARY KEY, answer BLOB)")

    def round(self) -> None:
        self._count += 1
        descriptor = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        if not (wants_direct(len(self._data)) and write_direct(descriptor, [self._data])):
            os.write(descriptor, self._data)
        os.fsync(descriptor)
        os.close(descriptor)
        os.replace(self._temporary, self._objects / str(self._count))
        entries = os.open(self._objects, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(entries)
        os.close(entries)
        self._raw.execute("INSERT INTO bare VALUES (?, ?)", (self._count, bytes(200)))

    def close(self) -> None:
        self._raw.close()


def _batch(topic: Topic, size_bytes: int) -> EntryBatch:
    count = max(size_bytes // (RECORD_BYTES + 10), 1)
    value = os.urandom(RECORD_BYTES)
    data = build_batch([Record(place, place, None, value) for place in range(count)])
    return EntryBatch(
        topic_id=topic.id,
        topic_name=topic.name,
        partition=PartitionIndex(0),
        timestamp_type=TimestampType.CREATE_TIME,
        header=parse_header(data),
        data=memoryview(bytearray(data)),
    )


async def _measure_writer(writer: Writer, seconds: float) -> Figure:
    times: list[float] = []
    cpu = time.process_time()
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        await writer.round()
        times.append(time.perf_counter() - start)
    return _figure(times, time.process_time() - cpu)


def _measure_bare(bare: Bare, seconds: float) -> Figure:
    times: list[float] = []
    cpu = time.process_time()
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        bare.round()
        times.append(time.perf_counter() - start)
    return _figure(times, time.process_time() - cpu)


def _figure(times_s: list[float], cpu_s: float) -> Figure:
    p50, p99 = percentiles(times_s)
    return Figure(p50 * 1000, p99 * 1000, cpu_s / len(times_s) * 1000)


async def _run(options: argparse.Namespace, folder: Path) -> dict[str, list[Figure]]:
    size_bytes = options.kb * 1000
    writer = Writer(folder, size_bytes, options.depth)
    bare = Bare(folder, size_bytes * options.depth)
    await writer.open()
    figures: dict[str, list[Figure]] = {"the writer": [], "the bare loop": []}
    try:
        for _ in range(WARM_UP_ROUNDS):
            await writer.round()
            bare.round()
        for _ in range(options.rounds):
            figures["the writer"].append(await _measure_writer(writer, options.seconds))
            figures["the bare loop"].append(_measure_bare(bare, options.seconds))
    finally:
        await writer.close()
        bare.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kb", type=int, default=16, help="of each request")
    parser.add_argument("--depth", type=int, default=5, help="requests in flight")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="on the disk to measure")
    options = parser.parse_args()
    share_the_lock()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        figures = uvloop.run(_run(options, Path(folder)))
    for name, found in figures.items():
        p50, p99, cpu = (statistics.median(values) for values in zip(*found, strict=True))
        print(
            f"{name:14} {p50:6.2f} ms p50 {p99:6.2f} ms p99 {cpu:6.2f} ms of the processor a round"
        )


if __name__ == "__main__":
    main()
