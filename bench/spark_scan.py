"""How fast Spark gets the rows of a topic, as a ratio to what it gets from memory at the most.

Run: python -m bench.spark_scan [--records 2000000] [--value-bytes 100] [--rounds 5] [--cores 2]

Topics of random values lie in a folder, in segments and in blocks. Spark reads all columns and
drops the rows ("noop"). Its ceiling is a data source that has one Arrow batch in memory and gives
parts of it again and again: in as many tasks, as many batches of the same sizes as the topic's.
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

from stratalog.scan.model import ScanColumn, ScanPlan, ScanRequest
from stratalog.scan.open import opened_scanner
from stratalog.scan.place import place_of
from stratalog.scan.read import read_split
from stratalog.settings import Settings
from stratalog.spark import open_session
from stratalog.spark.columns import spark_schema

TOPICS = {"segments": True, "blocks": False}


class Ceiling(DataSource):
    """Batches from memory. Options are a file with one batch, and the batches' rows by task."""

    @classmethod
    def name(cls) -> str:
        return "ceiling"

    def reader(self, schema: StructType) -> "CeilingReader":  # noqa: ARG002
        return CeilingReader(self.options["file"], json.loads(self.options["rows"]))


class CeilingReader(DataSourceReader):
    def __init__(self, file: str, rows: Sequence[Sequence[int]]) -> None:
        self._file, self._rows = file, rows

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(rows) for rows in self._rows]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(self._file) as file:
            batch = pa.ipc.open_stream(file).read_next_batch()
        for rows in partition.value:
            yield batch.slice(0, rows)


async def planned(settings: Settings, topic: str) -> ScanPlan:
    async with opened_scanner(settings) as scanner:
        return await scanner.plan(ScanRequest(topics=[topic]))


def ceiling(spark: SparkSession, settings: Settings, topic: str, file: Path) -> DataFrame:
    """The topic's shape, without its bytes."""
    largest: pa.RecordBatch | None = None
    rows: list[list[int]] = []
    for split in asyncio.run(planned(settings, topic)).splits:
        rows.append([])
        for batch in read_split(split, place_of(settings)):
            rows[-1].append(batch.num_rows)
            if largest is None or batch.num_rows > largest.num_rows:
                largest = batch
    assert largest is not None
    with pa.OSFile(str(file), "wb") as opened, pa.ipc.new_stream(opened, largest.schema) as writer:
        writer.write_batch(largest)
    sizes = [count for task in rows for count in task]
    print(
        f"{topic}: {len(rows)} tasks, {len(sizes)} batches of {statistics.median(sizes):,.0f} rows"
    )
    reader = spark.read.format(Ceiling.name()).schema(spark_schema(tuple(ScanColumn)))
    return reader.options(file=str(file), rows=json.dumps(rows)).load()


def drained(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def sides(
    spark: SparkSession, settings: Settings, topic: str, folder: Path
) -> dict[str, DataFrame]:
    config = folder / "stratalog.toml"
    storage = settings.storage
    config.write_text(f'[storage]\nobjects = "{storage.objects}"\ncontrol = "{storage.control}"\n')
    reader = spark.read.format("stratalog").options(topic=topic, config=str(config))
    return {
        "all columns": reader.load(),
        "ceiling": ceiling(spark, settings, topic, folder / "ceiling.arrow"),
        "offsets": reader.schema("offset bigint").load(),
    }


def seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(frames: dict[str, DataFrame], records: int, rounds: int) -> None:
    took: dict[str, list[float]] = {name: [] for name in frames}
    for number in range(rounds + 1):
        for name, frame in frames.items():
            one = seconds(lambda frame=frame: drained(frame))  # type: ignore[misc]
            if number:
                took[name].append(one)
    best = {name: min(each) for name, each in took.items()}
    for name, one in best.items():
        print(f"  {name:12} {records / one / 1e6:6.2f} M rows/s")
    print(f"  all columns / ceiling: {best['ceiling'] / best['all columns']:.2f} (at least 0.7)")
    print(f"  offsets / all columns: {best['all columns'] / best['offsets']:.2f} (at least 3)")


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
            frames = sides(spark, settings, topic, Path(name))
            measure(frames, load.all_records, options.rounds)
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
