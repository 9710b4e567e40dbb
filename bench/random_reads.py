"""The cost of one record at a random offset of a remote topic, in requests and bytes.

Run: python -m bench.random_reads [--segments 100] [--size-mib 2] [--reads 500]

Segments with batches of 16 records of 1000 bytes lie on a local S3 server. One record is asked for
at a time, as a consumer that seeks would, with room for one batch. Cold means that the reader was
just made: each read is the first of its segment. Warm means that the segments' indexes are in
memory. The chunk cache is as it is by default; of plain segments random reads leave nothing there.
Promised are 2 requests cold and 1 warm at the most.
"""

import argparse
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import uvloop
from bench.remote_segments import make_segments
from Crypto.PublicKey import RSA
from tests.support.servers import S3Server, run_s3_server

from stratalog.batch.frames import iter_batches
from stratalog.clock import SystemClock
from stratalog.control.segments.model import Segment
from stratalog.ids import Offset
from stratalog.metrics import Metrics
from stratalog.objects.metered import MeteredStore
from stratalog.objects.open import open_store
from stratalog.pieces import PiecesWanted
from stratalog.segment.chunk_encoding import Encoding
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.model import IndexKind
from stratalog.segment.reader import SegmentReader
from stratalog.segment.stores import SegmentStores
from stratalog.settings import RemoteSettings

MIB = 1024 * 1024
MOST_REQUESTS = {"cold": 2.0, "warm": 1.0}


@dataclass(frozen=True, slots=True)
class Cost:
    requests: float
    """Per record, as the bytes are."""
    read_bytes: float
    median_ms: float


class Counted:
    """A store, and its requests."""

    def __init__(self, server: S3Server) -> None:
        clock = SystemClock()
        self._metrics = Metrics()
        inner = open_store(server.fresh_url(), server.options, clock=clock)
        self.store = MeteredStore(inner, metrics=self._metrics, clock=clock)

    def value(self, name: str) -> float:
        labels = {"operation": "get_ranges"}
        sample = f"stratalog_objects_{name}_total"
        return self._metrics.registry.get_sample_value(sample, labels) or 0.0


async def read_one(reader: SegmentReader, segment: Segment, offset: Offset) -> float:
    """Milliseconds that the record took."""
    want = PiecesWanted(offset=offset, max_bytes=1, pieces=[segment])
    start = time.perf_counter()
    (answer,) = await reader.read([want])
    took = (time.perf_counter() - start) * 1000
    assert answer.error is None, answer.error
    ((_, header),) = iter_batches(answer.parts[0])
    assert header.base_offset <= offset <= header.last_offset
    return took


async def measure(
    counted: Counted, reader: SegmentReader, segments: Sequence[Segment], reads: int
) -> Cost:
    chance = random.Random(1)
    before = counted.value("requests"), counted.value("bytes")
    times: list[float] = []
    for number in range(reads):
        segment = segments[number % len(segments)]
        offset = chance.randint(segment.base_offset + 1, segment.last_offset)
        times.append(await read_one(reader, segment, Offset(offset)))
    requests, read_bytes = counted.value("requests") - before[0], counted.value("bytes") - before[1]
    return Cost(requests / reads, read_bytes / reads, statistics.median(times))


async def measure_mode(server: S3Server, encoding: Encoding, load: argparse.Namespace) -> None:
    counted = Counted(server)
    private = RSA.generate(2048)
    keys = KeyRing({"bench": private.public_key()}, {"bench": private}, "bench")
    segments = await make_segments(
        counted.store, keys, encoding, count=load.segments, size_bytes=load.size_mib * MIB
    )

    def fresh() -> SegmentReader:
        stores = SegmentStores(counted.store, lambda _: counted.store)
        return SegmentReader(stores=stores, keys=keys, settings=RemoteSettings())

    cold = await measure(counted, fresh(), segments, len(segments))
    reader = fresh()
    for segment in segments:
        await reader.index(segment, IndexKind.OFFSET)
    warm = await measure(counted, reader, segments, load.reads)
    report(encoding, {"cold": cold, "warm": warm})


def report(encoding: Encoding, costs: dict[str, Cost]) -> None:
    how = "compressed " * encoding.compress + "encrypted" * encoding.encrypt or "plain"
    for name, cost in costs.items():
        print(
            f"{how:20} {name}  {cost.requests:5.2f} requests (at most {MOST_REQUESTS[name]:.0f})"
            f"  {cost.read_bytes:9.0f} bytes  {cost.median_ms:6.1f} ms   per record",
            flush=True,
        )
        assert cost.requests <= MOST_REQUESTS[name]


async def run(load: argparse.Namespace) -> None:
    with run_s3_server() as server:
        for compress, encrypt in ((False, False), (True, True)):
            chunk_bytes = RemoteSettings().chunk_bytes
            encoding = Encoding(chunk_bytes=chunk_bytes, compress=compress, encrypt=encrypt)
            await measure_mode(server, encoding, load)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--segments", type=int, default=100)
    parser.add_argument("--size-mib", type=int, default=2)
    parser.add_argument("--reads", type=int, default=500)
    uvloop.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
