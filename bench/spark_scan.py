"""The speed of a topic's rows in Spark, as a ratio to the most that Spark takes from memory.

Run: python -m bench.spark_scan [--records 2000000] [--value-bytes 100] [--rounds 5] [--cores 2]

Topics of random values lie in a folder, in segments and in blocks. Spark reads all columns and
drops the rows ("noop"). Its ceiling is a data source that has Arrow batches in memory, more than a
processor caches, and gives them again and again: as many, of the same sizes, in as many tasks.
The sides take turns, the first round does not count, and ratios are of each side's best. At least
0.7 of the ceiling's speed is asked for; and of the offsets alone, three times the speed of all
columns. `--java-options` are for the JVM.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from bench.scan_load import Load, make_topic, settings_in
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from stratalog.opening.workers import WorkerKeys, worker_access
from stratalog.scan.model import ScanColumn, ScanPlan, ScanRequest
from stratalog.scan.open import opened_scanner
from stratalog.scan.schema import arrow_schema
from stratalog.scan.split_reader import read_split
from stratalog.settings import Settings
from stratalog.spark import open_session
from stratalog.spark.columns import spark_schema

HELD_BYTES = 256 * 1024 * 1024
TOPICS = {"segments": True, "blocks": False}


class Ceiling(DataSource):
    """Batches from memory. Options are a file of batches, and which of them each task gives."""

    @classmethod
    def name(cls) -> str:
        return "ceiling"

    def reader(self, schema: StructType) -> "CeilingReader":  # noqa: ARG002
        return CeilingReader(self.options["file"], json.loads(self.options["tasks"]))


class CeilingReader(DataSourceReader):
    def __init__(self, file: str, tasks: Sequence[Sequence[int]]) -> None:
        self._file, self._tasks = file, tasks

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(task) for task in self._tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(self._file) as memory:
            batches = pa.ipc.open_file(memory)
            for number in partition.value:
                yield batches.get_batch(number)


async def planned(settings: Settings, topic: str) -> ScanPlan:
    async with opened_scanner(settings) as scanner:
        return await scanner.plan(ScanRequest(topics=[topic]))


def ceiling(
    spark: SparkSession, settings: Settings, topic: str, file: Path
) -> tuple[DataFrame, int]:
    """As many tasks as the topic has, which give the batches of the first ones again and again;
    and how many rows that is."""
    splits = asyncio.run(planned(settings, topic)).splits
    held: list[list[int]] = []
    rows: list[int] = []
    held_bytes = 0
    schema = arrow_schema(tuple(ScanColumn))
    with pa.OSFile(str(file), "wb") as opened, pa.ipc.new_file(opened, schema) as writer:
        for split in splits:
            if held_bytes >= HELD_BYTES:
                break
            held.append([])
            for batch in read_split(split, worker_access(settings, WorkerKeys.OPENING)):
                held[-1].append(len(rows))
                rows.append(batch.num_rows)
                held_bytes += batch.nbytes
                writer.write_batch(batch)
    print(f"{topic}: {len(splits)} tasks, batches of {statistics.median(rows):,.0f} rows")
    tasks = [held[number % len(held)] for number in range(len(splits))]
    reader = spark.read.format(Ceiling.name()).schema(spark_schema(tuple(ScanColumn)))
    frame = reader.options(file=str(file), tasks=json.dumps(tasks)).load()
    return frame, sum(rows[number] for task in tasks for number in task)


def drained(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def sides(
    spark: SparkSession, settings: Settings, topic: str, load: Load, folder: Path
) -> dict[str, tuple[DataFrame, int]]:
    """A read, and its number of rows."""
    config = folder / "stratalog.toml"
    storage = settings.storage
    config.write_text(f'[storage]\nobjects = "{storage.objects}"\ncontrol = "{storage.control}"\n')
    reader = spark.read.format("stratalog").options(topic=topic, config=str(config))
    given, rows = ceiling(spark, settings, topic, folder / "ceiling.arrow")
    return {
        "all columns": (reader.load(), load.all_records),
        "ceiling": (given, rows),
        "offsets": (reader.schema("offset bigint").load(), load.all_records),
    }


def seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(frames: dict[str, tuple[DataFrame, int]], rounds: int) -> None:
    took: dict[str, list[float]] = {name: [] for name in frames}
    for number in range(rounds + 1):
        for name, (frame, _) in frames.items():
            one = seconds(lambda frame=frame: drained(frame))  # type: ignore[misc]
            if number:
                took[name].append(one)
    speeds = {name: rows / min(took[name]) for name, (_, rows) in frames.items()}
    for name, speed in speeds.items():
        print(f"  {name:12} {speed / 1e6:6.2f} M rows/s")
    print(
        f"  all columns / ceiling: {speeds['all columns'] / speeds['ceiling']:.2f} (at least 0.7)"
    )
    print(f"  offsets / all columns: {speeds['offsets'] / speeds['all columns']:.2f} (at least 3)")


def run(options: argparse.Namespace) -> None:
    load = Load(records=options.records, value_bytes=options.value_bytes)
    print(f"{load.all_records:,} records of {load.value_bytes} bytes")
    conf = {"spark.driver.extraJavaOptions": options.java_options}
    spark = open_session(f"local[{options.cores}]", conf=conf)
    spark.dataSource.register(Ceiling)
    for topic, in_segments in TOPICS.items():
        # One at a time, so that there is memory to keep the topic's bytes in.
        with tempfile.TemporaryDirectory(prefix="stratalog-bench-") as name:
            settings = settings_in(Path(name))
            asyncio.run(make_topic(settings, topic, load, segments=in_segments))
            measure(sides(spark, settings, topic, load, Path(name)), options.rounds)
    spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--java-options", default="")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
