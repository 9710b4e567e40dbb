"""A topic's write and read path on a real control plane and a store in memory."""

import os
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.support.appends import durable
from tests.support.ledgers import ControlWrapper
from tests.unit.block.rig import soon
from tests.unit.topic.segments import SegmentsInMemory

from stratalog.batch.build import build_batch
from stratalog.batch.records import Record, iter_records
from stratalog.block.batch_index import BatchIndex
from stratalog.block.fresh_blocks import FreshBlocks
from stratalog.block.reader import BlockReader
from stratalog.block.writer import BlockWriter
from stratalog.clock import Clock, SystemClock
from stratalog.control.errors import ControlUnavailableError
from stratalog.control.log.model import FoundBatches, Span, WriteTier
from stratalog.control.open import open_control_plane
from stratalog.control.plane import ControlPlane
from stratalog.control.segments.model import EpochStart, Segment, SegmentToAdd, SegmentUploaded
from stratalog.control.topics.model import Topic
from stratalog.ids import (
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    SegmentId,
    TopicPartition,
)
from stratalog.metrics import Metrics
from stratalog.objects.faulty import FaultyStore, ScriptedFaults
from stratalog.objects.open import open_store
from stratalog.pieces import PiecesWanted
from stratalog.segment.model import AbortedTransaction as Aborted
from stratalog.settings import BlockSettings
from stratalog.topic.aborted import AbortedTransactions
from stratalog.topic.append import Appender, PendingAppend, TopicAppender
from stratalog.topic.catalog import TopicCatalog
from stratalog.topic.entry_checks import EntryLimits
from stratalog.topic.model import PartitionRead, PartitionWrite, PartitionWritten
from stratalog.topic.offsets import TopicOffsets
from stratalog.topic.open_tiers import open_tiers
from stratalog.topic.read import TopicReader
from stratalog.topic.times import RecordTimes
from stratalog.topic.watermarks import Watermarks

NOW_MS = SystemClock().now_ms()


class LookingControl(ControlWrapper):
    """Counts the looks of readers, lists all calls, fails while it is away, and lets a test step in
    before the answer to a look arrives."""

    def __init__(self, inner: ControlPlane) -> None:
        super().__init__(inner)
        self.looks = 0
        self.is_away = False
        self.calls: list[str] = []
        self.after_look: list[Callable[[list[FoundBatches]], Awaitable[list[FoundBatches]]]] = []

    async def around(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        self.calls.append(name)
        if self.is_away:
            raise ControlUnavailableError("the control plane is away")
        return await call()

    async def log_find_batches(
        self, spans: Sequence[Span], *, max_bytes: int | None = None
    ) -> list[FoundBatches]:
        self.looks += 1
        found = await self.inner.log.find_batches(spans, max_bytes=max_bytes)
        return await self.after_look.pop(0)(found) if self.after_look else found


class TopicRig:
    def __init__(self, control: ControlPlane, topic: Topic, database: Path, clock: Clock) -> None:
        self.control = LookingControl(control)
        self.topic = topic
        self._database = database
        self.faults = ScriptedFaults([])
        self.store = FaultyStore(
            open_store("memory:", clock=SystemClock()), self.faults, clock=SystemClock()
        )
        cache = FreshBlocks(0)
        self.watermarks = Watermarks(control=self.control, clock=clock, poll_ms=60_000)
        self.writer = BlockWriter(
            store=self.store,
            control=self.control,
            cache=cache,
            broker_id=lambda: BrokerId(1),
            settings=BlockSettings(window_ms=0, retry_ms=1),
            clock=clock,
            entropy=os.urandom,
            metrics=Metrics(),
            on_commit=self.watermarks.advanced,
        )
        self.catalog = TopicCatalog(control=self.control, clock=clock)
        self.appenders: dict[WriteTier, Appender] = {WriteTier.BLOCK: self.writer}
        self.blocks = BlockReader(store=self.store, cache=cache)
        self.segments = SegmentsInMemory()
        self._clock = clock
        self.appender = self.appender_with(EntryLimits())
        self.switch_remote_reads(on=True)

    def appender_with(self, limits: EntryLimits) -> TopicAppender:
        return TopicAppender(
            appenders=self.appenders,
            catalog=self.catalog,
            clock=self._clock,
            topic_defaults={},
            entry_limits=limits,
        )

    def switch_remote_reads(self, *, on: bool) -> None:
        segments = self.segments.reader
        self.reader = TopicReader(
            control=self.control,
            tiers=open_tiers(blocks=self.blocks, segments=segments, remote_reads=on),
            aborted=AbortedTransactions(
                metadata=self.control.segments, segments=segments, clock=self._clock
            ),
            watermarks=self.watermarks,
            clock=self._clock,
            max_bytes=1 << 20,
        )
        times = RecordTimes(
            blocks=self.blocks,
            index=BatchIndex(control=self.control, store=self.store),
            segments=segments,
            remote_reads=on,
        )
        self.offsets = TopicOffsets(control=self.control, times=times)

    @classmethod
    async def open(cls, folder: Path, *, partitions: int = 3) -> "TopicRig":
        database = folder / "control.db"
        control = await open_control_plane(f"sqlite:{database}")
        topic = await control.topics.create("events", partition_count=partitions, configs={})
        return cls(control, topic, database, SystemClock())

    async def close(self) -> None:
        await self.writer.close()
        await self.watermarks.close()
        await self.control.inner.close()

    # Writing.

    async def configure(self, **configs: str) -> None:
        """Set configs; `compression_type` means `compression.type`."""
        changes = {name.replace("_", "."): value for name, value in configs.items()}
        self.topic = await self.catalog.set_configs(self.topic, changes)

    async def append(self, partition: int, *data: bytes) -> PartitionWritten:
        [written] = await self.append_all({partition: b"".join(data)})
        return written

    async def append_all(self, writes: dict[int, bytes]) -> list[PartitionWritten]:
        return await soon(durable(await self.place(writes)))

    async def place(self, writes: dict[int, bytes]) -> PendingAppend:
        """Append, and do not wait until it is durable."""
        topics = await self.catalog.with_ids([self.topic.id])
        return await self.appender.append(
            [
                PartitionWrite(
                    topic=topics.get(self.topic.id, self.topic),
                    partition=PartitionIndex(partition),
                    data=memoryview(bytearray(data)),
                )
                for partition, data in writes.items()
            ]
        )

    async def convert(
        self, partition: int, *, up_to: int | None = None, aborted: Sequence[Aborted] = ()
    ) -> Segment:
        """Make a segment of the rows from the remote tier's end to one that ends at `up_to`."""
        key = self.part(partition)
        state = (await self.control.inner.log.partitions([key]))[key]
        rows = [
            row
            for row in await self.control.inner.log.all_coordinates(key, limit=1000)
            if row.last_offset >= state.block_start and (up_to is None or row.base_offset < up_to)
        ]
        wanted = PiecesWanted(offset=rows[0].base_offset, max_bytes=1 << 30, pieces=rows)
        log = b"".join((await self.blocks.read([wanted]))[0].parts)
        segment_id = SegmentId(uuid4())
        await self.control.inner.segments.add(
            SegmentToAdd(
                segment_id=segment_id,
                topic_id=key.topic_id,
                partition=key.partition,
                base_offset=rows[0].base_offset,
                last_offset=rows[-1].last_offset,
                size_bytes=len(log),
                max_timestamp=max(row.max_timestamp for row in rows),
                leader_epochs=[EpochStart(LeaderEpoch(0), rows[0].base_offset)],
                key_base=f"segments/{segment_id}",
            )
        )
        self.segments.put(segment_id, log, aborted)
        uploaded = SegmentUploaded(manifest="{}", stored_bytes=len(log), has_aborted=bool(aborted))
        await self.control.inner.segments.finish(segment_id, uploaded)
        await self.control.inner.segments.chain(segment_id)
        [segment] = [
            one
            for one in await self.control.inner.segments.chained(key, limit=1000)
            if one.segment_id == segment_id
        ]
        return segment

    def damage(self, statement: str, *values: object) -> None:
        """Change the control plane's tables behind its back."""
        with closing(sqlite3.connect(self._database, timeout=10)) as database, database:
            assert database.execute(statement, values).rowcount, "nothing was damaged"

    # Reading.

    def part(self, partition: int = 0) -> TopicPartition:
        return TopicPartition(self.topic.id, PartitionIndex(partition))

    def span(self, partition: int, offset: int, max_bytes: int = 1 << 20) -> Span:
        return Span(
            topic_id=self.topic.id,
            partition=PartitionIndex(partition),
            offset=Offset(offset),
            max_bytes=max_bytes,
        )

    async def read(
        self,
        *spans: Span,
        max_bytes: int = 1 << 20,
        min_bytes: int = 1,
        max_wait_ms: int = 0,
        committed: bool = False,
    ) -> list[PartitionRead]:
        return await soon(
            self.reader.read(
                spans,
                max_bytes=max_bytes,
                min_bytes=min_bytes,
                max_wait_ms=max_wait_ms,
                committed=committed,
            )
        )

    async def read_one(self, partition: int, offset: int) -> PartitionRead:
        [answer] = await self.read(self.span(partition, offset))
        return answer


def batch(*values: bytes, times: Sequence[int] | None = None) -> bytes:
    """Build a batch of the values, a millisecond apart unless `times` are given."""
    stamps = times or [NOW_MS + place for place in range(len(values))]
    return build_batch(
        [
            Record(place, stamp, None, value)
            for place, (value, stamp) in enumerate(zip(values, stamps, strict=True))
        ]
    )


def timed(*times: int) -> bytes:
    """A batch of records at these times after `NOW_MS`."""
    return batch(*(b"v" for _ in times), times=[NOW_MS + time for time in times])


def records(answer: PartitionRead) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in iter_records(b"".join(answer.parts))]


def in_another_object(found: FoundBatches, key: str) -> FoundBatches:
    """The same rows, said to be in an object of another name."""
    return replace(found, pieces=[row._replace(object_key=key) for row in found.rows])
