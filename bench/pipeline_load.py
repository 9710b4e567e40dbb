"""Blocks for the measurements of the pipeline: made and committed without a broker, in seconds."""

import os
import random
import sqlite3
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

from stratalog.batch.build import build_batch
from stratalog.batch.entry import EntryBatch
from stratalog.batch.header import BatchHeader, TimestampType, parse_header
from stratalog.batch.records import Record
from stratalog.block.block import OpenBlock, seal
from stratalog.clock import SystemClock
from stratalog.control.log.model import CommitOutcome
from stratalog.control.open import open_control_plane
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.model import Topic
from stratalog.ids import BrokerId, ObjectId, PartitionIndex, uuid7
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectStore
from stratalog.opening.claim import claim_store
from stratalog.settings import Settings, StorageSettings, TieringSettings

KIB = 1024
MIB = 1024 * KIB
_RECORD_BYTES = 1000
_BROKER = BrokerId(1)


def folder_settings(folder: Path, tiering: TieringSettings) -> Settings:
    """As `stratalog up --data` has them."""
    storage = StorageSettings(
        objects=f"file:{folder / 'objects'}", control=f"sqlite:{folder / 'control.db'}"
    )
    return Settings(storage=storage, tiering=tiering)


@dataclass(frozen=True, slots=True)
class Batches:
    """A few batches of random bytes, used again and again: making them takes longer than storing
    them, and nothing in the pipeline looks into a batch beyond its header and its checksum."""

    data: Sequence[bytes]
    headers: Sequence[BatchHeader]

    @classmethod
    def of_sizes(cls, sizes: Iterable[int]) -> "Batches":
        data = [_batch(size_bytes) for size_bytes in sizes]
        return cls(data, [parse_header(one) for one in data])

    def entry(self, topic: Topic, partition: PartitionIndex, number: int) -> EntryBatch:
        return EntryBatch(
            topic_id=topic.id,
            topic_name=topic.name,
            partition=partition,
            timestamp_type=TimestampType.CREATE_TIME,
            header=self.headers[number],
            data=memoryview(self.data[number]),
        )


def usual_batches() -> Batches:
    """From 16 to 64 KiB, in no order."""
    sizes = [size_kib * KIB for size_kib in range(16, 65)]
    random.Random(1).shuffle(sizes)
    return Batches.of_sizes(sizes)


def _batch(size_bytes: int) -> bytes:
    sizes = [_RECORD_BYTES] * (size_bytes // _RECORD_BYTES) or [size_bytes]
    now_ms = SystemClock().now_ms()
    return build_batch([Record(at, now_ms, None, os.urandom(n)) for at, n in enumerate(sizes)])


@dataclass
class Filling:
    """A topic, and the records that were written into it."""

    control: ControlPlane
    store: ObjectStore
    topic: Topic
    batches: Batches
    size_bytes: int = 0
    written: dict[PartitionIndex, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Which of the batches each partition got, in order."""

    async def fill(self, size_bytes: int, block_bytes: int) -> None:
        """Blocks of so many bytes, in which every partition has as much as the others."""
        turns = cycle(range(self.topic.partition_count))
        numbers = cycle(range(len(self.batches.data)))
        while self.size_bytes < size_bytes:
            await self._commit(_until(block_bytes, turns, numbers, self.batches))

    async def one_each(self) -> None:
        """One block with one batch for each partition."""
        partitions = range(self.topic.partition_count)
        await self._commit([(at, at % len(self.batches.data)) for at in partitions])

    async def _commit(self, wanted: Sequence[tuple[int, int]]) -> None:
        block = OpenBlock()
        for at, number in wanted:
            partition = PartitionIndex(at)
            block.add([self.batches.entry(self.topic, partition, number)])
            self.written[partition].append(number)
        now_ms = SystemClock().now_ms()
        object_id = ObjectId(uuid7(now_ms))
        sealed = seal(block, object_id=object_id, broker_id=_BROKER, created_ms=now_ms)
        await self.store.put(sealed.commit.key, sealed.parts)
        [answers] = await self.control.log.commit_blocks([sealed.commit])
        assert all(answer.outcome is CommitOutcome.ACCEPTED for answer in answers)
        self.size_bytes += block.size_bytes


def _until(
    size_bytes: int, turns: Iterator[int], numbers: Iterator[int], batches: Batches
) -> list[tuple[int, int]]:
    chosen: list[tuple[int, int]] = []
    while size_bytes > 0:
        chosen.append((next(turns), next(numbers)))
        size_bytes -= len(batches.data[chosen[-1][1]])
    return chosen


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[tuple[ControlPlane, ObjectStore]]:
    control = await open_control_plane(settings.storage.control)
    store = open_store(settings.storage.objects, clock=SystemClock())
    await claim_store(control, store)
    yield control, store
    await store.close()
    await control.close()


def row_count(settings: Settings) -> int:
    """All rows that the control plane keeps, including rows that wait for their deletion."""
    path = settings.storage.control.removeprefix("sqlite:")
    with closing(sqlite3.connect(path)) as database:
        (count,) = database.execute("SELECT count(*) FROM batches").fetchone()
    return int(count)


async def object_counts(store: ObjectStore) -> dict[str, int]:
    """By the first part of their key."""
    counts: dict[str, int] = defaultdict(int)
    async for info in store.list(""):
        first, slash, _ = info.key.partition("/")
        if slash:
            counts[first] += 1
    return dict(counts)
