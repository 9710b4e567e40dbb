"""How fast segments are built, as a ratio to `cp` of the same bytes.

Run: python -m bench.segment_build [--size-mib 1024] [--rounds 5] [--folder PATH]

A block in a folder store is read by ranges, its batches pass through the builder (every CRC is
checked, offsets and epochs are stamped, indexes are made), and the segment is streamed back into
the store, which syncs it. `cp` of the same file into the same folder takes turns with that, once
as it is and once followed by `sync` of the copy, because the store's promise is durability. What
reading and building take by themselves, with nothing written, is a fourth figure.
The source is in the page cache for all of them, and every target is a new file. The whole size is
built of batches of 16 KiB, a quarter of it of batches of 4 KiB and of 64 KiB.
"""

import argparse
import asyncio
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import uvloop

from stratalog.batch.build import build_batch
from stratalog.batch.records import Record
from stratalog.clock import SystemClock
from stratalog.ids import LeaderEpoch, Offset
from stratalog.objects.folder import FolderStore
from stratalog.objects.store import Buffer, ObjectStore, Range
from stratalog.segment.build import BuiltLog, SegmentBuilder
from stratalog.segment.framing import BatchFraming
from stratalog.segment.model import SourceRun

MIB = 1024 * 1024
RUN_BYTES = 4 * MIB
"""Of one ranged read. Twice or half as much was slower."""
RECORD_BYTES = 1000
SOURCE, TARGET = "blocks/source", "segments/target"
BASE_OFFSET = 1_000_000


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
    """The segment's bytes. The next range is read while this one is built."""

    def read(number: int) -> "asyncio.Future[list[Buffer]]":
        ranges = [each for _, each in source.runs[number : number + 1]]
        return asyncio.ensure_future(store.get_ranges(SOURCE, ranges))

    reading = read(0)
    for number, (run, _) in enumerate(source.runs):
        (piece,) = await reading
        reading = read(number + 1)
        framing = BatchFraming()
        for batches in framing.push(piece):
            yield builder.add(batches, run)
        framing.finish()
    await reading


async def build(store: ObjectStore, source: Source) -> BuiltLog:
    builder = SegmentBuilder(Offset(BASE_OFFSET))
    size_bytes = await store.put_stream(TARGET, log_bytes(store, source, builder))
    built = builder.finish()
    assert built.size_bytes == size_bytes == source.size_bytes
    return built


async def build_in_memory(store: ObjectStore, source: Source) -> BuiltLog:
    builder = SegmentBuilder(Offset(BASE_OFFSET))
    async for _ in log_bytes(store, source, builder):
        pass
    return builder.finish()


async def copy(folder: Path, *, synced: bool) -> None:
    source, target = folder / SOURCE, folder / "copy"
    command = f"cp {source} {target}" + (f" && sync {target}" if synced else "")
    await asyncio.to_thread(subprocess.run, command, shell=True, check=True)


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    start = time.perf_counter()
    await work()
    return time.perf_counter() - start


async def measure(folder: Path, batch_kib: int, size_bytes: int, rounds: int) -> None:
    store = FolderStore(folder, clock=SystemClock(), entropy=os.urandom)
    source = await make_source(store, batch_kib, size_bytes)
    shutil.copyfile(folder / SOURCE, os.devnull)
    sides: dict[str, Callable[[], Awaitable[object]]] = {
        "build": lambda: build(store, source),
        "unwritten": lambda: build_in_memory(store, source),
        "cp": lambda: copy(folder, synced=False),
        "cp, sync": lambda: copy(folder, synced=True),
    }
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        for name, work in sides.items():
            os.sync()
            rates[name].append(source.size_bytes / 1e6 / await timed(work))
            (folder / "copy").unlink(missing_ok=True)
            await store.delete([TARGET])
            print(f"round {number + 1}: {name:9} {rates[name][-1]:6.0f} MB/s", flush=True)
    await store.close()
    report(source, rates)


def report(source: Source, rates: dict[str, list[float]]) -> None:
    medians = {name: statistics.median(values) for name, values in rates.items()}
    print(f"{source.size_bytes / MIB:.0f} MiB in batches of {source.batch_kib} KiB")
    for name, median in medians.items():
        print(f"  {name:9} {median:6.0f} MB/s   build is {medians['build'] / median:5.2f} of it")
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  most memory that the process ever had: {peak_mib:.0f} MiB", flush=True)


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
    uvloop.run(run(options.folder, options.size_mib, options.rounds))


if __name__ == "__main__":
    main()
