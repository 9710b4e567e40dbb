"""A topic whose boundary between the tiers moves, those who move it, and those who read across it.

Records are written, converted and deleted from the block tier at the same time, converters die at
every step, and objects without a reference are deleted almost at once.
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TypeVar

from tests.support.appends import durable
from tests.support.ledgers import ControlWrapper
from tests.support.tiering import Converter, CrashError, Step

from stratalog.batch.build import build_batch
from stratalog.batch.records import Record, iter_records
from stratalog.block.fresh_blocks import FreshBlocks
from stratalog.block.reader import BlockReader
from stratalog.block.writer import BlockWriter
from stratalog.clock import SystemClock
from stratalog.control.log.errors import OffsetOutOfRangeError
from stratalog.control.log.model import FoundBatches, PartitionState, Span, WriteTier
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.model import Topic
from stratalog.errors import StaleError
from stratalog.ids import BrokerId, Offset, PartitionIndex, TopicPartition
from stratalog.janitor.deletion import delete_marked
from stratalog.janitor.segment_deletion import delete_doomed
from stratalog.metrics import Metrics
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.objects.store import ObjectStore
from stratalog.objects.wrapped import WrappedStore
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.reader import SegmentReader
from stratalog.segment.stores import SegmentStores
from stratalog.settings import BlockSettings, RemoteSettings
from stratalog.topic.aborted import AbortedTransactions
from stratalog.topic.append import TopicAppender
from stratalog.topic.catalog import TopicCatalog
from stratalog.topic.model import PartitionWrite
from stratalog.topic.open_tiers import open_tiers
from stratalog.topic.read import TopicReader
from stratalog.topic.watermarks import Watermarks

PARTITIONS = 2
GRACE_MS = 20
HELD_S = 0.08
HELD_CHANCE = 0.15
"""Objects are deleted so soon, and some readers are so slow between a look and its read, that
they find objects gone now and then, and have to look again."""
KEPT_RECORDS = 300
MOST_RECORDS_AHEAD = 40
LIMIT_SECONDS = 90.0
"""An idle machine needs a fifth of it."""
CLOCK = SystemClock()

T = TypeVar("T")
Run = Coroutine[None, None, None]


class Watching(ControlWrapper):
    """Remembers the last boundaries that readers got, and the results of their looks."""

    def __init__(self, inner: ControlPlane) -> None:
        super().__init__(inner)
        self.states: dict[int, PartitionState] = {}
        self.seen: Counter[str] = Counter()
        self._random = Random(PARTITIONS)

    async def log_find_batches(
        self, spans: Sequence[Span], *, max_bytes: int | None = None
    ) -> list[FoundBatches]:
        found = await self.inner.log.find_batches(spans, max_bytes=max_bytes)
        if self._random.random() < HELD_CHANCE:
            await asyncio.sleep(HELD_S)
        for one in found:
            self.seen["looks"] += 1
            self.seen["looks across the boundary"] += bool(one.segments and one.rows)
            if one.state is not None:
                self.states[one.state.partition] = one.state
        return found


class Counting(WrappedStore):
    """Counts the objects that were gone when they were read."""

    def __init__(self, inner: ObjectStore, seen: Counter[str]) -> None:
        super().__init__(inner)
        self._seen = seen

    async def _around(self, operation: str, key: str, call: Callable[[], Awaitable[T]]) -> T:
        try:
            return await call()
        except ObjectNotFoundError:
            self._seen["objects gone"] += 1
            raise


@dataclass
class Scene:
    """A topic on a real control plane and a real folder, and a reader as a broker has it."""

    folder: Path
    control: ControlPlane
    """The side that writes, converts and deletes."""
    reading: Watching
    """The readers' own, so that they do not take turns with the others."""
    store: ObjectStore
    topic: Topic
    enough: Callable[[], bool] = lambda: False
    """Asked after every crossing whether it is over."""
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def seen(self) -> Counter[str]:
        return self.reading.seen

    def part(self, partition: int) -> TopicPartition:
        return TopicPartition(self.topic.id, PartitionIndex(partition))

    async def state(self, partition: int) -> PartitionState:
        key = self.part(partition)
        return (await self.control.log.partitions([key]))[key]

    @property
    def stores(self) -> SegmentStores:
        return SegmentStores(self.store, _no_other)

    @asynccontextmanager
    async def topic_reader(self, *, caches: bool) -> AsyncIterator[TopicReader]:
        settings = RemoteSettings()
        if not caches:
            settings = replace(settings, index_cache_bytes=0, chunk_cache_bytes=0)
        store = Counting(self.store, self.seen)
        stores = SegmentStores(store, _no_other)
        segments = SegmentReader(stores=stores, keys=KeyRing(), settings=settings)
        watermarks = Watermarks(control=self.reading, clock=CLOCK, poll_ms=20)
        blocks = BlockReader(store=store, cache=FreshBlocks(0))
        try:
            yield TopicReader(
                control=self.reading,
                tiers=open_tiers(blocks=blocks, segments=segments),
                aborted=AbortedTransactions(
                    metadata=self.reading.segments, segments=segments, clock=CLOCK
                ),
                watermarks=watermarks,
                clock=CLOCK,
                max_bytes=1 << 20,
            )
        finally:
            await watermarks.close()
            await segments.close()


def _no_other(url: str) -> ObjectStore:
    raise AssertionError(url)


def value_at(partition: int, offset: int) -> bytes:
    return b"%d of partition %d" % (offset, partition)


# The workers that make the boundary move.


async def write(scene: Scene, random: Random) -> None:
    """Batches of a few records to all partitions, not too far ahead of the converters."""
    writer = BlockWriter(
        store=scene.store,
        control=scene.control,
        cache=FreshBlocks(0),
        broker_id=lambda: BrokerId(1),
        settings=BlockSettings(window_ms=0),
        clock=CLOCK,
        entropy=os.urandom,
        metrics=Metrics(),
        on_commit=lambda _: None,
    )
    appender = TopicAppender(
        appenders={WriteTier.BLOCK: writer},
        catalog=TopicCatalog(control=scene.control, clock=CLOCK),
        clock=CLOCK,
        topic_defaults={},
    )
    ends = [0] * PARTITIONS
    try:
        while not scene.over.is_set():
            behind = [end - (await scene.state(place)).remote_end for place, end in enumerate(ends)]
            if max(behind) > MOST_RECORDS_AHEAD:
                await asyncio.sleep(0.005)
                continue
            counts = [random.randint(1, 6) for _ in range(PARTITIONS)]
            writes = [
                PartitionWrite(
                    topic=scene.topic,
                    partition=PartitionIndex(place),
                    data=memoryview(bytearray(_batch(place, ends[place], count))),
                )
                for place, count in enumerate(counts)
            ]
            written = await durable(await appender.append(writes))
            assert [one.base_offset for one in written] == ends
            ends = [end + count for end, count in zip(ends, counts, strict=True)]
    finally:
        await writer.close()


def _batch(partition: int, base: int, count: int) -> bytes:
    now_ms = CLOCK.now_ms()
    return build_batch(
        [Record(place, now_ms, None, value_at(partition, base + place)) for place in range(count)]
    )


async def convert(scene: Scene, random: Random, *, crash_chance: float) -> None:
    converter = Converter(control=scene.control, store=scene.store)
    while not scene.over.is_set():
        partition = random.randrange(PARTITIONS)
        crash = random.choice(list(Step)) if random.random() < crash_chance else None
        try:
            made = await converter.convert(
                scene.topic, partition, max_rows=random.randint(1, 5), crash_after=crash
            )
            scene.seen["segments"] += made is not None
        except CrashError as error:
            scene.seen[f"crashes after {error}"] += 1
        except (StaleError, ObjectNotFoundError):
            # Records were deleted meanwhile, or rows moved into a split file.
            scene.seen["overtaken conversions"] += 1
        await asyncio.sleep(0)


async def delete(scene: Scene) -> None:
    """Retention, and everything that a janitor deletes, with next to no grace."""
    while not scene.over.is_set():
        for partition in range(PARTITIONS):
            state = await scene.state(partition)
            keep_from = state.high_watermark - KEPT_RECORDS
            if keep_from > state.log_start + KEPT_RECORDS // 4:
                await scene.control.log.delete_records({scene.part(partition): Offset(keep_from)})
        scene.seen["blocks deleted"] += await delete_marked(
            scene.control, scene.store, grace_ms=GRACE_MS, chunk_rows=1000
        )
        scene.seen["segments deleted"] += await delete_doomed(
            scene.control.segments, scene.stores, grace_ms=GRACE_MS, chunk_rows=1000
        )
        await asyncio.sleep(0.02)


# The readers.


async def run_through(
    scene: Scene, reader: TopicReader, random: Random, *, max_bytes: int, pause_s: float = 0
) -> None:
    """Begin about the boundary, mostly before it, read on until it lies behind, and again."""
    while not scene.over.is_set():
        partition = random.randrange(PARTITIONS)
        state = scene.reading.states.get(partition) or await scene.state(partition)
        about = state.remote_end + random.randint(-40, 10)
        start = max(state.log_start, min(about, state.high_watermark))
        position = await read_past_boundary(
            scene, reader, partition, start, max_bytes=max_bytes, pause_s=pause_s
        )
        if position is not None and start < state.remote_end:
            scene.seen["crossings"] += 1
            if scene.enough():
                scene.over.set()


async def read_past_boundary(
    scene: Scene, reader: TopicReader, partition: int, start: int, *, max_bytes: int, pause_s: float
) -> int | None:
    """The offset that was reached, or None if it was deleted before it could be read."""
    position = start
    while not scene.over.is_set():
        span = Span(
            topic_id=scene.topic.id,
            partition=PartitionIndex(partition),
            offset=Offset(position),
            max_bytes=max_bytes,
        )
        [answer] = await reader.read([span], max_bytes=1 << 20, min_bytes=1, max_wait_ms=200)
        scene.seen["reads"] += 1
        if isinstance(answer.error, OffsetOutOfRangeError):
            assert position < answer.log_start, answer.error
            return None
        if isinstance(answer.error, ObjectNotFoundError):
            # Twice in a row it took too long from the look to the read.
            scene.seen["failed reads"] += 1
            continue
        assert answer.error is None, answer.error
        position = check_records(partition, position, b"".join(answer.parts))
        if position > scene.reading.states[partition].remote_end:
            return position
        if pause_s:
            await asyncio.sleep(pause_s)
    return None


def check_records(partition: int, position: int, data: bytes) -> int:
    """Every offset once, in order, as it was written. Return the next one."""
    start = position
    for record in iter_records(data):
        if position == start and record.offset < start:
            continue  # The first batch may begin before the offset that was asked for.
        assert record.offset == position, f"offset {record.offset} where {position} is next"
        assert record.value == value_at(partition, record.offset)
        position += 1
    return position


async def read_everything(scene: Scene, reader: TopicReader) -> None:
    for partition in range(PARTITIONS):
        state = await scene.state(partition)
        position = int(state.log_start)
        while position < state.high_watermark:
            span = Span(
                topic_id=scene.topic.id,
                partition=PartitionIndex(partition),
                offset=Offset(position),
                max_bytes=50_000,
            )
            [answer] = await reader.read([span], max_bytes=1 << 20, min_bytes=1, max_wait_ms=0)
            assert answer.error is None, answer.error
            position = check_records(partition, position, b"".join(answer.parts))
        assert position == state.high_watermark


def readers(scene: Scene, seed: int, cached: TopicReader, bare: TopicReader) -> list[Run]:
    """Fetches of a batch, of a few, and of more than there is; fast and slow."""
    random = Random(seed)
    return [
        run_through(scene, reader, Random(random.random()), max_bytes=max_bytes, pause_s=pause_s)
        for reader, max_bytes, pause_s in [
            (cached, 1, 0.0),
            (cached, 400, 0.0),
            (cached, 3000, 0.0),
            (cached, 1 << 20, 0.0),
            (bare, 1000, 0.0),
            (bare, 1 << 20, 0.0),
            (bare, 300, 0.01),
        ]
    ]


async def together(*work: Run) -> None:
    """Run all workers at once until they end, or until one fails."""
    try:
        async with asyncio.timeout(LIMIT_SECONDS), asyncio.TaskGroup() as group:
            for each in work:
                group.create_task(each)
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures
