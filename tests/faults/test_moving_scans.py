"""Scans of a topic whose data moves down, is deleted, and is taken from the store without grace.

Every scan sees a snapshot: every offset from the first to the end, once, with its value.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from unittest.mock import patch

import pyarrow as pa
import pytest
from tests.faults.moving_boundary import (
    PARTITIONS,
    Scene,
    convert,
    together,
    value_at,
    write,
)
from tests.support.tiering import Step
from tests.unit.pipeline.lab import SPLIT
from tests.unit.pipeline.local_jobs import LocalJobs
from tests.unit.scan.rig import MODES, NOW_MS, SPLITTING, Row, ScanRig, scan_rig

import stratalog
from stratalog.batch.header import Codec
from stratalog.checks.remote_tier import beside_blocks
from stratalog.control.log.model import PartitionState
from stratalog.control.topics.model import Topic
from stratalog.ids import NO_OFFSET, Offset, PartitionIndex, TopicPartition
from stratalog.janitor.deletion import delete_marked, purge_topics
from stratalog.janitor.retention import Retention, enforce_retention
from stratalog.janitor.segment_deletion import delete_doomed
from stratalog.opening.workers import WorkerKeys, worker_access
from stratalog.pipeline.kinds import split_plan
from stratalog.pipeline.open import opened_driver
from stratalog.pipeline.workplace import workplace_of
from stratalog.scan.errors import SnapshotGoneError
from stratalog.scan.extents import RowExtent
from stratalog.scan.model import ScanPlan, ScanRequest
from stratalog.scan.open import opened_scanner
from stratalog.scan.planner import Scanner
from stratalog.scan.scan_stores import close_scan_stores
from stratalog.scan.schema import arrow_schema
from stratalog.scan.split_reader import read_split
from stratalog.settings import Settings, StorageSettings

SEED = int(os.environ.get("STRATALOG_SEED", "6"))
SCANS = 60
KEPT_RECORDS = 120
SPLIT_PAUSE_S = 0.1
"""Converters without claims find their rows swapped otherwise, again and again."""
SLOW_CHANCE = 0.3
"""The part of the scans that wait between their plan and their reads until the planned data is
deleted."""


async def delete_without_grace(scene: Scene) -> None:
    """Delete records and do the janitor's work, with no grace for readers without a lease."""
    while not scene.over.is_set():
        for partition in range(PARTITIONS):
            state = await scene.state(partition)
            keep_from = state.high_watermark - KEPT_RECORDS
            if keep_from > state.log_start:
                await scene.control.log.delete_records({scene.part(partition): Offset(keep_from)})
        await take_away(scene)
        await asyncio.sleep(0.005)


async def take_away(scene: Scene) -> None:
    scene.seen["rows removed"] += await enforce_retention(
        scene.control, lambda _: Retention(ms=None, bytes=None), chunk_rows=7
    )
    scene.seen["blocks deleted"] += await delete_marked(
        scene.control, scene.store, grace_ms=0, chunk_rows=1000
    )
    scene.seen["segments deleted"] += await delete_doomed(
        scene.control.segments, scene.stores, grace_ms=0, chunk_rows=1000
    )


async def split(scene: Scene) -> None:
    """The pipeline itself, which sorts rows into split files while others convert and delete."""
    settings = replace(settings_of(scene), tiering=replace(SPLITTING, max_attempts=1_000_000))
    jobs = LocalJobs(workplace_of(settings))
    with patch.object(split_plan, "_FAN_IN", 0):
        async with opened_driver(
            settings, jobs.open, control=scene.control, holder="splitter", clean=False
        ) as driver:
            while not scene.over.is_set():
                scene.seen["split files"] += (await driver.run(SPLIT)).split_files
                await asyncio.sleep(SPLIT_PAUSE_S)


def settings_of(scene: Scene) -> Settings:
    storage = StorageSettings(
        objects=scene.store.url, control=f"sqlite:{scene.folder / 'control.db'}"
    )
    return Settings(storage=storage)


@asynccontextmanager
async def scanning(scene: Scene) -> AsyncIterator[Scanner]:
    async with opened_scanner(settings_of(scene)) as scanner:
        yield scanner
    close_scan_stores()


async def scan(scene: Scene, scanner: Scanner, random: Random) -> None:
    while not scene.over.is_set():
        before = [await scene.state(place) for place in range(PARTITIONS)]
        request = ScanRequest(
            topics=[scene.topic.name], split_bytes=random.choice([200, 1500, 1 << 30])
        )
        plan = await scanner.plan(request)
        scene.seen["scans of split files"] += reads_split_files(plan)
        after = [await scene.state(place) for place in range(PARTITIONS)]
        if random.random() < SLOW_CHANCE:
            await until_deleted(scene, plan)
        batches = await asyncio.to_thread(read_all, settings_of(scene), plan)
        table = pa.Table.from_batches(batches, arrow_schema(request.columns))
        check(scene, table, before, after)
        await scanner.release(plan.lease)
        done(scene)


async def scan_by_one_call(scene: Scene) -> None:
    """`stratalog.read`, which plans at once, and reads when it is asked to."""
    while not scene.over.is_set():
        before = [await scene.state(place) for place in range(PARTITIONS)]
        reader = await asyncio.to_thread(
            stratalog.read, scene.topic.name, settings=settings_of(scene), threads=2
        )
        after = [await scene.state(place) for place in range(PARTITIONS)]
        table = await asyncio.to_thread(reader.read_all)
        check(scene, table, before, after)
        done(scene)


def reads_split_files(plan: ScanPlan) -> bool:
    return any(
        isinstance(extent, RowExtent) and extent.run.stamped
        for split in plan.splits
        for stretch in split.stretches
        for extent in stretch.extents
    )


def read_all(settings: Settings, plan: ScanPlan) -> list[pa.RecordBatch]:
    place = worker_access(settings, WorkerKeys.OPENING)
    return [batch for split in plan.splits for batch in read_split(split, place)]


async def until_deleted(scene: Scene, plan: ScanPlan) -> None:
    """Until nothing that the plan speaks of is in the topic any more."""
    while not scene.over.is_set():
        starts = [(await scene.state(place)).log_start for place in range(PARTITIONS)]
        if all(starts[one.partition] >= one.end for one in plan.ranges):
            scene.seen["scans of what is gone"] += 1
            return
        await asyncio.sleep(0.01)


def check(
    scene: Scene,
    table: pa.Table,
    before: Sequence[PartitionState],
    after: Sequence[PartitionState],
) -> None:
    for place in range(PARTITIONS):
        rows = table.filter(pa.compute.equal(table["partition"], place))
        offsets = rows["offset"].to_pylist()
        if not offsets:
            assert before[place].log_start == before[place].high_watermark
            continue
        assert offsets == list(range(offsets[0], offsets[-1] + 1))
        assert rows["value"].to_pylist() == [value_at(place, offset) for offset in offsets]
        assert before[place].log_start <= offsets[0] <= after[place].log_start
        assert before[place].high_watermark <= offsets[-1] + 1 <= after[place].high_watermark
        scene.seen["rows"] += len(offsets)
        scene.seen["scans across the boundary"] += len(set(rows["tier"].to_pylist())) == 2


def done(scene: Scene) -> None:
    scene.seen["scans"] += 1
    if scene.enough():
        scene.over.set()


async def test_every_scan_is_a_snapshot_while_data_moves_and_is_deleted(scene: Scene) -> None:
    def enough() -> bool:
        died = all(scene.seen[f"crashes after {step}"] for step in Step)
        often = scene.seen["scans"] >= SCANS and scene.seen["scans of split files"] > SCANS // 10
        gone = scene.seen["scans of what is gone"] > 5
        return died and often and gone and scene.seen["split files"] > 10

    scene.enough = enough
    async with scanning(scene) as scanner:
        await together(
            write(scene, Random(SEED + 1)),
            convert(scene, Random(SEED + 2), crash_chance=0.3),
            split(scene),
            delete_without_grace(scene),
            *(scan(scene, scanner, Random(SEED + number)) for number in range(3, 7)),
            scan_by_one_call(scene),
        )
    assert scene.seen["scans across the boundary"] > SCANS // 10, scene.seen
    assert scene.seen["blocks deleted"] > 10, scene.seen
    assert scene.seen["segments deleted"] > 10, scene.seen
    assert scene.seen["rows"] > 50 * SCANS, scene.seen
    assert await scene.control.scans.oldest_lease_ms() is None


# One plan, and the end of everything that it saw.


async def fill(rig: ScanRig, topic: Topic) -> None:
    """Segments of every mode, and blocks with every codec, in both partitions."""
    for mode, codec in zip(MODES, Codec, strict=False):
        await rig.write(topic, {0: [3, 5], 1: [4]}, codec=codec)
        for partition in range(2):
            await rig.convert(topic, partition, mode=mode)
    for codec in Codec:
        await rig.write(topic, {0: [2, 2], 1: [6]}, codec=codec)


async def janitor(rig: ScanRig, retention: Retention) -> int:
    """All that a janitor deletes, without grace. How many objects and segments that were."""
    await enforce_retention(rig.control, lambda _: retention, chunk_rows=3)
    await purge_topics(rig.control, window_ms=0, chunk_rows=3)
    stores = beside_blocks(rig.store)
    return await delete_doomed(
        rig.control.segments, stores, grace_ms=0, chunk_rows=2
    ) + await delete_marked(rig.control, rig.store, grace_ms=0, chunk_rows=2)


async def keys_of(rig: ScanRig) -> list[str]:
    return [entry.key async for entry in rig.store.list("")]


async def put_an_end_to(rig: ScanRig, topic: Topic) -> None:
    """Convert it, delete records, let retention take more, delete the topic, create it again."""
    keep = Retention(ms=None, bytes=None)
    for partition in range(2):
        await rig.convert(topic, partition, mode="zstd")
    await janitor(rig, keep)
    key = TopicPartition(topic.id, PartitionIndex(0))
    await rig.control.log.delete_records({key: Offset(17)})
    await janitor(rig, keep)
    await janitor(rig, Retention(ms=None, bytes=300))
    await rig.control.log.delete_records({key: NO_OFFSET})
    await rig.control.topics.delete(topic.id)
    await janitor(rig, keep)
    again = await rig.topic(partitions=2)
    await rig.write(again, {0: [50], 1: [50]})


async def test_what_was_planned_is_read_after_the_end_of_all_that_it_saw(tmp_path: Path) -> None:
    async with scan_rig(tmp_path) as rig:
        topic = await rig.topic(partitions=2)
        await fill(rig, topic)
        now = await rig.plan(split_bytes=100)
        wanted = rig.rows_of(now.splits)
        await rig.scanner.release(now.lease)
        later = await rig.plan(split_bytes=100)
        await put_an_end_to(rig, topic)
        close_scan_stores()
        assert by_place(rig.rows_of(later.splits)) == by_place(wanted)
        assert numbers(wanted) == list(range(rig.written - 100))
        assert {row["tier"] for row in wanted} == {"remote", "block"}
        await rig.scanner.release(later.lease)
        assert await janitor(rig, Retention(ms=None, bytes=None)) > 8
        assert len(await keys_of(rig)) == 1
        close_scan_stores()
        with pytest.raises(SnapshotGoneError):
            rig.rows_of(later.splits)


def by_place(rows: Sequence[Row]) -> dict[tuple[int, int], Row]:
    found = {(row["partition"], row["offset"]): row for row in rows}
    assert len(found) == len(rows), "no record comes twice"
    return found


def numbers(rows: Sequence[Row]) -> list[int]:
    """The records' numbers, of which times tell as well."""
    return sorted(int(row["timestamp"].timestamp() - NOW_MS // 1000) for row in rows)
