"""A stream that copies one topic into another, killed again and again, with all its processes.

Kills by chance, more than the tests have time for: python -m tests.faults.stream_kills --rounds 20
"""

import argparse
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pyarrow as pa
from pyspark.sql import SparkSession
from tests.support.sink_topics import PARTITIONS, TOPIC, SinkLake

import stratalog
from stratalog.control.plane import ControlPlane
from stratalog.objects.store import ObjectStore
from stratalog.scan.scan_stores import close_scan_stores

COPIES = "copies"
ROWS = 200
PER_BATCH = 40
CUSTOMERS = 7
LIMIT_SECONDS = 240
POINTS = (
    "before the offset log",
    "planned",
    "reading",
    "uploaded",
    "before the commit",
    "after the commit",
)
_ROOT = Path(__file__).parents[2]
_DOOMING = Path(__file__).with_name("dooming")


def copy(spark: SparkSession, config: str, checkpoint: str) -> None:
    """Copy all present records, in small batches."""
    stream = spark.readStream.format("stratalog").option("topic", TOPIC).option("config", config)
    rows = (
        stream.option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", PER_BATCH)
        .option("minPartitions", 2 * PARTITIONS)
        .load()
        .select("key", "value")
    )
    query = (
        rows.writeStream.format("stratalog")
        .options(topic=COPIES, config=config, sinkId="copy", checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


@dataclass
class Copying:
    """Two topics and a checkpoint, and the runs of a query that are cut off."""

    lake: SinkLake
    folder: Path
    kills: list[str] = field(default_factory=list)

    @classmethod
    def make(cls, folder: Path) -> "Copying":
        lake = SinkLake.make(folder)

        async def create(control: ControlPlane, _: ObjectStore) -> None:
            await control.topics.create(COPIES, partition_count=3, configs={})

        lake.run(create)
        copying = cls(lake, folder)
        for first in range(0, ROWS, 10):
            copying.add(first, first + 10)
        return copying

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def add(self, first: int, end: int) -> None:
        writer = self.lake.writer()
        numbers = range(first, end)
        rows = pa.RecordBatch.from_pydict(
            {
                "key": [b"c%d" % (number % CUSTOMERS) for number in numbers],
                "value": [b"%d" % number for number in numbers],
            }
        )
        writer.commit([writer.write(iter([rows]))])

    def run_killed(self, point: str, times: int = 1) -> None:
        """Run the query until it comes to the point so many times, which is its end."""
        counter = self.folder / f"count-{len(self.kills)}"
        process = self._start({"DOOMED_AT": f"{point}:{times}:{counter}"})
        assert process.wait(LIMIT_SECONDS) == -signal.SIGKILL, f"it did not come to {point!r}"
        self.kills.append(point)

    def run_for(self, seconds: float) -> None:
        """Run the query for so long at most."""
        process = self._start({})
        try:
            assert process.wait(seconds) == 0
            self.kills.append("not at all")
        except subprocess.TimeoutExpired:
            end_session(process.pid)
            process.wait()
            self.kills.append(f"{seconds:.1f} s")

    def _start(self, environment: dict[str, str]) -> "subprocess.Popen[bytes]":
        path = os.pathsep.join([str(_DOOMING), str(_ROOT), os.environ.get("PYTHONPATH", "")])
        arguments = ["--copy", str(self.lake.config), str(self.checkpoint)]
        return subprocess.Popen(
            [sys.executable, "-m", "tests.faults.stream_kills", *arguments],
            cwd=_ROOT,
            env={**os.environ, "PYTHONPATH": path, **environment},
            start_new_session=True,
        )

    def logged(self, log: str) -> list[int]:
        """The batches in the checkpoint's `offsets` or `commits`."""
        names = (file.name for file in (self.checkpoint / log).glob("[0-9]*"))
        return sorted(int(name) for name in names if name.isdigit())

    def copied(self) -> int:
        return sum(self.lake.high_watermarks(COPIES))

    def move(self) -> None:
        """Make segments of everything; delete the blocks, and the uploads that no commit has
        named."""
        for partition in range(3):
            self.lake.convert(COPIES, partition)
        self.lake.merge_all()
        self.lake.sweep()

    def check(self) -> None:
        """Each row is there once; the rows of a customer are in one partition, and in order."""
        table = stratalog.read(COPIES, settings=self.lake.settings).read_all()
        close_scan_stores()
        values = [int(value) for value in table["value"].to_pylist()]
        assert sorted(values) == list(range(ROWS)), f"after kills {self.kills}"
        keys = table["key"].to_pylist()
        places: dict[bytes, set[int]] = defaultdict(set)
        last: dict[bytes, int] = {}
        for key, value, place in zip(keys, values, table["partition"].to_pylist(), strict=True):
            places[key].add(place)
            assert last.get(key, -1) < value, f"{value} comes after {last[key]}"
            last[key] = value
        assert all(len(some) == 1 for some in places.values())
        assert self.lake.is_sound()


def end_session(session: int) -> None:
    """Kill all processes of it, whichever groups they are in."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getsid(int(entry.name)) == session:
                    os.kill(int(entry.name), signal.SIGKILL)
            except ProcessLookupError:
                pass


def kill_by_chance(folder: Path, random: Random, rounds: int) -> None:
    copying = Copying.make(folder)
    for _ in range(rounds):
        if random.random() < 0.5 and copying.copied() < ROWS - 2 * PER_BATCH:
            copying.run_killed(random.choice(POINTS), random.choice([1, 1, 2]))
        else:
            copying.run_for(random.uniform(5, 25))
        if random.random() < 0.5:
            copying.move()
        print(f"killed: {copying.kills[-1]}; {copying.copied()} of {ROWS} rows", flush=True)
        if copying.kills[-1] == "not at all":
            break
    copying.run_for(LIMIT_SECONDS)
    copying.check()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--copy", nargs=2, metavar=("CONFIG", "CHECKPOINT"), help="what is killed")
    given = parser.parse_args(arguments)
    if given.copy:
        from stratalog.spark import open_session

        copy(open_session("local[2]"), *given.copy)
        return
    random = Random(given.seed)
    done = 0
    while done < given.rounds:
        with TemporaryDirectory(prefix="stratalog-kills-") as folder:
            kill_by_chance(Path(folder), random, given.rounds - done)
        done += 8
    print("every row is there once")


if __name__ == "__main__":
    main()
