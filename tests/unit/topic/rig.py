"""A topic's write and read path on a real control plane and a store in memory."""

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tests.faults.controls import ControlWrapper
from tests.unit.block.rig import soon

from stratalog.batch.build import build_batch
from stratalog.batch.records import Record, iter_records
from stratalog.block.cache import FreshBlocks
from stratalog.block.reader import BlockReader
from stratalog.block.writer import BlockWriter
from stratalog.clock import Clock, SystemClock
from stratalog.control.model import FoundBatches, Span, Topic
from stratalog.control.open import open_control_plane
from stratalog.control.plane import ControlPlane
from stratalog.ids import BrokerId, Offset, PartitionIndex, TopicPartition
from stratalog.metrics import Metrics
from stratalog.objects.faulty import FaultyStore, ScriptedFaults
from stratalog.objects.open import open_store
from stratalog.settings import BlockSettings
from stratalog.topic.append import TopicAppender
from stratalog.topic.catalog import TopicCatalog
from stratalog.topic.model import PartitionRead, PartitionWrite, PartitionWritten
from stratalog.topic.read import TopicReader
from stratalog.topic.watch import Watermarks

NOW_MS = SystemClock().now_ms()


class LookingControl(ControlWrapper):
    """Counts the looks of readers, and lets a test step in before a look's answer arrives."""

    def __init__(self, inner: ControlPlane) -> None:
        super().__init__(inner)
        self.looks = 0
        self.after_look: list[Callable[[list[FoundBatches]], Awaitable[list[FoundBatches]]]] = []

    async def find_batches(self, spans: Sequence[Span]) -> list[FoundBatches]:
        self.looks += 1
        found = await self.inner.find_batches(spans)
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
        self.watermarks = Watermarks(control=self.control.plane, clock=clock, poll_ms=60_000)
        self.writer = BlockWriter(
            store=self.store,
            control=self.control.plane,
            cache=cache,
            broker_id=lambda: BrokerId(1),
            settings=BlockSettings(window_ms=0, retry_ms=1),
            clock=clock,
            entropy=os.urandom,
            metrics=Metrics(),
            on_commit=self.watermarks.advanced,
        )
        self.catalog = TopicCatalog(control=self.control.plane, clock=clock)
        self.appender = TopicAppender(
            writer=self.writer, catalog=self.catalog, clock=clock, topic_defaults={}
        )
        self.reader = TopicReader(
            control=self.control.plane,
            blocks=BlockReader(store=self.store, cache=cache),
            watermarks=self.watermarks,
            clock=clock,
            max_bytes=1 << 20,
        )

    @classmethod
    async def open(cls, folder: Path, *, partitions: int = 3) -> "TopicRig":
        database = folder / "control.db"
        control = await open_control_plane(f"sqlite:{database}")
        topic = await control.create_topic("events", partition_count=partitions, configs={})
        return cls(control, topic, database, SystemClock())

    async def close(self) -> None:
        await self.writer.close()
        await self.watermarks.close()
        await self.control.inner.close()

    # Writing.

    async def configure(self, **configs: str) -> None:
        """Set configs; `compression_type` means `compression.type`."""
        changes = {name.replace("_", "."): value for name, value in configs.items()}
        self.topic = await self.control.inner.set_configs(self.topic.id, changes)

    async def append(self, partition: int, *data: bytes) -> PartitionWritten:
        [written] = await self.append_all({partition: b"".join(data)})
        return written

    async def append_all(self, writes: dict[int, bytes]) -> list[PartitionWritten]:
        return await soon(await self.place(writes))

    async def place(self, writes: dict[int, bytes]) -> "asyncio.Future[list[PartitionWritten]]":
        """Append, and do not wait until it is durable."""
        return await self.appender.append(
            [
                PartitionWrite(
                    topic=self.topic,
                    partition=PartitionIndex(partition),
                    data=memoryview(bytearray(data)),
                )
                for partition, data in writes.items()
            ]
        )

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
        self, *spans: Span, max_bytes: int = 1 << 20, min_bytes: int = 1, max_wait_ms: int = 0
    ) -> list[PartitionRead]:
        return await soon(
            self.reader.read(
                spans, max_bytes=max_bytes, min_bytes=min_bytes, max_wait_ms=max_wait_ms
            )
        )

    async def read_one(self, partition: int, offset: int) -> PartitionRead:
        [answer] = await self.read(self.span(partition, offset))
        return answer


def batch(*values: bytes, times: Sequence[int] | None = None) -> bytes:
    """A batch of the values, a millisecond apart unless told otherwise."""
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
    return replace(found, rows=[replace(row, object_key=key) for row in found.rows])
