"""A small cluster in a folder, to be scanned: real SQLite, real files, no broker."""

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from tests.support.tiering import Converter
from tests.unit.pipeline.lab import EAGER, MERGE, PATIENT, SPLIT
from tests.unit.pipeline.local_jobs import LocalJobs

from stratalog.batch.build import build_batch
from stratalog.batch.entry import EntryBatch
from stratalog.batch.header import Codec, TimestampType, parse_header
from stratalog.batch.records import Record
from stratalog.block.block import OpenBlock, seal
from stratalog.clock import SystemClock
from stratalog.control.open import open_control_plane
from stratalog.control.pipeline.model import UnitKind
from stratalog.control.plane import ControlPlane
from stratalog.control.topics.model import Topic
from stratalog.ids import BrokerId, ObjectId, PartitionIndex, uuid7
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectStore
from stratalog.opening.workers import WorkerKeys, worker_access
from stratalog.pipeline.kinds import split_plan
from stratalog.pipeline.open import opened_driver
from stratalog.pipeline.report import Report
from stratalog.pipeline.workplace import workplace_of
from stratalog.scan.model import ScanColumn, ScanPlan, ScanRequest, ScanSplit
from stratalog.scan.open import opened_scanner
from stratalog.scan.planner import Scanner
from stratalog.scan.scan_stores import close_scan_stores
from stratalog.scan.split_reader import read_split
from stratalog.segment.chunk_encoding import Encoding
from stratalog.segment.key_ring import KeyRing
from stratalog.settings import RemoteSettings, Settings, StorageSettings, TieringSettings

GOLDEN = Path(__file__).parents[2] / "golden"
_PUBLIC, _PRIVATE = GOLDEN / "test-only-public.pem", GOLDEN / "test-only-private.pem"
KEYS = KeyRing.load({"key1": _PUBLIC}, {"key1": _PRIVATE}, "key1")
MODES = {
    "plain": Encoding(chunk_bytes=3000),
    "zstd": Encoding(chunk_bytes=3000, compress=True),
    "aes": Encoding(chunk_bytes=3000, encrypt=True),
    "both": Encoding(chunk_bytes=3000, compress=True, encrypt=True),
}
SPLITTING = replace(PATIENT, max_rows=1)
"""A range in more than one row has too many rows."""
NOW_MS = 1_700_000_000_000

Row = Mapping[str, Any]


@dataclass(kw_only=True)
class ScanRig:
    control: ControlPlane
    store: ObjectStore
    scanner: Scanner
    settings: Settings
    written: int = 0
    """Records so far, which are numbered in their values and, by the second, in their times."""
    records: dict[tuple[str, int], list[Record]] = field(default_factory=lambda: defaultdict(list))
    """The same by topic and partition, in the order of their offsets."""

    async def topic(self, name: str = "orders", partitions: int = 1, **configs: str) -> Topic:
        return await self.control.topics.create(name, partition_count=partitions, configs=configs)

    async def write(
        self,
        topic: Topic,
        counts: Mapping[int, Sequence[int]],
        *,
        codec: Codec = Codec.NONE,
        value_bytes: int = 50,
        append_time: bool = False,
    ) -> None:
        """One block with batches of so many records for each partition."""
        kind = TimestampType.LOG_APPEND_TIME if append_time else TimestampType.CREATE_TIME
        built: dict[int, list[bytes]] = defaultdict(list)
        for partition, batches in counts.items():
            for count in batches:
                records = [self._record(place, value_bytes) for place in range(count)]
                self.records[topic.name, partition] += records
                built[partition].append(build_batch(records, codec=codec))
        await self.put(topic, built, kind)

    async def put(
        self,
        topic: Topic,
        built: Mapping[int, Sequence[bytes]],
        kind: TimestampType = TimestampType.CREATE_TIME,
    ) -> None:
        """One block of these batches, which are not checked."""
        block = OpenBlock()
        for partition, batches in built.items():
            for data in batches:
                entry = EntryBatch(
                    topic_id=topic.id,
                    topic_name=topic.name,
                    partition=PartitionIndex(partition),
                    timestamp_type=kind,
                    header=parse_header(data),
                    data=memoryview(data),
                )
                block.add([entry])
        now_ms = SystemClock().now_ms()
        sealed = seal(
            block, object_id=ObjectId(uuid7(now_ms)), broker_id=BrokerId(1), created_ms=now_ms
        )
        await self.store.put(sealed.commit.key, sealed.parts)
        await self.control.log.commit_blocks([sealed.commit])

    async def convert(
        self, topic: Topic, partition: int = 0, *, mode: str = "plain", **how: Any
    ) -> None:
        """Make all rows of a partition into one segment."""
        converter = Converter(
            control=self.control,
            store=self.store,
            encoding=MODES[mode],
            keys=KEYS,
            index_interval_bytes=how.pop("index_interval_bytes", 100),
        )
        assert await converter.convert(topic, partition, **how)

    async def split(self) -> Report:
        """Sort all blocks and split files into new split files, as the pipeline does to some."""
        with patch.object(split_plan, "_FAN_IN", 0):
            return await self._run_pipeline(SPLIT, SPLITTING)

    async def merge(self) -> Report:
        """Make segments of everything, as the pipeline does."""
        return await self._run_pipeline(MERGE, EAGER)

    async def _run_pipeline(self, kinds: Sequence[UnitKind], tiering: TieringSettings) -> Report:
        settings = replace(self.settings, tiering=tiering)
        jobs = LocalJobs(workplace_of(settings))
        opened = opened_driver(
            settings, jobs.open, control=self.control, holder="test", clean=False
        )
        async with opened as driver:
            report = await driver.run(kinds)
        assert report.failed == {}
        return report

    async def plan(self, **request: Any) -> ScanPlan:
        if not {"pattern", "assign"} & set(request):
            request.setdefault("topics", ["orders"])
        return await self.scanner.plan(ScanRequest(**request))

    async def rows(self, **request: Any) -> list[Row]:
        return self.rows_of((await self.plan(**request)).splits)

    def rows_of(self, splits: Sequence[ScanSplit]) -> list[Row]:
        return [row for split in splits for batch in self.read(split) for row in batch.to_pylist()]

    def read(self, split: ScanSplit) -> list[pa.RecordBatch]:
        return list(read_split(split, worker_access(self.settings, WorkerKeys.OPENING)))

    async def offsets(self, **request: Any) -> list[int]:
        rows = await self.rows(columns=[ScanColumn.OFFSET], **request)
        return [row["offset"] for row in rows]

    def _record(self, place: int, value_bytes: int) -> Record:
        number = self.written
        self.written += 1
        value = b"%d" % number
        return Record(
            place,
            NOW_MS + 1000 * number,
            None if number % 7 == 3 else b"k%d" % (number % 5),
            None if number % 11 == 5 else value.ljust(value_bytes, b"."),
            (("n", value), ("empty", None)) if number % 3 == 0 else (),
        )


@asynccontextmanager
async def scan_rig(folder: Path, **changes: Any) -> AsyncIterator[ScanRig]:
    settings = replace(
        Settings(
            storage=StorageSettings(
                objects=f"file:{folder / 'objects'}", control=f"sqlite:{folder / 'control.db'}"
            ),
            remote=RemoteSettings(private_keys={"key1": str(_PRIVATE)}),
        ),
        **changes,
    )
    control = await open_control_plane(settings.storage.control)
    store = open_store(settings.storage.objects, clock=SystemClock())
    try:
        async with opened_scanner(settings, control=control) as scanner:
            yield ScanRig(control=control, store=store, scanner=scanner, settings=settings)
    finally:
        close_scan_stores()
        await store.close()
        await control.close()
