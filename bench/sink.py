"""How fast `df.write` puts rows into a topic, as a ratio to Spark's own Parquet writer.

Run: python -m bench.sink [--rows 2000000] [--value-bytes 100] [--rounds 3] [--cores 2]

The same DataFrame, cached, is written in turn as Parquet (snappy, Spark's default) and into topics
of 8 partitions on the same disk, by key, with the default compression and with none. A write counts
from `save()` to its return: for a topic that includes the uploads, synced, and the commit. The
bytes of keys and values are counted. Noop is the time that Spark takes to make the rows and drop
them.
"""

import argparse
import asyncio
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from stratalog.control.open import open_control_plane
from stratalog.pipeline.hosting.session import open_session
from stratalog.spark.session import session_options

PARTITIONS = 8
KEY_BYTES = 16


def rows(spark: SparkSession, count: int, value_bytes: int, cores: int) -> DataFrame:
    """Keys of 16 bytes, and values of which half is hex digits that hardly shrink."""
    digits = f"repeat(md5(CAST(id AS STRING)), {-(-value_bytes // 64)})"
    value = f"rpad(left({digits}, {value_bytes // 2}), {value_bytes}, 'status=shipped;')"
    key = f"lpad(CAST(id % 100000 AS STRING), {KEY_BYTES}, '0')"
    return spark.range(0, count, 1, cores).selectExpr(f"{key} AS key", f"{value} AS value")


def new_topic(folder: Path) -> str:
    name = f"bench-{uuid4().hex[:8]}"

    async def create() -> None:
        control = await open_control_plane(f"sqlite:{folder}/control.db")
        await control.topics.create(name, partition_count=PARTITIONS, configs={})
        await control.close()

    asyncio.run(create())
    return name


def writes(frame: DataFrame, folder: Path, config: Path) -> dict[str, Callable[[], None]]:
    def parquet() -> None:
        frame.write.mode("overwrite").parquet(str(folder / "parquet"))

    def noop() -> None:
        frame.write.mode("overwrite").format("noop").save()

    def topic(**options: str) -> None:
        options = {"topic": new_topic(folder), "config": str(config), **options}
        frame.write.mode("append").format("stratalog").options(**options).save()

    return {
        "parquet": parquet,
        "noop": noop,
        "topic": topic,
        "topic, uncompressed": lambda: topic(compression="none"),
        "topic, sinkId": lambda: topic(sinkId=uuid4().hex),
    }


def timed(write: Callable[[], None]) -> float:
    started = time.perf_counter()
    write()
    return time.perf_counter() - started


def measure(frame: DataFrame, size_bytes: int, folder: Path, how: argparse.Namespace) -> None:
    config = folder / "stratalog.toml"
    config.write_text(
        f'[storage]\nobjects = "file:{folder}/objects"\ncontrol = "sqlite:{folder}/control.db"\n'
    )
    sides = writes(frame, folder, config)
    for write in sides.values():
        write()
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(how.rounds):
        for name, write in sides.items():
            shutil.rmtree(folder / "objects", ignore_errors=True)
            seconds[name].append(timed(write))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    for name, median in medians.items():
        print(
            f"{name:20} {how.rows / median / 1e6:6.2f} M rows/s {size_bytes / median / 1e6:6.0f}"
            f" MB/s   ratio to parquet {medians['parquet'] / median:.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    how = parser.parse_args()
    conf = {"spark.driver.memory": "2g"}
    options = session_options(f"local[{how.cores}]", app_name="sink", conf=conf, ui=False)
    with tempfile.TemporaryDirectory() as name, open_session(options) as opened:
        spark = opened.session
        # A write looks for its data source in the session that is active in this thread.
        classic = getattr(spark._jvm, "org.apache.spark.sql.classic.SparkSession")
        classic.setActiveSession(spark._jsparkSession)
        frame = rows(spark, how.rows, how.value_bytes, how.cores).cache()
        frame.count()
        measure(frame, how.rows * (KEY_BYTES + how.value_bytes), Path(name), how)


if __name__ == "__main__":
    main()
