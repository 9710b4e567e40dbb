"""A cluster for restore drills, on either database."""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from tests.unit.pipeline.lab import Lab, entry

from stratalog.backup.create import BackupSource, create_backup
from stratalog.backup.manifest import BackupManifest
from stratalog.backup.restore import restore_backup
from stratalog.block.block import OpenBlock, SealedBlock, seal
from stratalog.block.footer import (
    BlockFooter,
    EarlierAnswer,
    FooterPartition,
    FooterWriter,
    decode_footer,
    encode_footer,
)
from stratalog.checks.remote_tier import RemoteTier, beside_blocks
from stratalog.clock import SystemClock
from stratalog.control.log.model import CommitAnswer, CommitOutcome
from stratalog.control.open import open_control_plane, open_database
from stratalog.control.sql.database import Database
from stratalog.control.sql.dump import TableColumns, dump
from stratalog.control.topics.model import Topic
from stratalog.ids import (
    NO_OFFSET,
    NO_PRODUCER,
    BrokerId,
    ObjectId,
    Offset,
    TopicPartition,
    new_writer_tag,
    tagged_uuid7,
)
from stratalog.recovery.completion import RecoveryStores
from stratalog.recovery.report import RecoveryReport
from stratalog.segment.key_ring import KeyRing
from stratalog.settings import DAY_MS


def silent(stage: str, done: int, total: int | None) -> None:
    """Report no progress."""


async def back_up(lab: Lab) -> BackupManifest:
    source = BackupSource(
        database=lab.control.database, objects_url=lab.store.url, window_ms=DAY_MS
    )
    return await create_backup(source, lab.store, progress=silent)


def tier_of(lab: Lab) -> RemoteTier:
    return RemoteTier(stores=beside_blocks(lab.store), keys=KeyRing())


def stores_of(lab: Lab) -> RecoveryStores:
    return RecoveryStores(objects=lab.store, tier=tier_of(lab))


async def restore(
    lab: Lab, manifest: BackupManifest, url: str, *, skip_unproven: bool = False
) -> RecoveryReport:
    async with opened_database(url) as database:
        return await restore_backup(
            manifest,
            lab.store,
            database,
            stores_of(lab),
            skip_unproven=skip_unproven,
            progress=silent,
        )


@asynccontextmanager
async def opened_database(url: str) -> AsyncIterator[Database]:
    database = await open_database(url)
    try:
        yield database
    finally:
        await database.close()


class DrillWriter:
    """A process that writes blocks as a broker does: each footer tells of the blocks before it."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._tag = new_writer_tag()
        self._sequence = 0
        self._untold: dict[TopicPartition, list[EarlierAnswer]] = defaultdict(list)

    async def write(
        self, topic: Topic, counts: Mapping[int, Sequence[int]], *, producer: int = NO_PRODUCER
    ) -> SealedBlock:
        """Upload and commit a block, and note its records."""
        sealed, values = self.seal(topic, counts, producer)
        await self._lab.store.put(sealed.commit.key, sealed.parts)
        [answers] = await self._lab.control.log.commit_blocks([sealed.commit])
        self._learn(sealed, answers)
        for (partition, records), made in zip(values, sealed.batches, strict=True):
            self._lab.note(topic, partition, records, size_bytes=len(made.data))
        return sealed

    async def upload(self, topic: Topic, counts: Mapping[int, Sequence[int]]) -> SealedBlock:
        """Upload a block whose commit never comes."""
        sealed, _ = self.seal(topic, counts, NO_PRODUCER)
        await self._lab.store.put(sealed.commit.key, sealed.parts)
        return sealed

    def seal(
        self, topic: Topic, counts: Mapping[int, Sequence[int]], producer: int
    ) -> tuple[SealedBlock, list[tuple[int, list[bytes]]]]:
        values = [
            (partition, self._lab.values(records))
            for partition, batches in sorted(counts.items())
            for records in batches
        ]
        now_ms = SystemClock().now_ms()
        block = OpenBlock()
        block.add([entry(topic, *each, producer, now_ms) for each in values])
        sealed = seal(
            block,
            object_id=ObjectId(tagged_uuid7(now_ms, self._tag)),
            broker_id=BrokerId(1),
            created_ms=now_ms,
        )
        footer = encode_footer(self._told(decode_footer(sealed.footer)))
        size_bytes = sealed.commit.size_bytes + len(footer) - len(sealed.footer)
        commit = replace(sealed.commit, size_bytes=size_bytes)
        return replace(sealed, footer=footer, commit=commit), values

    def _told(self, footer: BlockFooter) -> BlockFooter:
        writer = FooterWriter(tag=self._tag, sequence=self._sequence, commits=self._sequence)
        self._sequence += 1
        return replace(
            footer,
            writer=writer,
            partitions=[
                each._replace(answers=self._untold.pop(_key_of(each), []))
                for each in footer.partitions
            ],
        )

    def _learn(self, sealed: SealedBlock, answers: Sequence[CommitAnswer]) -> None:
        told: dict[TopicPartition, list[Offset]] = defaultdict(list)
        for batch, answer in zip(sealed.commit.batches, answers, strict=True):
            is_accepted = answer.outcome is CommitOutcome.ACCEPTED
            offset = answer.base_offset if is_accepted else NO_OFFSET
            told[batch.topic_partition].append(offset)
        for key, offsets in told.items():
            self._untold[key].append(
                EarlierAnswer(sequence=self._sequence - 1, is_run=False, offsets=offsets)
            )


def _key_of(partition: FooterPartition) -> TopicPartition:
    return TopicPartition(partition.topic_id, partition.partition)


@asynccontextmanager
async def lab_on(url: str, before: Lab) -> AsyncIterator[Lab]:
    """The lab on a restored control plane, which expects all records that were written before."""
    control = await open_control_plane(url)
    try:
        after = Lab(before.settings, control, before.store)
        after.written, after.deleted = before.written, before.deleted
        after.batches = before.batches
        yield after
    finally:
        await control.close()


class Lines:
    """Keeps the rows of a dump in memory."""

    def __init__(self) -> None:
        self.tables: dict[str, list[bytes]] = {}

    def begin(self) -> None:
        self.tables = {}

    def table(self, table: TableColumns) -> None:
        self._rows = self.tables.setdefault(table.name, [])

    def rows(self, lines: Iterable[bytes]) -> None:
        self._rows += lines


async def contents(database: Database) -> dict[str, list[bytes]]:
    """Return all rows of a database, table by table."""
    lines = Lines()
    await dump(database, lines)
    return lines.tables
