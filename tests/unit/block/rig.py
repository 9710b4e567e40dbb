"""A block writer on a real control plane, with a clock, a store and a control plane to interfere
with."""

import asyncio
import os
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tests.support.faulty_control import TroubledControl

from stratalog.batch.build import build_batch
from stratalog.batch.entry import EntryBatch
from stratalog.batch.header import TimestampType, parse_header
from stratalog.batch.records import Record
from stratalog.block.announced_writer import AnnouncedWriter
from stratalog.block.fresh_blocks import FreshBlocks
from stratalog.block.writer import Advanced, BlockWriter, OnRefused
from stratalog.clock import SystemClock
from stratalog.control.log.model import CommitAnswer, CommitOutcome
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.model import Topic
from stratalog.control.writers.model import WriterKind
from stratalog.ids import BrokerId, Offset, PartitionIndex, TopicPartition
from stratalog.metrics import Metrics
from stratalog.objects.faulty import FaultyStore, ScriptedFaults
from stratalog.objects.open import open_store
from stratalog.objects.store import Buffer, ObjectStore, Overwrite, PutMode
from stratalog.settings import BlockSettings
from stratalog.testing import ManualClock

T = TypeVar("T")

PATIENCE_S = 20.0
"""The longest wait of a test for an event that must come. Only a failing one waits that long."""


class TellingClock(ManualClock):
    """A clock that tells who goes to sleep on it, and for how long."""

    def __init__(self) -> None:
        super().__init__()
        self.naps: asyncio.Queue[float] = asyncio.Queue()

    async def sleep(self, seconds: float) -> None:
        self.naps.put_nowait(seconds)
        await super().sleep(seconds)

    async def next_nap(self) -> float:
        async with asyncio.timeout(PATIENCE_S):
            return await self.naps.get()

    async def pass_nap(self) -> float:
        """Wait for a sleeper, let its time pass, and return how long it was."""
        seconds = await self.next_nap()
        await self.advance(seconds)
        return seconds


class GatedStore(FaultyStore):
    """A store whose puts can be made to wait until they are let through one by one."""

    def __init__(self, inner: ObjectStore, faults: ScriptedFaults) -> None:
        super().__init__(inner, faults, clock=SystemClock())
        self.faults = faults
        self.gated = False
        self.waiting: asyncio.Queue[asyncio.Event] = asyncio.Queue()
        self.failure: Exception | None = None
        self._done: asyncio.Queue[str] = asyncio.Queue()

    async def put(
        self,
        key: str,
        parts: Sequence[Buffer],
        *,
        mode: PutMode = Overwrite(),  # noqa: B008 - immutable
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        if self.gated:
            gate = asyncio.Event()
            self.waiting.put_nowait(gate)
            await gate.wait()
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        etag = await super().put(key, parts, mode=mode, metadata=metadata)
        self._done.put_nowait(key)
        return etag

    async def until_put(self, count: int) -> None:
        """Wait until so many puts are done, and their waiters have run."""
        for _ in range(count):
            async with asyncio.timeout(PATIENCE_S):
                await self._done.get()
        await asyncio.sleep(0.01)

    async def next_put(self) -> asyncio.Event:
        """The gate of the next put that has begun."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.waiting.get()

    async def block_keys(self) -> list[str]:
        return [info.key async for info in self.list("blocks/")]


@dataclass
class Rig:
    control: TroubledControl
    topic: Topic
    clock: TellingClock = field(default_factory=TellingClock)
    store: GatedStore = field(
        default_factory=lambda: GatedStore(
            open_store("memory:", clock=SystemClock()), ScriptedFaults([])
        )
    )
    cache: FreshBlocks = field(default_factory=lambda: FreshBlocks(1 << 20))
    advanced: list[Advanced] = field(default_factory=list)
    writers: list[BlockWriter] = field(default_factory=list)
    metrics: Metrics = field(default_factory=Metrics)
    """Of the writer that was made last."""

    @classmethod
    async def on(cls, control: ControlPlane, *, partitions: int = 3) -> "Rig":
        topic = await control.topics.create("events", partition_count=partitions, configs={})
        return cls(TroubledControl(control), topic)

    async def announced(self) -> AnnouncedWriter:
        writers = self.control.inner.writers
        announced = AnnouncedWriter(writers.new_tag())
        await writers.announce(announced.tag, WriterKind.BROKER, BrokerId(7))
        return announced

    def writer(
        self,
        *,
        announced: AnnouncedWriter | None = None,
        on_refused: OnRefused | None = None,
        **settings: int,
    ) -> BlockWriter:
        """Without a budget for early blocks, unless the settings have one."""
        self.metrics = Metrics()
        writer = BlockWriter(
            store=self.store,
            control=self.control,
            cache=self.cache,
            broker_id=lambda: BrokerId(7),
            settings=BlockSettings(**{"requests_per_second": 0, **settings}),
            clock=self.clock,
            entropy=os.urandom,
            metrics=self.metrics,
            on_commit=lambda advanced: self.advanced.append(advanced),
            announced=announced,
            on_refused=on_refused,
        )
        self.writers.append(writer)
        return writer

    async def close(self) -> None:
        self.store.gated = False
        self.control.commit_troubles.clear()
        self.control.resolve_troubles.clear()
        for writer in self.writers:
            closing = asyncio.ensure_future(writer.close())
            while not closing.done():
                await self.clock.advance(60)
                await asyncio.wait([closing], timeout=0.01)

    def batch(
        self,
        partition: int = 0,
        *,
        value: bytes = b"value",
        records: int = 1,
        timestamp: int = 1000,
        producer: int = -1,
        epoch: int = 0,
        sequence: int = -1,
    ) -> EntryBatch:
        data = build_batch(
            [Record(place, timestamp + place, None, value) for place in range(records)],
            producer_id=producer,
            producer_epoch=epoch if producer >= 0 else -1,
            base_sequence=sequence,
        )
        return EntryBatch(
            topic_id=self.topic.id,
            topic_name=self.topic.name,
            partition=PartitionIndex(partition),
            timestamp_type=TimestampType.CREATE_TIME,
            header=parse_header(data),
            data=memoryview(bytearray(data)),
        )

    def sealed(self, reason: str) -> float:
        """Blocks that were sealed for this reason."""
        found = self.metrics.registry.get_sample_value(
            "stratalog_blocks_sealed_total", {"reason": reason}
        )
        return found or 0.0

    def part(self, partition: int = 0) -> TopicPartition:
        return TopicPartition(self.topic.id, PartitionIndex(partition))

    async def high_watermark(self, partition: int = 0) -> Offset:
        found = await self.control.inner.log.high_watermarks([self.part(partition)])
        return found[self.part(partition)]


async def soon(future: Awaitable[T]) -> T:
    """The answer of something that must not take long."""
    async with asyncio.timeout(PATIENCE_S):
        return await future


def offsets(answers: Sequence[CommitAnswer]) -> list[int]:
    return [answer.base_offset for answer in answers]


def outcomes(answers: Sequence[CommitAnswer]) -> list[CommitOutcome]:
    return [answer.outcome for answer in answers]
