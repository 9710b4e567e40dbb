"""A small cluster whose oldest records are in segments."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from tests.integration.small_cluster import SmallCluster
from tests.support.tiering import Converter
from tests.support.writers import announced_id

from stratalog.batch.build import build_batch
from stratalog.batch.entry import EntryBatch
from stratalog.batch.header import TimestampType, parse_header
from stratalog.batch.records import Record
from stratalog.block.block import OpenBlock, seal
from stratalog.checks.fsck import run_fsck
from stratalog.checks.remote_tier import RemoteTier, beside_blocks
from stratalog.checks.report import Promise, Report
from stratalog.checks.segment_repair import Repair, rebuild_indexes
from stratalog.clock import SystemClock
from stratalog.control.log.model import PartitionState
from stratalog.control.segments.model import Segment
from stratalog.control.topics.model import Topic
from stratalog.ids import BrokerId, ObjectId, Offset, PartitionIndex, TopicPartition
from stratalog.objects.errors import ObjectNotFoundError
from stratalog.segment.chunk_encoding import Encoding
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.keys import segment_keys

GOLDEN = Path(__file__).parents[1] / "golden"
KEYS = KeyRing.load(
    {"key1": GOLDEN / "test-only-public.pem"}, {"key1": GOLDEN / "test-only-private.pem"}, "key1"
)
MODES = {
    "plain": Encoding(chunk_bytes=16_000),
    "zstd": Encoding(chunk_bytes=16_000, compress=True),
    "aes": Encoding(chunk_bytes=16_000, encrypt=True),
    "both": Encoding(chunk_bytes=16_000, compress=True, encrypt=True),
}
_VALUE = bytes(range(256)) * 4
NOW_MS = 1_700_000_000_000


class SegmentCluster:
    """One topic. Each batch has ten records of a kilobyte, and a producer of its own."""

    def __init__(self, cluster: SmallCluster, topic: Topic, encoding: Encoding) -> None:
        self.cluster = cluster
        self.control = cluster.control
        self.store = cluster.store
        self.topic = topic
        self.key = TopicPartition(topic.id, PartitionIndex(0))
        self.converter = Converter(
            control=cluster.control, store=cluster.store, encoding=encoding, keys=KEYS
        )
        self._batches = 0

    @classmethod
    async def make(
        cls, cluster: SmallCluster, *, encoding: Encoding = MODES["plain"], segments: int = 3
    ) -> "SegmentCluster":
        """So many segments of 60 records, then 20 records in blocks."""
        made = cls(cluster, await cluster.topic(partition_count=1), encoding)
        for _ in range(segments):
            await made.write(6)
            await made.converter.convert(made.topic)
        await made.write(2)
        return made

    async def write(self, batches: int) -> None:
        await self.write_data([self._batch() for _ in range(batches)])

    async def write_data(self, batches: Sequence[bytes]) -> None:
        block = OpenBlock()
        block.add([self._entry(data) for data in batches])
        sealed = seal(
            block,
            object_id=ObjectId(await announced_id(self.control, SystemClock().now_ms())),
            broker_id=BrokerId(1),
            created_ms=SystemClock().now_ms(),
        )
        await self.store.put(sealed.commit.key, sealed.parts)
        await self.cluster.commit(sealed)

    @property
    def tier(self) -> RemoteTier:
        return RemoteTier(stores=beside_blocks(self.store), keys=KEYS)

    async def segments(self) -> list[Segment]:
        return await self.control.segments.chained(self.key, limit=1000)

    async def state(self) -> PartitionState:
        return (await self.control.log.partitions([self.key]))[self.key]

    async def unchain(self, offset: int) -> None:
        await self.control.log.delete_records({self.key: Offset(offset)})

    async def objects(self, segment: Segment) -> list[str]:
        """The suffixes of the objects that are there."""
        there = []
        for key in segment_keys(segment.key_base):
            try:
                await self.store.head(key)
            except ObjectNotFoundError:
                continue
            there.append(key.removeprefix(segment.key_base))
        return there

    async def segment_objects(self) -> list[str]:
        return [info.key async for info in self.store.list("segments/")]

    async def flip(self, key: str, position: int) -> None:
        data = bytearray((await self.store.get(key)).data)
        data[position] ^= 1
        await self.store.put(key, [data])

    async def cut(self, key: str, end: int) -> None:
        data = bytes((await self.store.get(key)).data)
        await self.store.put(key, [data[:end]])

    async def fsck(self, *, deep: bool = False, keys: KeyRing = KEYS) -> Report:
        tier = RemoteTier(stores=beside_blocks(self.store), keys=keys)
        return await run_fsck(
            self.control, self.store, deep=deep, clock=self.cluster.later, tier=tier
        )

    async def rebuild(self) -> Sequence[Repair]:
        return await rebuild_indexes(self.control, self.tier)

    def _batch(self) -> bytes:
        self._batches += 1
        return build_batch(
            [
                Record(place, NOW_MS + 10 * self._batches + place, b"key", _VALUE)
                for place in range(10)
            ],
            producer_id=1000 + self._batches,
            producer_epoch=0,
            base_sequence=0,
        )

    def _entry(self, data: bytes) -> EntryBatch:
        return EntryBatch(
            topic_id=self.topic.id,
            topic_name=self.topic.name,
            partition=PartitionIndex(0),
            timestamp_type=TimestampType.CREATE_TIME,
            header=parse_header(data),
            data=memoryview(data),
        )


def found(report: Report) -> set[tuple[str, Promise]]:
    return {(finding.where, finding.problem.promise) for finding in report.findings}


def told(report: Report) -> str:
    return "\n".join(map(str, report.findings))


class Acting:
    """A control plane or store that does something of its own before the nth of some calls."""

    def __init__(self, target: object, before: str, action: Any, *, nth: int = 1) -> None:
        self._target = target
        self._before = before
        self._action = action
        self._remaining = nth

    def __getattr__(self, name: str) -> Any:
        if name == self._before:
            self._remaining -= 1
            if self._remaining == 0:
                return self._acting(getattr(self._target, name))
        return getattr(self._target, name)

    def _acting(self, method: Any) -> Any:
        if self._before == "list":
            return self._listing(method)

        async def acting(*args: Any, **kwargs: Any) -> Any:
            await self._action()
            return await method(*args, **kwargs)

        return acting

    def _listing(self, method: Any) -> Any:
        async def listing(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            await self._action()
            async for info in method(*args, **kwargs):
                yield info

        return listing


class DiesError(Exception):
    """The process died here."""


class Dying:
    """Dies at the nth call of a method: before it has any effect, or after it had."""

    def __init__(self, target: object, method: str, nth: int, *, after: bool) -> None:
        self._target = target
        self._method = method
        self._left = nth
        self._after = after

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name)
        if name != self._method:
            return method

        async def dying(*args: Any, **kwargs: Any) -> Any:
            self._left -= 1
            if self._left:
                return await method(*args, **kwargs)
            if self._after:
                await method(*args, **kwargs)
            raise DiesError

        return dying
