"""How fast a cold remote topic is scanned, as a ratio to downloading the same bytes.

Run: python -m bench.remote_scan [--segments 8] [--size-mib 64] [--rounds 5]

Plain segments lie on a local S3 server. One consumer reads them from the first offset to the last
in fetches of 1 MiB, with the reader's default settings: it is read ahead for, every CRC is checked.
Beside it the same objects are downloaded with the same store, in ranges of 4 MiB, as many at once
as the reader reads ahead. Both take turns, and each scan begins with a new reader. The ratio is
the median of the rounds; its floor is 0.7.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence

import uvloop
from bench.remote_segments import make_segments
from tests.support.servers import run_s3_server

from stratalog.clock import SystemClock
from stratalog.control.segments.model import Segment
from stratalog.ids import Offset
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectStore, Range
from stratalog.pieces import PiecesWanted
from stratalog.segment.chunk_encoding import Encoding
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.log_bytes import REQUEST_BYTES
from stratalog.segment.reader import SegmentReader
from stratalog.segment.stores import SegmentStores
from stratalog.settings import RemoteSettings

MIB = 1024 * 1024
FETCH_BYTES = MIB
SEGMENTS_AT_ONCE = 4
"""How many segments a fetch is given: it may read ahead in those."""
FLOOR = 0.7


async def scan(store: ObjectStore, segments: Sequence[Segment]) -> int:
    """Read everything in order; return how many bytes there were."""
    stores = SegmentStores(store, lambda _: store)
    reader = SegmentReader(stores=stores, keys=KeyRing(), settings=RemoteSettings())
    offset, place, size_bytes = Offset(0), 0, 0
    while place < len(segments):
        given = segments[place : place + SEGMENTS_AT_ONCE]
        want = PiecesWanted(offset=offset, max_bytes=FETCH_BYTES, pieces=given)
        (answer,) = await reader.read([want])
        assert answer.error is None, answer.error
        size_bytes += answer.size_bytes
        offset = answer.next_offset
        while place < len(segments) and segments[place].last_offset < offset:
            place += 1
    await reader.close()
    return size_bytes


async def download(store: ObjectStore, segments: Sequence[Segment]) -> int:
    """Get the same bytes in parallel, and do nothing with them."""
    ranges = iter(
        (f"{segment.key_base}.log", Range(start, min(start + REQUEST_BYTES, segment.size_bytes)))
        for segment in segments
        for start in range(0, segment.size_bytes, REQUEST_BYTES)
    )

    async def work() -> int:
        size_bytes = 0
        for key, wanted in ranges:
            (data,) = await store.get_ranges(key, [wanted])
            size_bytes += len(data)
        return size_bytes

    parallel = RemoteSettings().read_ahead_bytes // REQUEST_BYTES
    return sum(await asyncio.gather(*(work() for _ in range(parallel))))


async def measure(work: Callable[[], Awaitable[int]], expected_bytes: int) -> float:
    """MB/s."""
    start = time.perf_counter()
    size_bytes = await work()
    took = time.perf_counter() - start
    assert size_bytes == expected_bytes
    return size_bytes / 1e6 / took


async def run(load: argparse.Namespace) -> None:
    with run_s3_server() as server:
        store = open_store(server.fresh_url(), server.options, clock=SystemClock())
        segments = await make_segments(
            store, KeyRing(), Encoding(), count=load.segments, size_bytes=load.size_mib * MIB
        )
        total = sum(segment.size_bytes for segment in segments)
        sides: dict[str, Callable[[], Awaitable[int]]] = {
            "download": lambda: download(store, segments),
            "scan": lambda: scan(store, segments),
        }
        rates: dict[str, list[float]] = {name: [] for name in sides}
        await download(store, segments)
        for number in range(load.rounds):
            for name, work in sides.items():
                rates[name].append(await measure(work, total))
                print(f"round {number + 1}: {name:8} {rates[name][-1]:6.0f} MB/s", flush=True)
        await store.close()
    for name, values in rates.items():
        print(f"{name:8} {statistics.median(values):6.0f} MB/s")
    ratios = [one / other for one, other in zip(rates["scan"], rates["download"], strict=True)]
    print(f"scan / download {statistics.median(ratios):.2f} (at least {FLOOR})")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--segments", type=int, default=8)
    parser.add_argument("--size-mib", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    uvloop.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
