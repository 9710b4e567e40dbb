"""How fast segments are built, as a ratio to `cp` of the same bytes.

Run: python -m bench.segment_build [--size-mib 1024] [--rounds 5] [--folder PATH]

A block in a folder store is read by ranges, and its batches pass through the builder: every CRC is
checked, offsets and epochs are stamped, indexes are made. Then they are written, in two ways that
take turns with two ways to copy the same file:

- built: into a plain file, which is left to the page cache, as by `cp`. At least 0.5 of the speed
  of `cp` is wanted.
- stored: into the store, which has it on the disk when it returns, as for a real segment.
  `cp` followed by `sync` of the copy is the same. Beside plain `cp`, which waits for no disk, this
  says as much about the disk. The time of the disk with one write at a time (`dd oflag=direct`,
  synced) is printed, too.

Reading and building alone, without any writing, is printed as well. The source is in the page cache
for all of them, and every target is a new file. An uncounted copy precedes each side that goes
through the page cache, so that all sides find freshly freed pages. Pages that a virtual machine
must ask its host for made either side three to six times slower. The whole size
is built of batches of 16 KiB, a quarter of it of batches of 4 KiB and of 64 KiB.
On a machine that has other work, compare the processor time, which is printed for each side, too.
"""

import argparse
import asyncio
import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from io import FileIO
from itertools import islice
from pathlib import Path

import uvloop

from stratalog.batch.build import build_batch
from stratalog.batch.records import Record
from stratalog.clock import SystemClock
from stratalog.ids import LeaderEpoch, Offset
from stratalog.memory import keep_freed_memory
from stratalog.objects.folder import FolderStore
from stratalog.objects.memory import memory_for
from stratalog.objects.store import Buffer, ObjectStore, Range
from stratalog.segment.build import BuiltLog, SegmentBuilder
from stratalog.segment.model import SourceRun

MIB = 1024 * 1024
RUN_BYTES = 4 * MIB
"""Of one ranged read. Twice or half as much was slower."""
READS_UNDER_WAY = 3
RECORD_BYTES = 1000
SOURCE, TARGET = "blocks/source", "segments/target"
BASE_OFFSET = 1_000_000
FLOOR = 0.5
WRITE_BYTES = 256 * 1024
"""Of one call. The page cache takes larger ones in larger pages, which a virtual machine that
gives free memory back to its host must ask for again: four times slower at a gigabyte."""
THROUGH_CACHE = ("built", "cp, sync", "cp")
"""The sides that write to the page cache."""


@dataclass(frozen=True, slots=True)
class Source:
    """A block of batches of one size, and the runs that it holds."""

    batch_kib: int
    size_bytes: int
    runs: list[tuple[SourceRun, Range]]


async def make_source(store: ObjectStore, batch_kib: int, size_bytes: int) -> Source:
    records = [
        Record(at, 1_700_000_000_000 + at, None, os.urandom(RECORD_BYTES))
        for at in range(batch_kib)
    ]
    batch = build_batch(records, producer_id=1, producer_epoch=0, base_sequence=0)
    per_run = RUN_BYTES // len(batch)
    runs: list[tuple[SourceRun, Range]] = []
    offset, position = BASE_OFFSET, 0
    while position < size_bytes:
        end, next_offset = position + per_run * len(batch), offset + per_run * batch_kib
        run = SourceRun(Offset(offset), Offset(next_offset - 1), LeaderEpoch(3), stamped=False)
        runs.append((run, Range(position, end)))
        offset, position = next_offset, end

    async def parts() -> AsyncIterator[Buffer]:
        for _ in runs:
            yield batch * per_run

    return Source(batch_kib, await store.put_stream(SOURCE, parts()), runs)


async def log_bytes(
    store: ObjectStore, source: Source, builder: SegmentBuilder
) -> AsyncIterator[Buffer]:
    """The segment's bytes. The next ranges are read while this one is built."""
    runs = iter(source.runs)
    reading: deque[tuple[SourceRun, asyncio.Future[list[Buffer]]]] = deque()

    def read_ahead() -> None:
        for run, place in islice(runs, READS_UNDER_WAY - len(reading)):
            memory = memory_for(place.end - place.start, place.start)
            read = asyncio.ensure_future(store.get_ranges(SOURCE, [place], into=[memory]))
            reading.append((run, read))

    read_ahead()
    while reading:
        run, read = reading.popleft()
        (piece,) = await read
        read_ahead()
        yield builder.add(memoryview(piece), run)


async def build(store: ObjectStore, source: Source) -> BuiltLog:
    builder = SegmentBuilder(Offset(BASE_OFFSET))
    size_bytes = await store.put_stream(TARGET, log_bytes(store, source, builder))
    built = builder.finish()
    assert built.size_bytes == size_bytes == source.size_bytes
    return built


async def build_plainly(store: ObjectStore, source: Source, path: Path) -> BuiltLog:
    """Into a file, as `cp` copies into one: left to the page cache when this returns."""
    builder = SegmentBuilder(Offset(BASE_OFFSET))
    with path.open("wb", buffering=0) as file:
        writing: asyncio.Future[None] | None = None
        async for piece in log_bytes(store, source, builder):
            if writing is not None:
                await writing
            writing = asyncio.ensure_future(asyncio.to_thread(write_small, file, piece))
        assert writing is not None
        await writing
    built = builder.finish()
    assert built.size_bytes == source.size_bytes == path.stat().st_size
    return built


def write_small(file: FileIO, piece: Buffer) -> None:
    view = memoryview(piece)
    for start in range(0, len(view), WRITE_BYTES):
        file.write(view[start : start + WRITE_BYTES])


async def build_in_memory(store: ObjectStore, source: Source) -> BuiltLog:
    builder = SegmentBuilder(Offset(BASE_OFFSET))
    async for _ in log_bytes(store, source, builder):
        pass
    return builder.finish()


async def shell(command: str) -> None:
    await asyncio.to_thread(subprocess.run, command, shell=True, check=True)


def warm(path: Path) -> None:
    """Have the bytes pass through the processor, too: in a virtual machine that is their first
    touch, even of pages that are in the cache already."""
    with path.open("rb", buffering=0) as file:
        while file.read(RUN_BYTES):
            pass


@dataclass(frozen=True, slots=True)
class Turn:
    mb_per_second: float
    processor_seconds: float


def processor_seconds() -> float:
    """Of this process and of the commands that it has run."""
    return sum(os.times()[:4])


async def timed(work: Callable[[], Awaitable[object]], size_bytes: int) -> Turn:
    start, start_processor = time.perf_counter(), processor_seconds()
    await work()
    seconds = time.perf_counter() - start
    return Turn(size_bytes / 1e6 / seconds, processor_seconds() - start_processor)


async def measure(folder: Path, batch_kib: int, size_bytes: int, rounds: int) -> None:
    store = FolderStore(folder, clock=SystemClock(), entropy=os.urandom)
    source = await make_source(store, batch_kib, size_bytes)
    path, target = folder / SOURCE, folder / "copy"
    warm(path)
    sides: dict[str, Callable[[], Awaitable[object]]] = {
        "stored": lambda: build(store, source),
        "built": lambda: build_plainly(store, source, target),
        "unwritten": lambda: build_in_memory(store, source),
        "cp, sync": lambda: shell(f"cp {path} {target} && sync {target}"),
        "cp": lambda: shell(f"cp {path} {target}"),
        "dd": lambda: shell(f"dd if={path} of={target} bs=4M oflag=direct conv=fsync status=none"),
    }
    turns: dict[str, list[Turn]] = {name: [] for name in sides}
    for number in range(rounds):
        for name, work in sides.items():
            if name in THROUGH_CACHE:
                await shell(f"cp {path} {target}")
                target.unlink()
            os.sync()
            turns[name].append(await timed(work, source.size_bytes))
            target.unlink(missing_ok=True)
            await store.delete([TARGET])
            print(f"round {number + 1}: {told(name, turns[name][-1])}", flush=True)
    await store.close()
    report(source, turns)


def told(name: str, turn: Turn) -> str:
    return f"{name:9} {turn.mb_per_second:6.0f} MB/s {turn.processor_seconds:5.2f} s of processor"


def report(source: Source, turns: dict[str, list[Turn]]) -> None:
    print(f"{source.size_bytes / MIB:.0f} MiB in batches of {source.batch_kib} KiB, medians:")
    medians = {name: median_of(each) for name, each in turns.items()}
    for name, median in medians.items():
        print(f"  {told(name, median)}")
    for side, other, floor in (
        ("built", "cp", f" (at least {FLOOR})"),
        ("stored", "cp, sync", ""),
        ("stored", "cp", ""),
        ("unwritten", "cp", ""),
        ("cp, sync", "cp", ""),
        ("dd", "cp", ""),
    ):
        ratio = medians[side].mb_per_second / medians[other].mb_per_second
        print(f"  {side} / {other}: {ratio:.2f}{floor}")
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  most memory that the process ever had: {peak_mib:.0f} MiB", flush=True)


def median_of(turns: list[Turn]) -> Turn:
    return Turn(
        statistics.median(turn.mb_per_second for turn in turns),
        statistics.median(turn.processor_seconds for turn in turns),
    )


async def run(folder: Path | None, size_mib: int, rounds: int) -> None:
    for batch_kib, size_bytes in (
        (16, size_mib * MIB),
        (4, size_mib * MIB // 4),
        (64, size_mib * MIB // 4),
    ):
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            await measure(Path(temporary), batch_kib, size_bytes, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size-mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where to write; otherwise a temporary one")
    options = parser.parse_args()
    keep_freed_memory(one_pool=True)
    uvloop.run(run(options.folder, options.size_mib, options.rounds))


if __name__ == "__main__":
    main()
