"""Segments in a store whose requests are counted, to be read."""

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

from tests.unit.segment.runs import run

from stratalog.batch.frames import iter_batches
from stratalog.batch.header import BatchHeader
from stratalog.batch.records import Record, iter_records
from stratalog.clock import SystemClock
from stratalog.control.segments.model import Segment, SegmentState, SegmentToAdd, SegmentUploaded
from stratalog.ids import Offset, PartitionIndex, SegmentId, TopicId
from stratalog.metrics import Metrics
from stratalog.objects.metered import MeteredStore
from stratalog.objects.open import open_store
from stratalog.objects.retrying import RetryPolicy
from stratalog.objects.store import ObjectStore
from stratalog.pieces import PiecesRead, PiecesWanted
from stratalog.segment.build import DEFAULT_INDEX_INTERVAL_BYTES, SegmentBuilder
from stratalog.segment.chunk_encoding import Encoding
from stratalog.segment.epoch_checkpoint import encode_checkpoint
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.keys import segment_key_base
from stratalog.segment.model import SegmentIndexes
from stratalog.segment.producer_state import PartitionTail, advance
from stratalog.segment.reader import SegmentReader
from stratalog.segment.stores import SegmentStores
from stratalog.segment.txn_index import encode_aborted
from stratalog.segment.upload import upload_indexes, upload_log
from stratalog.settings import RemoteSettings

GOLDEN = Path(__file__).parents[2] / "golden"
KEYS = KeyRing.load(
    {"key1": GOLDEN / "test-only-public.pem"}, {"key1": GOLDEN / "test-only-private.pem"}, "key1"
)
TOPIC = TopicId(UUID(int=77))

MODES = {
    "plain": Encoding(chunk_bytes=16_000),
    "zstd": Encoding(chunk_bytes=16_000, compress=True),
    "aes": Encoding(chunk_bytes=16_000, encrypt=True),
    "both": Encoding(chunk_bytes=16_000, compress=True, encrypt=True),
}


class Shelf:
    """A store in memory, with segments of one partition, one after the other."""

    def __init__(self, store: ObjectStore | None = None) -> None:
        self.metrics = Metrics()
        clock = SystemClock()
        inner = store or open_store("memory:", clock=clock, retries=RetryPolicy(attempts=1))
        self.store = MeteredStore(inner, metrics=self.metrics, clock=clock)
        self.segments: list[Segment] = []
        self.logs: list[bytes] = []
        """Of the segments, as record batches."""
        self.tail = PartitionTail()

    @property
    def requests(self) -> int:
        labels = {"operation": "get_ranges"}
        name = "stratalog_objects_requests_total"
        return int(self.metrics.registry.get_sample_value(name, labels) or 0)

    @property
    def bytes_read(self) -> int:
        labels = {"operation": "get_ranges"}
        name = "stratalog_objects_bytes_total"
        return int(self.metrics.registry.get_sample_value(name, labels) or 0)

    @property
    def end(self) -> int:
        return self.segments[-1].end_offset if self.segments else 0

    def reader(
        self, settings: RemoteSettings | None = None, metrics: Metrics | None = None
    ) -> SegmentReader:
        """A new one, whose caches are empty."""
        return SegmentReader(
            stores=SegmentStores(self.store, lambda _: self.store),
            keys=KEYS,
            settings=settings or RemoteSettings(),
            metrics=metrics,
        )

    async def add(
        self,
        batches: Sequence[bytes],
        encoding: Encoding = MODES["plain"],
        *,
        base: int | None = None,
        interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES,
    ) -> Segment:
        """Build a segment of these batches, store it, and put it behind the others."""
        base = self.end if base is None else base
        builder = SegmentBuilder(Offset(base), index_interval_bytes=interval_bytes)
        last = base + sum(header.last_offset_delta + 1 for _, header in _batches(batches)) - 1
        data = bytes(builder.add(bytearray(b"".join(batches)), run(base, last)))
        built = builder.finish()
        self.tail, aborted = advance(self.tail, built)
        number = UUID(int=1000 + len(self.segments))
        key_base = segment_key_base(
            "segments/", "t", TOPIC, PartitionIndex(0), built.base_offset, SegmentId(number)
        )
        to_add = SegmentToAdd(
            segment_id=SegmentId(number),
            topic_id=TOPIC,
            partition=PartitionIndex(0),
            base_offset=built.base_offset,
            last_offset=built.last_offset,
            size_bytes=built.size_bytes,
            max_timestamp=built.max_timestamp,
            leader_epochs=built.leader_epochs,
            key_base=key_base,
        )
        indexes = SegmentIndexes(
            offset=built.offset_index,
            timestamp=built.time_index,
            producer_snapshot=self.tail.to_snapshot(),
            leader_epoch=encode_checkpoint(built.leader_epochs),
            transaction=encode_aborted(aborted),
        )
        log = await upload_log(self.store, key_base, _pieces(data), encoding, KEYS)
        uploaded = await upload_indexes(
            self.store, key_base, indexes, log, to_add, "t", KEYS, event_ms=1
        )
        segment = finished(to_add, uploaded)
        self.segments.append(segment)
        self.logs.append(data)
        return segment

    async def damage(self, key: str, position: int, *, cut: bool = False) -> None:
        """Change a byte of an object, or cut it off there."""
        data = bytearray((await self.store.get(key)).data)
        data[position] ^= 0xFF
        await self.store.put(key, [data[:position] if cut else data])


def finished(
    to_add: SegmentToAdd, uploaded: SegmentUploaded, *, owned: bool = True, store_url: str = ""
) -> Segment:
    fields = {name: getattr(to_add, name) for name in SegmentToAdd.__dataclass_fields__}
    segment = Segment(
        **fields,
        state=SegmentState.COPY_FINISHED,
        chained=True,
        owned=owned,
        added_ms=0,
        changed_ms=0,
        uploaded=uploaded,
    )
    return replace(segment, store_url=store_url)


async def read(
    reader: SegmentReader, segments: Sequence[Segment], offset: int, max_bytes: int = 1 << 20
) -> PiecesRead:
    want = PiecesWanted(offset=Offset(offset), max_bytes=max_bytes, pieces=segments)
    (answer,) = await reader.read([want])
    return answer


def records(answer: PiecesRead) -> list[Record]:
    return list(iter_records(b"".join(answer.parts), with_control=True))


def offsets(answer: PiecesRead) -> list[int]:
    return [record.offset for record in records(answer)]


def _batches(batches: Sequence[bytes]) -> Iterator[tuple[int, BatchHeader]]:
    return (one for each in batches for one in iter_batches(each))


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data


@dataclass(frozen=True)
class Placed:
    """A batch as it was stored."""

    base: int
    last: int
    data: bytes


def placed(log: bytes) -> list[Placed]:
    return [
        Placed(header.base_offset, header.last_offset, log[position : position + header.size_bytes])
        for position, header in iter_batches(log)
    ]
