"""Old data through Spark: segments of Kafka's plugin, compacted, encrypted, and with
transactions."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.integration.adoption.adopting_cluster import import_arguments, running
from tests.integration.spark_topics import Lake, ReadRow, consumed, offsets_of, rows_of
from tests.integration.transactions import TOPIC as LEDGER
from tests.integration.transactions import make_ledger
from tests.support.golden_topic import (
    GOLDEN_RECORDS,
    PARTITION,
    lay_out,
    metadata_values,
    put_segment,
    write_dump,
)
from tests.support.sink_topics import TOPIC as ORDERS
from tests.support.sink_topics import SinkLake, values
from tests.unit.segment.layout_golden import (
    INDEXES,
    MODES,
    PREFIX,
    PRIVATE_PEM,
    PUBLIC_PEM,
    SEGMENT,
    TOPIC,
    TOPIC_ID,
)

import stratalog
from stratalog.batch.build import build_batch
from stratalog.batch.frames import iter_batches
from stratalog.batch.header import Codec
from stratalog.batch.records import Record
from stratalog.checks.remote_tier import beside_blocks
from stratalog.clock import SystemClock
from stratalog.control.plane import ControlPlane
from stratalog.control.segments.model import EpochStart
from stratalog.ids import NO_OFFSET, LeaderEpoch, Offset, PartitionIndex, SegmentId, TopicPartition
from stratalog.janitor.deletion import delete_marked, purge_topics
from stratalog.janitor.segment_deletion import delete_doomed
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectStore
from stratalog.pipeline.hosting.session import OpenSpark
from stratalog.scan.scan_stores import close_scan_stores
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.keys import segment_key_base
from stratalog.segment.offset_index import OffsetIndexWriter
from stratalog.segment.remote_log_metadata import SegmentAdded
from stratalog.segment.time_index import TimeIndexWriter

pytestmark = pytest.mark.timeout(300)

KEYS = KeyRing.load({"key1": PUBLIC_PEM}, {"key1": PRIVATE_PEM}, "key1")
UNCOMMITTED = {"kafka.isolation.level": "read_uncommitted"}
FIRST = 5000
STEP = 20
COMPACTED = [(FIRST, FIRST + 100), (FIRST + 100, FIRST + 200), (FIRST + 200, FIRST + 300)]
"""Segments, exclusive ends. Of the second, the first batches are gone as a whole."""
NO_BATCH = {FIRST + 40, FIRST + 100, FIRST + 120, FIRST + 180}
NO_RECORDS = {FIRST + 60, FIRST + 280}
"""A batch without records stays behind to tell the last sequence of its producer."""


def survives(offset: int) -> bool:
    return offset % 3 == 0


def compacted(first: int, end: int) -> tuple[bytes, list[Record]]:
    """A log as Kafka's cleaner leaves it, and the records in it."""
    log, kept = bytearray(), []
    for place, base in enumerate(range(first, end, STEP)):
        if base in NO_BATCH:
            continue
        left = [
            Record(offset, 1_700_000_000_000 + offset, b"k%d" % offset, b"v%d" % offset)
            for offset in range(base, base + STEP)
            if survives(offset) and base not in NO_RECORDS
        ]
        log += build_batch(
            left,
            base_offset=base,
            last_offset=base + STEP - 1,
            leader_epoch=3,
            codec=list(Codec)[place] if left else Codec.NONE,
        )
        kept += left
    return bytes(log), kept


async def lay_out_compacted(folder: Path) -> list[SegmentAdded]:
    """Encrypted segments of which some records are gone."""
    store = open_store(f"file:{folder}", {}, clock=SystemClock())
    added = []
    for first, end in COMPACTED:
        log, _ = compacted(first, end)
        base, last = Offset(first), Offset(end - 1)
        segment_id = SegmentId(uuid4())
        partition = PartitionIndex(PARTITION)
        segment = replace(
            SEGMENT,
            segment_id=segment_id,
            base_offset=base,
            last_offset=last,
            size_bytes=len(log),
            leader_epochs=[EpochStart(LeaderEpoch(3), base)],
            key_base=segment_key_base(PREFIX, TOPIC, TOPIC_ID, partition, base, segment_id),
        )
        offsets, times = OffsetIndexWriter(base), TimeIndexWriter(base)
        for position, header in iter_batches(bytearray(log)):
            offsets.append(header.last_offset, position)
            times.maybe_append(header.max_timestamp, header.last_offset)
        indexes = replace(
            INDEXES, offset=offsets.to_bytes(), timestamp=times.to_bytes(), transaction=b""
        )
        added.append(await put_segment(store, segment, log, indexes, keys=KEYS))
    await store.close()
    return added


@pytest.fixture
def spark(local_spark: OpenSpark) -> SparkSession:
    return local_spark.session


def read(spark: SparkSession, lake: Lake, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("stratalog").option("config", str(lake.config))
    return reader.option("topic", topic).options(**options).load()


def adopted(
    folder: Path, objects: Path, segments: Sequence[SegmentAdded], count: int
) -> tuple[Lake, list[ReadRow]]:
    """The topic of these segments, and the records that a Kafka consumer reads from it. No broker
    is left."""
    dump = write_dump(folder / "dump.jsonl", metadata_values(*segments))
    with running(folder / "cluster") as place:
        place(*import_arguments(dump, objects))
        rows = consumed(place.bootstrap, TOPIC, count, PARTITION, start=FIRST)
    return Lake.of(place.settings, folder), rows


def test_what_kafka_left_is_read_with_the_private_key_of_the_settings(
    spark: SparkSession, tmp_path: Path
) -> None:
    [mode] = [mode for mode in MODES if mode.compress and mode.encrypt]
    lay_out(tmp_path / "tiered", mode)
    lake, wanted = adopted(tmp_path, tmp_path / "tiered", (), len(GOLDEN_RECORDS))
    frame = read(spark, lake, TOPIC, splitBytes="100000", **UNCOMMITTED)
    assert rows_of(frame) == wanted
    assert len(wanted) == len(GOLDEN_RECORDS)


def test_gaps_of_compaction_are_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    objects = tmp_path / "tiered"
    objects.mkdir()
    segments = asyncio.run(lay_out_compacted(objects))
    records = [record for place in COMPACTED for record in compacted(*place)[1]]
    lake, wanted = adopted(tmp_path, objects, segments, len(records))
    assert offsets_of(wanted) == [record.offset for record in records]
    for split_bytes in ("200", "1000000"):
        assert rows_of(read(spark, lake, TOPIC, splitBytes=split_bytes)) == wanted
    found = stratalog.read(
        TOPIC,
        columns=["offset"],
        partitions=[PARTITION],
        start=FIRST + 61,
        settings=lake.settings,
    )
    later = [record.offset for record in records if record.offset > FIRST + 60]
    assert found.read_all()["offset"].to_pylist() == later
    close_scan_stores()


def test_transactions_give_the_rows_of_a_consumer_with_the_same_isolation(
    spark: SparkSession, tmp_path: Path
) -> None:
    ledger = make_ledger(tmp_path, seed=3)
    for level, wanted in ledger.rows.items():
        options = {"kafka.isolation.level": level, "splitBytes": "4000"}
        assert rows_of(read(spark, ledger.lake, LEDGER, **options)) == wanted


async def delete_all(control: ControlPlane, store: ObjectStore) -> int:
    """The topic and its objects, without any grace. How many objects are left because of leases."""
    [topic] = await control.topics.named([ORDERS])
    for partition in range(topic.partition_count):
        key = TopicPartition(topic.id, PartitionIndex(partition))
        await control.log.delete_records({key: NO_OFFSET})
    await control.topics.delete(topic.id)
    await purge_topics(control, window_ms=0, chunk_rows=100)
    await delete_doomed(control.segments, beside_blocks(store), grace_ms=0, chunk_rows=100)
    await delete_marked(control, store, grace_ms=0, chunk_rows=100)
    return len([entry async for entry in store.list("blocks/")])


def test_a_job_that_was_planned_reads_what_was_converted_and_deleted_since(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = SinkLake.make(tmp_path)
    for first in range(0, 200, 20):
        lake.write(first, first + 20)
    lake.convert(ORDERS, up_to=40)
    job = read(spark, lake, ORDERS, splitBytes="500").select("value", "tier").rdd
    assert job.getNumPartitions() > 4, "it is planned now, and read when somebody collects it"
    assert lake.merge_all() == 0
    assert lake.run(delete_all) > 0
    found = job.collect()
    assert sorted(bytes(row.value) for row in found) == sorted(values(0, 200))
    assert {row.tier for row in found} == {"block", "remote"}
