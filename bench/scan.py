"""How fast whole topics are read as Arrow batches, in ratios that hold on any machine.

Run: python -m bench.scan [--records 4000000] [--value-bytes 100] [--rounds 3]

Topics of random values lie in a folder, in segments and in blocks, their times spread over a
hundred days. Measured are, as the best of rounds:

- all columns with `stratalog.read`, against pyarrow reading the same columns from Parquet as it
  writes it by default, in batches or as a table, whichever is faster: at least 0.5 of its speed;
- the offsets alone against all columns: at least three times as fast. That holds for batches that
  are compressed (lz4, of hex digits), and through Spark (`bench.spark_scan`). Where nothing is
  compressed, all columns come nearly as fast as memory can be copied, and the bytes of both are
  mapped and their CRCs checked, so that two to three times remain;
- one day of the hundred, by its times: the bytes that planning and reading get from the store,
  indexes included, against the bytes of the day's batches: at most 1.1. A filter with both times is
  measured too, and has no floor: times are the producers' own, so it reads on to the topic's end;
- two processes on one partition that holds all, against the same records spread over sixteen, in
  segments and in blocks: at most 1.2 times as long.

Readers of the same files take turns, and come before readers of other files: a topic of 10 GB is
in memory then, four of them would not be. The first round, which brings them there, does not count.
"""

import argparse
import asyncio
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from bench.scan_load import DAYS, START_MS, Load, make_topic, settings_in

import stratalog
from stratalog.batch.header import Codec
from stratalog.metrics import Metrics
from stratalog.opening.workers import WorkerAccess, WorkerKeys, worker_access
from stratalog.scan.loop_thread import shared_loop_thread
from stratalog.scan.model import (
    AtTime,
    Positions,
    RowFilter,
    ScanColumn,
    ScanPlan,
    ScanRequest,
    ScanSplit,
)
from stratalog.scan.open import opened_scanner
from stratalog.scan.scan_stores import ScanStores
from stratalog.scan.split_reader import read_batch_groups, read_split
from stratalog.settings import DAY_MS, Settings

TOPICS = ("segments", "blocks", "lz4")
PROCESSES = 2
SPREAD = 16
PLACES = {"segments": "", "blocks": ", in blocks"}
"""How lines are marked that are not about segments."""
SKEWED = {"segments": "spread", "blocks": "spread-blocks"}
"""Topics of one partition, and the same of many."""
ROWS_AT_ONCE = 64 * 1024
ROW_GROUP_ROWS = 1024 * 1024
"""pyarrow's defaults for a table."""


def drained(batches: Iterable[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)


def seconds(work: Callable[[], int], expected: int) -> float:
    start = time.perf_counter()
    assert work() == expected
    return time.perf_counter() - start


def write_parquet(settings: Settings, file: Path) -> None:
    """In row groups of the usual size: a batch at a time would be one each, and slow to read."""
    reader = stratalog.read("segments", settings=settings)
    with pq.ParquetWriter(file, reader.schema) as writer:
        held: list[pa.RecordBatch] = []
        for batch in reader:
            held.append(batch)
            if sum(each.num_rows for each in held) >= ROW_GROUP_ROWS:
                writer.write_table(pa.Table.from_batches(held))
                held.clear()
        if held:
            writer.write_table(pa.Table.from_batches(held))


def compare_speeds(settings: Settings, file: Path, records: int, rounds: int) -> None:
    def scan(topic: str, *columns: str) -> Callable[[], int]:
        return lambda: drained(stratalog.read(topic, columns=columns or None, settings=settings))

    def batches() -> int:
        return drained(pq.ParquetFile(file).iter_batches(batch_size=ROWS_AT_ONCE))

    def table() -> int:
        return int(pq.read_table(file).num_rows)

    best = best_of({"Parquet, batches": batches, "Parquet, table": table}, records, rounds)
    for topic in TOPICS:
        sides = {topic: scan(topic), f"{topic}, offsets": scan(topic, "offset")}
        best |= best_of(sides, records, rounds)
    for name, one in best.items():
        print(f"{name:18} {records / one / 1e6:6.2f} M records/s")
    parquet = min(best["Parquet, batches"], best["Parquet, table"])
    for topic in ("segments", "blocks"):
        print(f"{topic} / Parquet: {parquet / best[topic]:.2f} (at least 0.5)")
    for topic in TOPICS:
        ratio = best[topic] / best[f"{topic}, offsets"]
        print(f"{topic}, offsets alone / all columns: {ratio:.2f} (at least 3)")


def best_of(sides: dict[str, Callable[[], int]], records: int, rounds: int) -> dict[str, float]:
    """The seconds that each took, when they took turns."""
    took: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, work in sides.items():
            one = seconds(work, records)
            if number:
                took[name].append(one)
    return {name: min(each) for name, each in took.items()}


async def planned(settings: Settings, metrics: Metrics | None = None, **request: Any) -> ScanPlan:
    async with opened_scanner(settings, metrics=metrics) as scanner:
        return await scanner.plan(ScanRequest(**request))


def bytes_read(metrics: Metrics) -> int:
    return int(
        sum(
            sample.value
            for metric in metrics.registry.collect()
            for sample in metric.samples
            if sample.name == "stratalog_objects_bytes_total"
        )
    )


def measure_one_day(settings: Settings, load: Load) -> None:
    first_ms = START_MS + DAYS // 2 * DAY_MS
    end_ms = first_ms + DAY_MS
    times = range(START_MS, START_MS + load.batches * load.batch_ms, load.batch_ms)
    needed = sum(first_ms <= at < end_ms for at in times) * load.batch_bytes
    positions = {
        "starting": Positions(default=AtTime(first_ms)),
        "ending": Positions(default=AtTime(end_ms)),
    }
    rows = RowFilter(first_timestamp_ms=first_ms, end_timestamp_ms=end_ms)
    for topic, where in PLACES.items():
        ratio = bytes_scanned(settings, topics=[topic], **positions) / needed
        print(f"one day of {DAYS}{where}: {ratio:.3f} times its {needed:,} bytes (at most 1.1)")
        ratio = bytes_scanned(settings, topics=[topic], rows=rows) / needed
        print(f"one day of {DAYS}{where}, by a filter: {ratio:.3f} times its {needed:,} bytes")


def bytes_scanned(settings: Settings, **request: Any) -> int:
    """The bytes that planning and reading get from the store."""
    planning, reading = Metrics(), Metrics()
    plan = asyncio.run(planned(settings, planning, **request))
    background = shared_loop_thread()

    async def opened() -> ScanStores:
        return ScanStores(worker_access(settings, WorkerKeys.OPENING), background, metrics=reading)

    place = background.run(opened())
    for split in plan.splits:
        for _ in read_batch_groups(split, place):
            pass
    background.run(place.close())
    return bytes_read(planning) + bytes_read(reading)


def scan_split(split: ScanSplit, place: WorkerAccess) -> int:
    return drained(read_split(split, place))


def measure_skew(settings: Settings, records: int, rounds: int) -> None:
    best: dict[str, float] = {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, mp_context=context) as pool:
        for topic in (*SKEWED, *SKEWED.values()):
            best |= best_of({topic: partial(scan_all, settings, topic, pool)}, records, rounds)
    for topic, spread in SKEWED.items():
        ratio = best[topic] / best[spread]
        many = f"{SPREAD}{PLACES[topic]}"
        print(f"one partition / {many}, {PROCESSES} processes: {ratio:.2f} (at most 1.2)")


def scan_all(settings: Settings, topic: str, pool: Executor) -> int:
    columns = [ScanColumn.KEY, ScanColumn.VALUE, ScanColumn.OFFSET, ScanColumn.TIMESTAMP]
    plan = asyncio.run(planned(settings, topics=[topic], columns=columns, min_splits=4 * PROCESSES))
    place = worker_access(settings, WorkerKeys.OPENING)
    return sum(pool.map(scan_split, plan.splits, [place] * len(plan.splits)))


def run(options: argparse.Namespace) -> None:
    load = Load(records=options.records, value_bytes=options.value_bytes)
    topics = {
        "segments": load,
        "blocks": load,
        "lz4": replace(load, codec=Codec.LZ4),
        "spread": replace(load, partitions=SPREAD),
        "spread-blocks": replace(load, partitions=SPREAD),
    }
    with tempfile.TemporaryDirectory(prefix="stratalog-bench-") as name:
        folder = Path(name)
        settings = settings_in(folder)
        for topic, what in topics.items():
            in_segments = not topic.endswith("blocks")
            asyncio.run(make_topic(settings, topic, what, segments=in_segments))
        write_parquet(settings, folder / "topic.parquet")
        print(f"{load.all_records:,} records of {load.value_bytes} bytes")
        compare_speeds(settings, folder / "topic.parquet", load.all_records, options.rounds)
        measure_one_day(settings, load)
        measure_skew(settings, load.all_records, options.rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    run(parser.parse_args())


if __name__ == "__main__":
    main()
