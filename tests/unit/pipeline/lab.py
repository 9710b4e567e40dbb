"""A cluster without brokers: a real control plane, a real store, drivers whose jobs run in the
test's own process, and a dictionary of the records that were written."""

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from tests.support.writers import announced_id
from tests.unit.pipeline.local_jobs import LocalJobs

from stratalog.batch.build import build_batch
from stratalog.batch.entry import EntryBatch
from stratalog.batch.frames import check_crc, iter_batches
from stratalog.batch.header import TimestampType, parse_header
from stratalog.batch.records import Record, decode_records
from stratalog.block.block import OpenBlock, SealedBlock, seal
from stratalog.block.fresh_blocks import FreshBlocks
from stratalog.block.reader import BlockReader
from stratalog.block.witness import WITNESS_PREFIX
from stratalog.clock import Clock, SystemClock
from stratalog.control.log.model import CommitOutcome, PartitionState, Span
from stratalog.control.open import open_control_plane, open_database
from stratalog.control.pipeline.model import ClaimWish, UnitKind
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.model import Topic
from stratalog.ids import (
    NO_PRODUCER,
    BrokerId,
    ObjectId,
    Offset,
    PartitionIndex,
    TopicPartition,
)
from stratalog.janitor.retention import Retention
from stratalog.janitor.service import Janitor, StepOutcome
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectStore
from stratalog.opening.claim import claim_segments, claim_store
from stratalog.pipeline.driver import BOTH, Driver
from stratalog.pipeline.open import opened_driver
from stratalog.pipeline.report import Report
from stratalog.pipeline.workplace import workplace_of
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.reader import SegmentReader
from stratalog.segment.stores import SegmentStores
from stratalog.settings import (
    DAY_MS,
    HOUR_MS,
    JanitorSettings,
    RemoteSettings,
    Settings,
    StorageSettings,
    TieringSettings,
)
from stratalog.topic.open_tiers import open_tiers
from stratalog.topic.tiers import Look, Tiers

MERGE, SPLIT = [UnitKind.MERGE], [UnitKind.SPLIT]
EAGER = TieringSettings(age_ms=0, min_segment_bytes=1, max_rows=4, task_bytes=2000)
"""All that is there has aged and is worth a segment."""
PATIENT = replace(EAGER, min_segment_bytes=1 << 20)
"""All that is there has aged, and nothing is worth a segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBatch:
    base: int
    end: int
    size_bytes: int
    age_ms: int


class Lab:
    def __init__(self, settings: Settings, control: ControlPlane, store: ObjectStore) -> None:
        self.settings = settings
        self.control = control
        self.store = store
        self.written: dict[TopicPartition, list[bytes]] = defaultdict(list)
        """The value of every record that was ever committed, by offset."""
        self.batches: dict[TopicPartition, list[WrittenBatch]] = defaultdict(list)
        self.deleted: dict[TopicPartition, int] = defaultdict(int)
        self.lost: defaultdict[TopicPartition, set[int]] = defaultdict(set)
        """Below which offset records are deleted."""
        self._numbers = count()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        folder: Path,
        *,
        control_url: str | None = None,
        tiering: TieringSettings = EAGER,
        remote: RemoteSettings | None = None,
    ) -> AsyncIterator["Lab"]:
        settings = Settings(
            storage=StorageSettings(
                objects=f"file:{folder / 'objects'}",
                control=control_url or f"sqlite:{folder / 'control.db'}",
            ),
            tiering=tiering,
            remote=remote or RemoteSettings(),
            janitor=JanitorSettings(
                interval_ms=0,
                grace_ms=0,
                backup_window_ms=0,
                deleted_topic_window_ms=0,
                orphan_age_ms=0,
                unfinished_age_ms=0,
                answers_ms=0,
            ),
        )
        control = await open_control_plane(settings.storage.control)
        store = open_store(settings.storage.objects, clock=SystemClock())
        own = store
        if settings.remote.objects is not None:
            own = open_store(settings.remote.objects, clock=SystemClock())
        await claim_store(control, store)
        await claim_segments(control, store, own)
        yield cls(settings, control, store)
        if own is not store:
            await own.close()
        await store.close()
        await control.close()

    def number_from(self, first: int) -> None:
        """Let the next record's value be this one."""
        self._numbers = count(first)

    async def topic(self, partitions: int = 2, name: str = "orders", **configs: str) -> Topic:
        given = {name.replace("_", "."): value for name, value in configs.items()}
        return await self.control.topics.create(name, partition_count=partitions, configs=given)

    # Writing.

    async def write(
        self,
        topic: Topic,
        counts: Mapping[int, Sequence[int]],
        *,
        producer: int = NO_PRODUCER,
        age_ms: int = 0,
    ) -> SealedBlock:
        """Commit a block with batches of so many records per partition, which say so old."""
        return await self.write_both([(topic, counts)], producer=producer, age_ms=age_ms)

    async def write_both(
        self,
        wanted: Sequence[tuple[Topic, Mapping[int, Sequence[int]]]],
        *,
        producer: int = NO_PRODUCER,
        age_ms: int = 0,
    ) -> SealedBlock:
        """Commit a block with batches of several topics."""
        values = [
            (topic, partition, self.values(records))
            for topic, counts in wanted
            for partition, batches in counts.items()
            for records in batches
        ]
        block = OpenBlock()
        now_ms = SystemClock().now_ms()
        entries = [entry(*one, producer, now_ms - age_ms) for one in values]
        block.add(entries)
        sealed = seal(
            block,
            object_id=ObjectId(await announced_id(self.control, now_ms)),
            broker_id=BrokerId(1),
            created_ms=now_ms,
        )
        await self.store.put(sealed.commit.key, sealed.parts)
        [answers] = await self.control.log.commit_blocks([sealed.commit])
        assert all(answer.outcome is CommitOutcome.ACCEPTED for answer in answers)
        for (topic, partition, batch), made in zip(values, entries, strict=True):
            self.note(topic, partition, batch, size_bytes=len(made.data), age_ms=age_ms)
        return sealed

    def values(self, records: int) -> list[bytes]:
        return [b"value %d" % next(self._numbers) for _ in range(records)]

    def note(
        self,
        topic: Topic,
        partition: int,
        values: Sequence[bytes],
        *,
        size_bytes: int,
        age_ms: int = 0,
    ) -> None:
        """A batch was committed."""
        written = self.written[_key(topic, partition)]
        end = len(written) + len(values)
        batch = WrittenBatch(base=len(written), end=end, size_bytes=size_bytes, age_ms=age_ms)
        self.batches[_key(topic, partition)].append(batch)
        written.extend(values)

    async def fill(self, topic: Topic, blocks: int = 6, records: int = 3) -> None:
        for _ in range(blocks):
            await self.write(topic, {p: [records, 1] for p in range(topic.partition_count)})

    async def delete_records(self, topic: Topic, partition: int, offset: int) -> None:
        await self.control.log.delete_records({_key(topic, partition): Offset(offset)})
        key = _key(topic, partition)
        self.deleted[key] = max(self.deleted[key], offset)

    # Converting.

    def jobs(self) -> LocalJobs:
        return LocalJobs(workplace_of(self.settings))

    @asynccontextmanager
    async def driver(
        self,
        jobs: LocalJobs | None = None,
        *,
        control: ControlPlane | None = None,
        clock: Clock | None = None,
        clean: bool = False,
    ) -> AsyncIterator[Driver]:
        jobs = jobs or self.jobs()
        opened = opened_driver(
            self.settings,
            jobs.open,
            control=control or self.control,
            clock=clock,
            holder="test",
            clean=clean,
            wrap=jobs.wrap,
        )
        async with opened as driver:
            yield driver

    async def run(
        self,
        jobs: LocalJobs | None = None,
        kinds: Sequence[UnitKind] = BOTH,
        *,
        control: ControlPlane | None = None,
    ) -> Report:
        async with self.driver(jobs, control=control) as driver:
            return await driver.run(kinds)

    async def clean(
        self, *, control: ControlPlane | None = None, store: ObjectStore | None = None
    ) -> list[StepOutcome]:
        """The janitor, to whom everything is old."""
        janitor = Janitor(
            control=control or self.control,
            store=store or self.store,
            retention_of=lambda _: Retention(ms=None, bytes=None),
            settings=self.settings.janitor,
            offsets_retention_ms=DAY_MS,
            clock=SystemClock(),
            segment_prefix=self.settings.remote.prefix,
        )
        outcomes = []
        for _ in range(2):  # The second round takes the objects that the first marks or bars.
            outcomes += await janitor.run_once()
        assert [outcome.error for outcome in outcomes if outcome.error] == []
        return outcomes

    # Looking.

    async def state(self, topic: Topic, partition: int) -> PartitionState:
        key = _key(topic, partition)
        return (await self.control.log.partitions([key]))[key]

    async def rows(self, topic: Topic, partition: int) -> int:
        return len(await self.control.log.all_coordinates(_key(topic, partition), limit=100_000))

    async def segments(self, topic: Topic, partition: int) -> list[tuple[int, int]]:
        found = await self.control.segments.chained(_key(topic, partition), limit=1000)
        return [(segment.base_offset, segment.end_offset) for segment in found]

    async def keys(self, prefix: str = "") -> list[str]:
        found = [info.key async for info in self.store.list(prefix)]
        return [key for key in found if "/" in key]

    async def check(self, topic: Topic) -> None:
        """Every record that was not deleted is there, once, at its offset, whatever holds it."""
        reader = self.segment_reader()
        blocks = BlockReader(store=self.store, cache=FreshBlocks(0))
        tiers = open_tiers(blocks=blocks, segments=reader)
        for partition in range(topic.partition_count):
            key = _key(topic, partition)
            state = (await self.control.log.partitions([key]))[key]
            assert state.high_watermark == len(self.written[key])
            assert state.log_start == self.deleted[key]
            found = await self._read(tiers, state)
            wanted = dict(enumerate(self.written[key]))
            assert found == {
                o: v
                for o, v in wanted.items()
                if o >= self.deleted[key] and o not in self.lost[key]
            }
        await reader.close()

    def segment_reader(self) -> SegmentReader:
        stores = SegmentStores(self.store, lambda url: self.store)
        remote = self.settings.remote
        keys = KeyRing.load(remote.public_keys, remote.private_keys, remote.encryption_key)
        return SegmentReader(stores=stores, keys=keys, settings=remote)

    async def _read(self, tiers: Tiers, state: PartitionState) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        offset = state.log_start
        while offset < state.high_watermark:
            span = Span(
                topic_id=state.topic_id,
                partition=state.partition,
                offset=offset,
                max_bytes=300,
            )
            [answer] = await self.control.log.find_batches([span])
            [read] = await tiers.read(
                [Look(span=span, found=answer, end=state.high_watermark)], 300
            )
            assert read.error is None
            data = b"".join(read.parts)
            for position, header in iter_batches(data):
                check_crc(memoryview(data), position, header)
                for record in decode_records(data, position):
                    if record.offset >= state.log_start:
                        assert found.setdefault(record.offset, record.value or b"") == record.value
                offset = Offset(header.last_offset + 1)
            assert data
        return found

    async def check_clean(self) -> None:
        """After the janitor, the store holds exactly the objects that rows and segments name."""
        await self.clean()
        named: set[str] = set()
        for topic in await self.control.topics.all():
            for partition in range(topic.partition_count):
                key = _key(topic, partition)
                rows = await self.control.log.all_coordinates(key, limit=100_000)
                named |= {row.object_key for row in rows}
        for segment in await self.control.segments.all(limit=100_000):
            assert segment.chained
            suffixes = (".log", ".indexes", ".rsm-manifest")
            named |= {segment.key_base + suffix for suffix in suffixes}
        # The broker of a slow test has been idle for long enough to leave a witness of its commits.
        keys = {key for key in await self.keys() if not key.startswith(WITNESS_PREFIX)}
        assert keys == named


def _key(topic: Topic, partition: int) -> TopicPartition:
    return TopicPartition(topic.id, PartitionIndex(partition))


def entry(
    topic: Topic, partition: int, values: Sequence[bytes], producer: int, time_ms: int
) -> EntryBatch:
    idempotent = producer != NO_PRODUCER
    data = build_batch(
        [Record(n, time_ms, b"key", value) for n, value in enumerate(values)],
        producer_id=producer,
        producer_epoch=0 if idempotent else -1,
        base_sequence=0 if idempotent else -1,
    )
    return EntryBatch(
        topic_id=topic.id,
        topic_name=topic.name,
        partition=PartitionIndex(partition),
        timestamp_type=TimestampType.CREATE_TIME,
        header=parse_header(data),
        data=memoryview(data),
    )


def path_of(lab: Lab, key: str) -> Path:
    """Where the folder store keeps an object."""
    return Path(lab.settings.storage.objects.removeprefix("file:")) / key


def spoil(lab: Lab, sealed: SealedBlock, partition: int) -> None:
    """Change a byte in the middle of a partition's batches in a block."""
    path = path_of(lab, sealed.commit.key)
    data = bytearray(path.read_bytes())
    batch = next(b for b in sealed.commit.batches if b.partition == partition)
    data[batch.byte_offset + batch.byte_size - 2] ^= 0xFF
    path.chmod(0o644)
    path.write_bytes(data)


def using(lab: Lab, tiering: TieringSettings) -> Lab:
    lab.settings = replace(lab.settings, tiering=tiering)
    return lab


async def expire_claims(lab: Lab) -> None:
    """As if the claims' time were over."""
    await change(lab, "UPDATE claims SET expires_ms = 0")


async def change(lab: Lab, statement: str) -> None:
    database = await open_database(lab.settings.storage.control)
    await database.write(lambda connection: connection.execute(statement))
    await database.close()


async def number_in(lab: Lab, query: str) -> int:
    """The number that a query of the control plane's database answers."""
    database = await open_database(lab.settings.storage.control)
    [(number,)] = await database.read(lambda connection: connection.fetch(query))
    await database.close()
    return int(number)


async def take_over(lab: Lab, topic: Topic, kind: UnitKind = UnitKind.MERGE) -> None:
    """Another run claims all partitions, and has done nothing yet."""
    await expire_claims(lab)
    run = await lab.control.pipeline.begin_run("another")
    wishes = [
        ClaimWish(
            partition=TopicPartition(topic.id, PartitionIndex(index)),
            kind=kind,
            first_offset=Offset(0),
            end_offset=Offset(1),
        )
        for index in range(topic.partition_count)
    ]
    claims = await lab.control.pipeline.claim_ranges(
        run.run_id, wishes, duration_ms=HOUR_MS, max_attempts=5
    )
    assert len(claims) == topic.partition_count
