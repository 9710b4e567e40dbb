"""How fast the pipeline turns blocks into segments, as a ratio to `cp` of the same bytes.

Run: python -m bench.pipeline [--size-mib 2048] [--partitions 50] [--rounds 3] [--folder PATH]
     python -m bench.pipeline --thin [--partitions 10000] [--windows 20] [--rounds 2]

Each round fills a new topic in a folder store with blocks of 8 MiB, in batches of 16 to 64 KiB, and
takes turns between one run of the pipeline on a warm local session and `cp` of the block objects.
They are copied three times, and at least 0.5 of the speed of `cp` is wanted:

- "cp, first": as a user would copy them. It waits for no disk, but for memory that the system must
  find for the page cache; where that comes from a host, it may take longer than the copying.
- "cp, sync": followed by `sync` of the copies, which then are as durable as segments are.
- "cp": once more without, into memory that the copies before have just freed. Nothing that is on
  the disk in the end is as fast, so this says as much about the disk as about the pipeline.

All read from the page cache, and write new files. Each ratio is the median of the rounds. All
partitions have enough for a segment, so that each byte is read once and written once;
the records read through the topic afterwards must be the written ones. On a machine that has other
work, compare the processor time, which is printed for each side, too.

With --thin each of many partitions gets one small batch per window, and nothing is worth a segment:
the table shows the rows and objects that remain after each run.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import uvloop
from bench.pipeline_load import (
    MIB,
    Batches,
    Filling,
    folder_settings,
    object_counts,
    opened,
    row_count,
    usual_batches,
)

from stratalog.batch.frames import check_crc, iter_batches
from stratalog.batch.header import CRC_START
from stratalog.block.fresh_blocks import FreshBlocks
from stratalog.block.reader import BlockReader
from stratalog.checks.fsck import run_fsck
from stratalog.clock import SystemClock
from stratalog.control.log.model import Span
from stratalog.control.plane import ControlPlane
from stratalog.ids import Offset, PartitionIndex, TopicPartition, WriterTag
from stratalog.janitor.retention import Retention
from stratalog.janitor.service import Janitor
from stratalog.memory import collect_garbage_rarely, keep_freed_memory
from stratalog.objects.store import ObjectStore
from stratalog.pipeline.hosting.job_runner import JobRunner
from stratalog.pipeline.hosting.run_task import run_task
from stratalog.pipeline.hosting.session import OpenSpark, open_session
from stratalog.pipeline.hosting.spark_conf import SparkOptions
from stratalog.pipeline.jobs import Begin, Bin, BinDone, BinOutcome
from stratalog.pipeline.open import opened_driver
from stratalog.pipeline.plan.tasks import Effort
from stratalog.pipeline.report import Report
from stratalog.pipeline.workplace import workplace_of
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.reader import SegmentReader
from stratalog.segment.stores import SegmentStores
from stratalog.settings import DAY_MS, JanitorSettings, RemoteSettings, Settings, TieringSettings
from stratalog.topic.open_tiers import open_tiers
from stratalog.topic.tiers import Look

BLOCK_BYTES = 8 * MIB
FETCH_BYTES = 4 * MIB
THIN_BATCH_BYTES = 500
THIN_ROWS = 16
"""After how many windows partitions are split: `tiering.max_rows`, whose default is 64."""
FLOOR = 0.5
EAGER = TieringSettings(age_ms=0, min_segment_bytes=MIB)
"""All that is there has aged, and is worth a segment."""
THIN = TieringSettings(age_ms=0, max_rows=THIN_ROWS)


# The cost of processes.


def own_seconds() -> float:
    """Processor time of this process, and of the commands that it has run."""
    return sum(os.times()[:4])


class Process(NamedTuple):
    parent: int
    seconds: float
    """Of processor, and that of its children that have ended."""


def processes() -> dict[int, Process]:
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            seconds = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
            found[int(path.name)] = Process(int(fields[1]), seconds)
    return found


class Spent(NamedTuple):
    """Seconds of processor."""

    driver: float
    jvm: float
    workers: float

    def since(self, before: "Spent") -> "Spent":
        return Spent(*(now - then for now, then in zip(self, before, strict=True)))

    def __str__(self) -> str:
        return f"driver {self.driver:.2f}, JVM {self.jvm:.2f}, Python workers {self.workers:.2f}"


def spent(spark: OpenSpark) -> Spent:
    assert spark.process is not None
    jvm, running = spark.process.pid, processes()

    def is_below(pid: int) -> bool:
        parent = running[pid].parent
        return parent == jvm or (parent in running and is_below(parent))

    workers = sum(running[pid].seconds for pid in running if is_below(pid))
    return Spent(own_seconds(), running[jvm].seconds, workers)


# The session, watched.


class Watched:
    """The jobs of a run, and when they ran."""

    def __init__(self, spark: OpenSpark, settings: Settings) -> None:
        self._runner = JobRunner(spark, run_task, workplace_of(settings), clock=SystemClock())
        self._ended = 0.0
        self.seconds = 0.0
        """From the first job to the last commit."""
        self.tail_seconds = 0.0
        """From the end of the last job on, in which the driver only committed."""
        self.efforts: list[Effort] = []

    def distrust(self) -> None:
        self._runner.distrust()

    @asynccontextmanager
    async def open(self, _: UUID | None, __: WriterTag) -> "AsyncIterator[Watched]":
        started = self._ended = time.perf_counter()
        yield self
        now = time.perf_counter()
        self.seconds += now - started
        self.tail_seconds += now - self._ended

    async def run(self, bins: Sequence[Bin], begin: Begin) -> AsyncGenerator[BinOutcome, None]:
        async with aclosing(self._runner.run(bins, begin)) as outcomes:
            async for outcome in outcomes:
                if isinstance(outcome, BinDone):
                    self.efforts += [answer.effort for answer in outcome.answers]
                self._ended = time.perf_counter()
                yield outcome


async def convert(control: ControlPlane, settings: Settings, jobs: Watched) -> Report:
    async with opened_driver(settings, jobs.open, control=control) as driver:
        report = await driver.run()
    assert not report.failed, report.failed
    return report


# One round.


@dataclass(frozen=True, slots=True)
class Turn:
    mb_per_second: float
    processor_seconds: float

    def __str__(self) -> str:
        return f"{self.mb_per_second:6.0f} MB/s {self.processor_seconds:5.2f} s of processor"


async def timed(work: Callable[[], Awaitable[object]], size_bytes: int) -> Turn:
    os.sync()
    start, start_processor = time.perf_counter(), own_seconds()
    await work()
    seconds = time.perf_counter() - start
    return Turn(size_bytes / 1e6 / seconds, own_seconds() - start_processor)


async def shell(command: str) -> None:
    await asyncio.to_thread(subprocess.run, command, shell=True, check=True)


async def copied(folder: Path, command: str, size_bytes: int) -> Turn:
    """The speed of a command that copies the blocks."""
    source, target = folder / "objects" / "blocks", folder / "copy"
    turn = await timed(lambda: shell(command.format(source=source, target=target)), size_bytes)
    await shell(f"rm -rf {target}")
    return turn


CP = "cp -r {source} {target}"
SYNC = " && find {target} -type f -exec sync {{}} +"


class Round:
    """A new topic in a new folder, copied and converted."""

    def __init__(self, folder: Path, spark: OpenSpark, tiering: TieringSettings) -> None:
        self._folder = folder
        self._spark = spark
        self._settings = folder_settings(folder, tiering)
        self._jobs = Watched(spark, self._settings)
        self.turns: dict[str, Turn] = {}

    async def run(self, partitions: int, size_bytes: int, batches: Batches, *, first: bool) -> None:
        """`first`: whether the pipeline comes before the copies, or after them."""
        async with opened(self._settings) as (control, store):
            topic = await control.topics.create("load", partition_count=partitions, configs={})
            filling = Filling(control, store, topic, batches)
            await filling.fill(size_bytes, BLOCK_BYTES)
            await shell(f"cat $(find {self._folder}/objects -type f) > /dev/null")
            if not first:
                await self._copy(filling)
            await self._convert(control, store, filling)
            if first:
                await self._copy(filling)
            await verify(control, store, filling)

    async def _copy(self, filling: Filling) -> None:
        self.turns["cp, first"] = await copied(self._folder, CP, filling.size_bytes)
        self.turns["cp, sync"] = await copied(self._folder, CP + SYNC, filling.size_bytes)
        self.turns["cp"] = await copied(self._folder, CP, filling.size_bytes)

    async def _convert(self, control: ControlPlane, store: ObjectStore, filling: Filling) -> None:
        rows, before = row_count(self._settings), spent(self._spark)
        report = Report()

        async def work() -> None:
            nonlocal report
            report = await convert(control, self._settings, self._jobs)

        run = await timed(work, filling.size_bytes)
        cost = spent(self._spark).since(before)
        self.turns["run"] = Turn(run.mb_per_second, sum(cost))
        self.turns["jobs"] = Turn(filling.size_bytes / 1e6 / self._jobs.seconds, sum(cost))
        assert report.merged_bytes == filling.size_bytes, "some partitions had too little"
        self._tell(report, rows, await object_counts(store))
        print(f"  processor: {cost}", flush=True)

    def _tell(self, report: Report, rows: int, objects: dict[str, int]) -> None:
        size_bytes, jobs = report.merged_bytes, self._jobs
        seconds = size_bytes / 1e6 / self.turns["run"].mb_per_second
        print(
            f"  per byte {report.bytes_read / size_bytes:.3f} read and"
            f" {report.bytes_written / size_bytes:.3f} written,"
            f" {report.requests / (size_bytes / 1e6):.2f} requests per MB"
            f" ({report.requests:,})\n"
            f"  {rows:,} rows became {row_count(self._settings):,},"
            f" and {objects['blocks']:,} blocks {report.segments:,} segments\n"
            f"  {seconds:.2f} s: around the jobs {seconds - jobs.seconds:.2f}, jobs"
            f" and commits {jobs.seconds:.2f}, of which commits alone {jobs.tail_seconds:.2f};"
            f" {len(jobs.efforts)} tasks of {_mean(jobs.efforts):.2f} s each",
            flush=True,
        )


def _mean(efforts: Sequence[Effort]) -> float:
    return statistics.mean(effort.seconds for effort in efforts) if efforts else 0.0


# Checks of the data.


async def verify(control: ControlPlane, store: ObjectStore, filling: Filling) -> None:
    """One partition is read whole and compared. For the others the control plane's word is
    taken."""
    report = await run_fsck(control, store, deep=False)
    assert not report.damaged, report.findings
    partition = PartitionIndex(filling.topic.partition_count // 2)
    numbers = iter(filling.written[partition])
    offset = 0
    async for data in read_all(control, store, TopicPartition(filling.topic.id, partition)):
        for position, header in iter_batches(data):
            check_crc(data, position, header)
            written = filling.batches.data[next(numbers)]
            end = position + header.size_bytes
            assert header.base_offset == offset
            assert data[position + CRC_START : end] == memoryview(written)[CRC_START:]
            offset = header.last_offset + 1
    assert next(numbers, None) is None, "the last batches are missing"


async def read_all(
    control: ControlPlane, store: ObjectStore, key: TopicPartition
) -> AsyncIterator[memoryview]:
    """Through the tiers, as a consumer would be answered."""
    stores = SegmentStores(store, lambda _: store)
    segments = SegmentReader(stores=stores, keys=KeyRing(), settings=RemoteSettings())
    tiers = open_tiers(blocks=BlockReader(store=store, cache=FreshBlocks(0)), segments=segments)
    state = (await control.log.partitions([key]))[key]
    offset = Offset(0)
    while offset < state.high_watermark:
        span = Span(
            topic_id=key.topic_id, partition=key.partition, offset=offset, max_bytes=FETCH_BYTES
        )
        [found] = await control.log.find_batches([span])
        look = Look(span=span, found=found, end=state.high_watermark)
        [read] = await tiers.read([look], FETCH_BYTES)
        assert read.error is None, read.error
        data = b"".join(read.parts)
        yield memoryview(data)
        *_, (_, last) = iter_batches(data)
        offset = Offset(last.last_offset + 1)
    await segments.close()


# The whole measurement.


async def started(folder: Path | None, batches: Batches) -> tuple[OpenSpark, float]:
    """A session that has worked already, and how long it took to start."""
    start = time.perf_counter()
    spark = await asyncio.to_thread(open_session, SparkOptions(master="local[*]"))
    seconds = time.perf_counter() - start
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        settings = folder_settings(Path(temporary), TieringSettings(age_ms=0, min_segment_bytes=1))
        async with opened(settings) as (control, store):
            topic = await control.topics.create("warm-up", partition_count=8, configs={})
            await Filling(control, store, topic, batches).fill(4 * BLOCK_BYTES, BLOCK_BYTES)
            first = time.perf_counter()
            await convert(control, settings, Watched(spark, settings))
    first_seconds = time.perf_counter() - first
    print(f"session started in {seconds:.1f} s, a first small run took {first_seconds:.1f} s")
    return spark, seconds


async def fat(options: argparse.Namespace) -> None:
    batches = usual_batches()
    spark, start_seconds = await started(options.folder, batches)
    size_bytes = options.size_mib * MIB
    rounds: list[dict[str, Turn]] = []
    with spark:
        for number in range(options.rounds):
            print(f"round {number + 1}:", flush=True)
            with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
                one = Round(Path(temporary), spark, EAGER)
                await one.run(options.partitions, size_bytes, batches, first=number % 2 == 1)
            rounds.append(one.turns)
            for name, turn in one.turns.items():
                print(f"  {name:9} {turn}", flush=True)
    told(rounds, size_bytes / 1e6, start_seconds)


def told(rounds: Sequence[dict[str, Turn]], size_mb: float, start_seconds: float) -> None:
    print("medians:")
    for name in rounds[0]:
        speeds = [turns[name].mb_per_second for turns in rounds]
        spent = [turns[name].processor_seconds for turns in rounds]
        print(f"  {name:9} {Turn(statistics.median(speeds), statistics.median(spent))}")
    with_start = [
        size_mb / (size_mb / turns["run"].mb_per_second + start_seconds) for turns in rounds
    ]
    print(f"  run, session start included: {statistics.median(with_start):.0f} MB/s")
    for side, other, floor in (
        ("run", "cp, first", f" (at least {FLOOR})"),
        ("run", "cp, sync", f" (at least {FLOOR})"),
        ("run", "cp", f" (at least {FLOOR})"),
        ("jobs", "cp", ""),
        ("cp, sync", "cp", ""),
    ):
        ratios = [turns[side].mb_per_second / turns[other].mb_per_second for turns in rounds]
        print(f"{side} / {other}: {statistics.median(ratios):.2f}{floor}")


async def thin(options: argparse.Namespace) -> None:
    batches = Batches.of_sizes([THIN_BATCH_BYTES])
    spark, _ = await started(options.folder, usual_batches())
    with spark, tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        settings = folder_settings(Path(temporary), THIN)
        async with opened(settings) as (control, store):
            topic = await control.topics.create(
                "thin", partition_count=options.partitions, configs={}
            )
            filling = Filling(control, store, topic, batches)
            for _ in range(options.rounds):
                for _ in range(options.windows):
                    await filling.one_each()
                print(f"{options.windows} windows more, {filling.size_bytes / 1e6:,.0f} MB in all:")
                await thin_run(control, store, settings, spark)
            await verify(control, store, filling)


async def thin_run(
    control: ControlPlane, store: ObjectStore, settings: Settings, spark: OpenSpark
) -> None:
    rows, objects = row_count(settings), await object_counts(store)
    report = await convert(control, settings, Watched(spark, settings))
    await clean(control, store)
    after, objects_after = row_count(settings), await object_counts(store)
    print(
        f"  rows {rows:,} -> {after:,}, blocks {objects.get('blocks', 0):,} ->"
        f" {objects_after.get('blocks', 0):,}, split files {objects.get('splits', 0):,} ->"
        f" {objects_after.get('splits', 0):,}\n"
        f"  {report.bytes_read / 1e6:,.0f} MB read, {report.bytes_written / 1e6:,.0f} MB written,"
        f" {report.requests:,} requests, {report.seconds:.1f} s",
        flush=True,
    )


async def clean(control: ControlPlane, store: ObjectStore) -> None:
    """The janitor, to whom everything is old: twice, because it marks first and deletes then."""
    janitor = Janitor(
        control=control,
        store=store,
        retention_of=lambda _: Retention(ms=None, bytes=None),
        settings=JanitorSettings(interval_ms=0, grace_ms=0, backup_window_ms=0, answers_ms=0),
        offsets_retention_ms=DAY_MS,
        clock=SystemClock(),
        segment_prefix=RemoteSettings().prefix,
    )
    for _ in range(2):
        await janitor.run_once()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size-mib", type=int, default=2048)
    parser.add_argument("--thin", action="store_true", help="many partitions with little each")
    parser.add_argument("--partitions", type=int, help="50, or 10,000 with --thin")
    parser.add_argument("--windows", type=int, default=20, help="per round, with --thin")
    parser.add_argument("--rounds", type=int, help="3, or 2 with --thin")
    parser.add_argument("--folder", type=Path, help="where to write; otherwise a temporary one")
    options = parser.parse_args()
    options.partitions = options.partitions or (10_000 if options.thin else 50)
    options.rounds = options.rounds or (2 if options.thin else 3)
    keep_freed_memory()
    collect_garbage_rarely()
    uvloop.run(thin(options) if options.thin else fat(options))


if __name__ == "__main__":
    main()
