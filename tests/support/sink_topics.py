"""A topic to write into, by writers that are driven by hand, as Spark drives them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import BinaryType, StructType
from tests.integration.small_cluster import ShiftedClock
from tests.integration.spark_topics import Lake, consumed
from tests.support.clusters import BASE, folder_storage, one_broker

from stratalog.checks.fsck import run_fsck
from stratalog.control.plane import ControlPlane
from stratalog.ids import PartitionIndex, TopicPartition
from stratalog.janitor.deletion import delete_marked
from stratalog.janitor.sweeper import Sweeper
from stratalog.objects.store import ObjectStore
from stratalog.opening.claim import claim_store
from stratalog.settings import HOUR_MS, StorageSettings
from stratalog.spark.sink import open_stream_writer, open_writer

SCHEMA = StructType().add("key", BinaryType()).add("value", BinaryType())
TOPIC = "orders"
PARTITIONS = 2


def values(first: int, end: int) -> list[bytes]:
    return [b"value %d" % number for number in range(first, end)]


def batches(first: int, end: int) -> Iterable[pa.RecordBatch]:
    """The arguments that Spark hands to a task."""
    keys = [b"key %d" % number for number in range(first, end)]
    yield pa.RecordBatch.from_pydict({"key": keys, "value": values(first, end)})


class SinkLake(Lake):
    """A cluster without a broker and with a topic of two partitions."""

    @classmethod
    def make(cls, folder: Path, storage: StorageSettings | None = None) -> "SinkLake":
        lake = cls.of(replace(BASE, storage=storage or folder_storage(folder)), folder)
        assert isinstance(lake, SinkLake)

        async def create(control: ControlPlane, store: ObjectStore) -> None:
            await claim_store(control, store)
            await control.topics.create(TOPIC, partition_count=PARTITIONS, configs={})

        lake.run(create)
        return lake

    def options(self, **more: str) -> dict[str, str]:
        return {"topic": TOPIC, "config": str(self.config), **more}

    def writer(self, **options: str) -> DataSourceArrowWriter:
        return open_writer(self.options(**options), SCHEMA, overwrite=False)

    def stream_writer(self, **options: str) -> DataSourceStreamArrowWriter:
        return open_stream_writer(self.options(**options), SCHEMA, overwrite=False)

    def write(self, first: int, end: int, **options: str) -> None:
        """All that Spark does for `df.write`, in one task."""
        writer = self.writer(**options)
        writer.commit([writer.write(iter(batches(first, end)))])

    def high_watermarks(self, topic: str = TOPIC) -> list[int]:
        async def ask(control: ControlPlane, _: ObjectStore) -> list[int]:
            [found] = await control.topics.named([topic])
            keys = [
                TopicPartition(found.id, PartitionIndex(number))
                for number in range(found.partition_count)
            ]
            states = await control.log.partitions(keys)
            return [states[key].high_watermark for key in keys]

        return self.run(ask)

    def read(self, topic: str = TOPIC) -> Counter[bytes]:
        """How often each value is in the topic, as a Kafka consumer reads it."""
        found: Counter[bytes] = Counter()
        with one_broker(Path(self.config).parent, base=self.settings) as cluster:
            for partition, end in enumerate(self.high_watermarks(topic)):
                rows = consumed(cluster.bootstrap, topic, end, partition) if end else []
                found.update(row.value or b"" for row in rows)
        return found

    def objects(self) -> list[str]:
        async def ask(_: ControlPlane, store: ObjectStore) -> list[str]:
            return [info.key async for info in store.list("blocks/")]

        return self.run(ask)

    def leases(self) -> int | None:
        """When the oldest of them began."""

        async def ask(control: ControlPlane, _: ObjectStore) -> int | None:
            return await control.scans.oldest_lease_ms()

        return self.run(ask)

    def sweep(self) -> int:
        """Two hours later."""

        async def work(control: ControlPlane, store: ObjectStore) -> int:
            later = ShiftedClock(2 * HOUR_MS)
            sweeper = Sweeper(control, store, clock=later, orphan_age_ms=HOUR_MS)
            return (await sweeper.sweep()).deleted

        return self.run(work)

    def merge_all(self) -> int:
        """Make segments of everything and delete the blocks; how many those were."""
        for partition in range(PARTITIONS):
            self.convert(TOPIC, partition)

        async def work(control: ControlPlane, store: ObjectStore) -> int:
            return await delete_marked(control, store, grace_ms=0, chunk_rows=100)

        return self.run(work)

    def is_sound(self) -> bool:
        async def work(control: ControlPlane, store: ObjectStore) -> bool:
            return (await run_fsck(control, store, deep=True)).ok

        return self.run(work)


def once(first: int, end: int) -> Mapping[bytes, int]:
    return Counter(values(first, end))
