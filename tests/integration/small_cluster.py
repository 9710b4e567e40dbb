"""A real control plane and a real store with a little data in them, without a broker."""

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from tests.support.writers import announced_id

from stratalog.batch.build import build_batch
from stratalog.batch.entry import EntryBatch
from stratalog.batch.header import TimestampType, parse_header
from stratalog.batch.records import Record
from stratalog.block.block import OpenBlock, SealedBlock, seal
from stratalog.clock import SystemClock
from stratalog.control.log.model import CommitAnswer
from stratalog.control.open import open_control_plane
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.model import Topic
from stratalog.ids import BrokerId, ObjectId, PartitionIndex
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectStore
from stratalog.settings import HOUR_MS


class ShiftedClock(SystemClock):
    """The system's time, some hours later."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self.ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class SmallCluster:
    def __init__(self, control: ControlPlane, store: ObjectStore, database: Path) -> None:
        self.control = control
        self.store = store
        self.later = ShiftedClock(2 * HOUR_MS)
        """By this clock, all that was written is old."""
        self._database = database

    @classmethod
    async def open(cls, folder: Path, *, objects: str = "memory:") -> "SmallCluster":
        database = folder / "control.db"
        control = await open_control_plane(f"sqlite:{database}")
        return cls(control, open_store(objects, clock=SystemClock()), database)

    async def close(self) -> None:
        await self.control.close()
        await self.store.close()

    async def topic(self, name: str = "orders", partition_count: int = 2) -> Topic:
        return await self.control.topics.create(name, partition_count=partition_count, configs={})

    async def upload(
        self, topic: Topic, counts: Mapping[int, Sequence[int]], *, created_ms: int | None = None
    ) -> SealedBlock:
        """Store a block with batches of so many records per partition, and do not commit it."""
        now_ms = SystemClock().now_ms() if created_ms is None else created_ms
        block = OpenBlock()
        block.add(
            [
                _entry(topic, partition, count, now_ms)
                for partition, batches in counts.items()
                for count in batches
            ]
        )
        object_id = ObjectId(await announced_id(self.control, now_ms))
        self.damage("UPDATE writers SET announced_ms = 0")
        sealed = seal(
            block,
            object_id=object_id,
            broker_id=BrokerId(1),
            created_ms=now_ms,
        )
        await self.store.put(sealed.commit.key, sealed.parts)
        return sealed

    async def commit(self, block: SealedBlock) -> list[list[CommitAnswer]]:
        return await self.control.log.commit_blocks([block.commit])

    async def write(self, topic: Topic, counts: Mapping[int, Sequence[int]]) -> SealedBlock:
        block = await self.upload(topic, counts)
        await self.commit(block)
        return block

    async def keys(self) -> list[str]:
        return [info.key async for info in self.store.list("blocks/")]

    def damage(self, statement: str, *values: object) -> None:
        """Change the control plane's tables behind its back."""
        with closing(sqlite3.connect(self._database, timeout=10)) as database, database:
            changed = database.execute(statement, values).rowcount
            assert changed, f"nothing was damaged by {statement}"


def _entry(topic: Topic, partition: int, count: int, now_ms: int) -> EntryBatch:
    records = [Record(place, now_ms, b"key", b"value %d" % place) for place in range(count)]
    data = build_batch(records)
    return EntryBatch(
        topic_id=topic.id,
        topic_name=topic.name,
        partition=PartitionIndex(partition),
        timestamp_type=TimestampType.CREATE_TIME,
        header=parse_header(data),
        data=memoryview(data),
    )
