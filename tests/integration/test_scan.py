"""Whole topics as Arrow: the same records, row for row, that a Kafka consumer reads."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.integration.adoption.adopting_cluster import import_arguments, running
from tests.integration.transactional_log import COMMITTED, EVERYTHING, adopt
from tests.integration.transactional_log import TOPIC as TRANSACTIONS
from tests.integration.transactions import TOPIC as LEDGER
from tests.integration.transactions import make_ledger
from tests.support.clients.confluent_client import ConfluentClient
from tests.support.clients.message import CREATE_TIME, Message, Received
from tests.support.clusters import (
    BASE,
    Cluster,
    create,
    folder_storage,
    running_cluster,
    shared_storage,
)
from tests.support.golden_topic import (
    GOLDEN_RECORDS,
    PARTITION,
    lay_out,
    lay_out_overlapping,
    metadata_values,
    write_dump,
)
from tests.support.servers import S3Server
from tests.support.tiering import Converter
from tests.unit.scan.rig import ScanRig, scan_rig
from tests.unit.segment.layout_golden import MODES, TOPIC, Mode

import stratalog
from stratalog.checks.remote_tier import beside_blocks
from stratalog.clock import SystemClock
from stratalog.control.open import open_control_plane
from stratalog.control.topics.model import Topic
from stratalog.ids import NO_OFFSET, PartitionIndex, TopicPartition
from stratalog.janitor.deletion import delete_marked
from stratalog.janitor.segment_deletion import delete_doomed
from stratalog.objects.open import open_store
from stratalog.opening.workers import WorkerKeys, worker_access
from stratalog.scan.errors import SnapshotGoneError
from stratalog.scan.model import ScanRequest, ScanSplit
from stratalog.scan.open import opened_scanner
from stratalog.scan.scan_stores import close_scan_stores
from stratalog.scan.split_reader import read_split
from stratalog.settings import Settings

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
START_MS = SystemClock().now_ms() - 3_600_000
PER_CODEC = 40


@dataclass(frozen=True)
class Tiered:
    """A broker whose topic is half in segments, with the store and the control plane that scans
    use."""

    settings: Settings
    cluster: Cluster
    stopping: ExitStack


@pytest.fixture(params=["folder", "cluster"])
def tiered(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tiered]:
    if request.param == "folder":
        storage = folder_storage(tmp_path)
    else:
        s3: S3Server = request.getfixturevalue("s3_server")
        storage = shared_storage(request.getfixturevalue("postgres_dsn"), s3)
    settings = replace(BASE, storage=storage)
    with ExitStack() as stopping:
        cluster = stopping.enter_context(running_cluster([settings]))
        yield Tiered(settings, cluster, stopping)
    close_scan_stores()


def messages(first: int, count: int) -> list[Message]:
    return [
        Message(
            None if number % 13 == 5 else b"value-%d" % number * (number % 30),
            None if number % 7 == 3 else b"key-%d" % (number % 5),
            ((f"h{number}", b"%d" % number), ("ünïcode", None)) if number % 3 == 0 else (),
            START_MS + number * 1000,
        )
        for number in range(first, first + count)
    ]


def convert(settings: Settings, topic: str, partition: int) -> None:
    async def work() -> None:
        storage = settings.storage
        control = await open_control_plane(storage.control)
        store = open_store(storage.objects, storage.object_options, clock=SystemClock())
        [found] = await control.topics.named([topic])
        converter = Converter(control=control, store=store)
        while await converter.convert(found, partition, max_rows=3):
            pass
        await store.close()
        await control.close()

    asyncio.run(work())


def write(tiered: Tiered, topic: str) -> None:
    """Records of all codecs in both partitions; the records of the first three codecs are in
    segments."""
    client = ConfluentClient()
    for number, codec in enumerate(CODECS):
        for partition in (0, 1):
            batch = messages(number * PER_CODEC, PER_CODEC)
            client.write(tiered.cluster.bootstrap, topic, batch, partition=partition, codec=codec)
            if number == 2:
                convert(tiered.settings, topic, partition)


def consumed(tiered: Tiered, topic: str) -> list[tuple[Any, ...]]:
    count = PER_CODEC * len(CODECS)
    return [
        as_tuple(partition, one)
        for partition in (0, 1)
        for one in ConfluentClient().read(
            tiered.cluster.bootstrap, topic, count=count, partition=partition
        )
    ]


def as_tuple(partition: int, one: Received) -> tuple[Any, ...]:
    kind = 0 if one.timestamp_type == CREATE_TIME else 1
    headers = one.headers or None
    return partition, one.offset, one.timestamp_ms, kind, one.key, one.value, headers


def scanned(table: pa.Table) -> list[tuple[Any, ...]]:
    return [
        (
            row["partition"],
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            row["timestampType"],
            row["key"],
            row["value"],
            row["headers"] and tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row in table.to_pylist()
    ]


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_a_scan_gives_what_a_consumer_reads_with_and_without_the_broker(
    tiered: Tiered, kind: str
) -> None:
    create(tiered.cluster, "orders", partitions=2, message_timestamp_type=kind)
    write(tiered, "orders")
    expected = consumed(tiered, "orders")
    table = stratalog.read("orders", settings=tiered.settings).read_all()
    assert scanned(table) == expected
    assert set(table["tier"].to_pylist()) == {"remote", "block"}
    assert set(table["topic"].to_pylist()) == {"orders"}
    tiered.stopping.close()
    assert stratalog.read("orders", settings=tiered.settings).read_all() == table


def test_a_time_a_partition_and_columns_narrow_a_scan(tiered: Tiered) -> None:
    create(tiered.cluster, "orders", partitions=2)
    write(tiered, "orders")
    start = datetime.fromtimestamp((START_MS + 50_000) / 1000, UTC)
    end = datetime.fromtimestamp((START_MS + 150_000) / 1000, UTC)
    table = stratalog.read(
        "orders",
        start=start,
        end=end,
        partitions=[1],
        columns=["partition", "offset"],
        settings=tiered.settings,
    ).read_all()
    assert table.to_pydict() == {"partition": [1] * 100, "offset": list(range(50, 150))}


async def plan(settings: Settings, **request: Any) -> list[ScanSplit]:
    async with opened_scanner(settings) as scanner:
        return list((await scanner.plan(ScanRequest(**request))).splits)


def rows(settings: Settings, **request: Any) -> list[dict[str, Any]]:
    place = worker_access(settings, WorkerKeys.OPENING)
    return [
        row
        for split in asyncio.run(plan(settings, **request))
        for batch in read_split(split, place)
        for row in batch.to_pylist()
    ]


def test_aborted_transactions_and_markers_are_no_rows(tmp_path: Path) -> None:
    asyncio.run(adopt(tmp_path))
    settings = replace(BASE, storage=folder_storage(tmp_path))
    for split_bytes in (50, 100, 10**9):
        for committed, expected in ((True, COMMITTED), (False, EVERYTHING)):
            found = rows(
                settings, topics=[TRANSACTIONS], committed=committed, split_bytes=split_bytes
            )
            assert [row["offset"] for row in found] == expected
    close_scan_stores()


@pytest.mark.parametrize("seed", [1, 2])
def test_transactions_give_the_rows_of_a_consumer_with_the_same_isolation(
    tmp_path: Path, seed: int
) -> None:
    ledger = make_ledger(tmp_path, seed)
    settings = ledger.lake.settings
    for level, wanted in ledger.rows.items():
        committed = level == "read_committed"
        table = stratalog.read(LEDGER, committed=committed, settings=settings).read_all()
        assert scanned(table) == [row[1:3] + row[6:] + row[3:6] for row in wanted]
        assert set(table["tier"].to_pylist()) == {"remote", "block"}
        for split_bytes in (150, 1500):
            found = rows(settings, topics=[LEDGER], committed=committed, split_bytes=split_bytes)
            assert found == table.to_pylist()
        for start in range(0, wanted[-1].offset, 17):
            later = stratalog.read(
                LEDGER, columns=["offset"], start=start, committed=committed, settings=settings
            )
            assert later.read_all()["offset"].to_pylist() == [
                row.offset for row in wanted if row.offset >= start
            ]
    close_scan_stores()


def golden(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    assert {row["partition"] for row in found} == {PARTITION}
    return [
        (row["offset"], round(row["timestamp"].timestamp() * 1000), row["key"], row["value"])
        for row in found
    ]


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_an_adopted_topic_is_scanned_in_every_mode(tmp_path: Path, mode: Mode) -> None:
    lay_out(tmp_path / "tiered", mode)
    dump = write_dump(tmp_path / "dump.jsonl", metadata_values())
    with running(tmp_path / "cluster") as place:
        place(*import_arguments(dump, tmp_path / "tiered"))
    for split_bytes in (20_000, 10**9):
        found = rows(place.settings, topics=[TOPIC], committed=False, split_bytes=split_bytes)
        assert golden(found) == GOLDEN_RECORDS
    close_scan_stores()


def test_segments_that_overlap_are_scanned_once(tmp_path: Path) -> None:
    folder = tmp_path / "tiered"
    folder.mkdir()
    segments = asyncio.run(lay_out_overlapping(folder, [(0, 150), (100, 260), (255, 400)]))
    dump = write_dump(tmp_path / "dump", metadata_values(*segments))
    with running(tmp_path / "cluster") as place:
        place(*import_arguments(dump, folder))
    for split_bytes in (10_000, 70_000, 10**9):
        found = rows(place.settings, topics=[TOPIC], committed=False, split_bytes=split_bytes)
        assert golden(found) == GOLDEN_RECORDS
    close_scan_stores()


async def delete_everything(rig: ScanRig, topic: Topic) -> int:
    """The work of retention and the janitor once all records are too old."""
    key = TopicPartition(topic.id, PartitionIndex(0))
    await rig.control.log.delete_records({key: NO_OFFSET})
    while await rig.control.log.enforce_retention(
        key, retention_ms=None, retention_bytes=None, max_rows=1000
    ):
        pass
    stores = beside_blocks(rig.store)
    deleted = await delete_doomed(rig.control.segments, stores, grace_ms=0, chunk_rows=100)
    return deleted + await delete_marked(rig.control, rig.store, grace_ms=0, chunk_rows=100)


async def test_what_is_deleted_after_the_planning_stays_readable_until_the_lease_ends(
    tmp_path: Path,
) -> None:
    async with scan_rig(tmp_path) as rig:
        topic = await rig.topic()
        await rig.write(topic, {0: [20]})
        await rig.convert(topic)
        assert await delete_marked(rig.control, rig.store, grace_ms=0, chunk_rows=100) == 1
        await rig.write(topic, {0: [10]})
        planned = await rig.plan()
        assert await delete_everything(rig, topic) == 0
        assert [row["offset"] for row in rig.rows_of(planned.splits)] == list(range(30))
        assert await rig.rows() == []


async def test_a_scan_whose_lease_has_ended_says_so(tmp_path: Path) -> None:
    async with scan_rig(tmp_path) as rig:
        topic = await rig.topic()
        await rig.write(topic, {0: [20]})
        await rig.convert(topic)
        await rig.write(topic, {0: [10]})
        planned = await rig.plan()
        await rig.scanner.release(planned.lease)
        assert await delete_everything(rig, topic) > 0
        with pytest.raises(SnapshotGoneError, match=r"lease has ended.*scan.lease_ms.*leaseMs"):
            rig.rows_of(planned.splits)
