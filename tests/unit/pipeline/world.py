"""Blocks in a store and the rows that a control plane would have of them, without one.

`World.log_of` is the reference: the bytes of any segment or split file, made the plain way.
"""

import os
from collections import defaultdict
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from typing import TypeVar
from uuid import UUID, uuid4

from tests.support.writers import TAG

from stratalog.batch.build import build_batch
from stratalog.batch.frames import iter_batches
from stratalog.batch.header import Codec, TimestampType
from stratalog.batch.records import Record
from stratalog.batch.stamp import stamp, stamp_append_time
from stratalog.block.keys import block_key
from stratalog.clock import Clock, SystemClock
from stratalog.control.log.commit_plan import MAX_ROW_BYTES
from stratalog.control.log.model import Coordinates
from stratalog.control.pipeline.model import ClaimToken
from stratalog.ids import LeaderEpoch, ObjectId, Offset, PartitionIndex, TopicId, uuid7
from stratalog.objects.open import open_store
from stratalog.objects.store import Buffer, ObjectStore, Range
from stratalog.objects.wrapped import WrappedStore
from stratalog.pipeline.kinds.merge_model import MergeTask, SegmentPlan
from stratalog.pipeline.kinds.source_reader import Pace
from stratalog.pipeline.kinds.split_model import SplitPlan, SplitTask
from stratalog.pipeline.plan.tasks import TaskDone
from stratalog.pipeline.workplace import OpenWorkplace
from stratalog.segment.chunk_encoding import Encoding
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.keys import LOG_SUFFIX

T = TypeVar("T")

TOPIC = TopicId(UUID(int=0xA))
START_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Sent:
    """A batch as a producer sent it, and where it goes."""

    partition: int
    data: bytes
    records: int
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    dead: bool = False
    """Rejected by the commit: bytes that no row points at."""


@cache
def payload(
    records: int = 1, size: int = 10, codec: Codec = Codec.NONE, producer: int = -1
) -> bytes:
    return build_batch(
        [
            Record(index, START_MS + 7 * index, b"k%d" % index, b"v" * size)
            for index in range(records)
        ],
        codec=codec,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
    )


def sent(partition: int, records: int = 1, size: int = 10, **rest: bool | TimestampType) -> Sent:
    return Sent(partition, payload(records, size), records, **rest)  # type: ignore[arg-type]


class WatchedStore(WrappedStore):
    """Notes every read and write, and can be made to fail."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.reads: list[tuple[str, list[Range]]] = []
        self.failures: dict[str, Exception] = {}
        """By a part of the key. Writes fail in mid-stream."""

    async def get_ranges(
        self,
        key: str,
        ranges: Sequence[Range],
        *,
        into: Sequence[memoryview] | None = None,
        mapped: bool = False,
    ) -> list[Buffer]:
        self.reads.append((key, [*ranges]))
        return await super().get_ranges(key, ranges, into=into, mapped=mapped)

    async def put_stream(self, key: str, parts: AsyncIterable[Buffer]) -> int:
        failure = self._failure(key)
        if failure is not None:
            async for _ in parts:
                raise failure
        return await self._inner.put_stream(key, parts)

    async def _around(self, operation: str, key: str, call: Callable[[], Awaitable[T]]) -> T:
        failure = self._failure(key)
        if failure is not None:
            raise failure
        return await call()

    def _failure(self, key: str) -> Exception | None:
        return next((error for part, error in self.failures.items() if part in key), None)


@dataclass
class World:
    store: WatchedStore = field(
        default_factory=lambda: WatchedStore(open_store("memory:", clock=SystemClock()))
    )
    rows: dict[int, list[Coordinates]] = field(default_factory=lambda: defaultdict(list))
    epochs: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    blocks: list[str] = field(default_factory=list)
    now_ms: int = START_MS

    def place(
        self,
        *,
        encoding: Encoding | None = None,
        keys: KeyRing | None = None,
        clock: Clock | None = None,
        task_bytes_per_second: int = 0,
    ) -> OpenWorkplace:
        clock = clock or SystemClock()
        return OpenWorkplace(
            objects=self.store,
            segments=self.store,
            segments_prefix="segments/",
            encoding=encoding or Encoding(),
            keys=keys or KeyRing(),
            clock=clock,
            entropy=os.urandom,
            pace=Pace(task_bytes_per_second, clock),
            writer=TAG,
        )

    async def commit(self, *batches: Sent) -> str:
        """Put a block and note its rows, as a commit does. Returns the block's key."""
        self.now_ms += 250
        object_id = ObjectId(uuid7(self.now_ms))
        key, position = block_key(object_id), 0
        ordered = sorted(batches, key=lambda batch: batch.partition)
        for partition, group in groupby(ordered, key=lambda batch: batch.partition):
            row: Coordinates | None = None
            for batch in group:
                if not batch.dead:
                    row = self._extend(row, batch, object_id, key, position)
                    self.rows[partition][row_index(self.rows[partition], row)] = row
                position += len(batch.data)
        await self.store.put(key, [batch.data for batch in ordered])
        self.blocks.append(key)
        return key

    def _extend(
        self, row: Coordinates | None, batch: Sent, object_id: ObjectId, key: str, position: int
    ) -> Coordinates:
        rows = self.rows[batch.partition]
        base = rows[-1].last_offset + 1 if rows else 0
        if (
            row is not None
            and row.byte_offset + row.byte_size == position
            and row.timestamp_type is batch.timestamp_type
            and row.byte_size + len(batch.data) <= MAX_ROW_BYTES
        ):
            return row._replace(
                byte_size=row.byte_size + len(batch.data),
                last_offset=Offset(base + batch.records - 1),
            )
        made = Coordinates(
            topic_id=TOPIC,
            partition=PartitionIndex(batch.partition),
            base_offset=Offset(base),
            last_offset=Offset(base + batch.records - 1),
            object_id=object_id,
            object_key=key,
            byte_offset=position,
            byte_size=len(batch.data),
            max_timestamp=START_MS,
            timestamp_type=batch.timestamp_type,
            committed_ms=self.now_ms,
            leader_epoch=LeaderEpoch(self.epochs[batch.partition]),
            stamped=False,
        )
        rows.append(made)
        return made

    async def log_of(self, rows: Sequence[Coordinates]) -> bytes:
        """The stamped batches of these rows, by the plainest code there is."""
        log = bytearray()
        for row in rows:
            stored = await self.store._inner.get(row.object_key)
            data = bytearray(stored.data[row.byte_offset : row.byte_offset + row.byte_size])
            offset = int(row.base_offset)
            for position, header in iter_batches(bytes(data)):
                if not row.stamped:
                    if row.timestamp_type is TimestampType.LOG_APPEND_TIME:
                        stamp_append_time(data, position, header, row.committed_ms)
                    stamp(data, position, base_offset=offset, leader_epoch=row.leader_epoch)
                offset += header.last_offset_delta + 1
            log += data
        return bytes(log)

    def segments(self, *, at: int | None = None) -> list[SegmentPlan]:
        """A plan of one segment per partition, or of two that part after so many rows."""
        plans: list[SegmentPlan] = []
        for partition in sorted(self.rows):
            token = ClaimToken(uuid4())
            rows = self.rows[partition]
            parts = [rows] if at is None else [rows[:at], rows[at:]]
            plans += [segment_plan(part, token) for part in parts if part]
        return plans

    def split_task(self) -> SplitTask:
        return SplitTask(parts=[split_plan(self.rows[each]) for each in sorted(self.rows)])

    async def log_in_store(self, key_base: str) -> bytes:
        return bytes((await self.store._inner.get(key_base + LOG_SUFFIX)).data)

    async def keys(self, prefix: str) -> list[str]:
        return [info.key async for info in self.store.list(prefix)]

    async def damage(self, row: Coordinates, at: int) -> None:
        """Change one byte that a row points at."""
        data = bytearray((await self.store.get(row.object_key)).data)
        data[row.byte_offset + at] ^= 0xFF
        await self.store.put(row.object_key, [bytes(data)])

    def reads_of(self, key: str) -> int:
        return sum(1 for read, _ in self.store.reads if read == key)


def row_index(rows: Sequence[Coordinates], row: Coordinates) -> int:
    return next(index for index, each in enumerate(rows) if each.base_offset == row.base_offset)


def segment_plan(rows: Sequence[Coordinates], token: ClaimToken | None = None) -> SegmentPlan:
    return SegmentPlan(
        token=token or ClaimToken(uuid4()),
        topic_id=TOPIC,
        topic_name="orders",
        partition=rows[0].partition,
        base_offset=rows[0].base_offset,
        last_offset=rows[-1].last_offset,
        size_bytes=sum(row.byte_size for row in rows),
        index_interval_bytes=200,
        rows=rows,
    )


def split_plan(rows: Sequence[Coordinates]) -> SplitPlan:
    return SplitPlan(token=ClaimToken(uuid4()), topic_name="orders", rows=rows)


def merge_of(plans: Sequence[SegmentPlan]) -> MergeTask:
    return MergeTask(parts=plans)


def swapped(world: World, done: TaskDone) -> Iterator[int]:
    """Put the rows of split files in the place of the rows that they replace."""
    for made in done.made:
        for part in made.parts:
            partition = int(part.old_rows[0].partition)
            first = row_index(world.rows[partition], part.old_rows[0])
            world.rows[partition][first : first + len(part.old_rows)] = part.new_rows
            yield partition
