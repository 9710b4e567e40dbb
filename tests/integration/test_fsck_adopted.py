"""`fsck` of segments that Kafka wrote, in the object layout of Aiven's plugin."""

import shutil
import struct
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.segment_cluster import found, told
from tests.integration.small_cluster import SmallCluster
from tests.unit.segment.layout_golden import (
    GOLDEN,
    INDEXES,
    KEY_BASE,
    MODES,
    SEGMENT,
    TOPIC,
    Mode,
    key_ring,
)

from stratalog.checks.fsck import run_fsck
from stratalog.checks.remote_tier import RemoteTier
from stratalog.checks.report import Promise, Report
from stratalog.clock import SystemClock
from stratalog.control.segments.model import SegmentUploaded
from stratalog.control.topics.model import AdoptedSegment, PartitionToAdopt, TopicToAdopt
from stratalog.ids import Offset, PartitionIndex
from stratalog.objects.open import open_store
from stratalog.objects.store import ObjectStore
from stratalog.segment.epoch_checkpoint import decode_checkpoint
from stratalog.segment.manifest import parse_manifest
from stratalog.segment.model import IndexKind
from stratalog.segment.stores import SegmentStores

NAME = f"{TOPIC}-0"
NEWEST_MS = 1_700_000_445_760
MADE_UP = {
    f"segment 5000 to 9453: its transaction index: it says that producer {producer} aborted at "
    f"offset {offset}, which is not so"
    for producer, offset in ((4000, 20), (4001, 30))
}
"""The plugin does not look into the files that it is given. The golden segment was given a
transaction index that does not belong to its log, and a newest time that is too early."""


class AdoptedTopic:
    def __init__(self, cluster: SmallCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.url = f"file:{folder}"

    async def adopt(self, mode: Mode, log_start: int = 5000, newest_ms: int = NEWEST_MS) -> None:
        shutil.copytree(GOLDEN / f"aiven_{mode}", self.folder)
        manifest = mode.manifest_text
        uploaded = SegmentUploaded(
            manifest=manifest,
            stored_bytes=len(mode.log) + len(mode.indexes) + len(manifest),
            has_aborted=IndexKind.TRANSACTION in parse_manifest(manifest, "golden").indexes,
        )
        segment = replace(
            SEGMENT, partition=PartitionIndex(0), store_url=self.url, max_timestamp=newest_ms
        )
        await self.cluster.control.topics.adopt(
            TopicToAdopt(
                topic_id=segment.topic_id,
                name=TOPIC,
                configs={},
                partitions=[
                    PartitionToAdopt(
                        partition=PartitionIndex(0),
                        log_start=Offset(log_start),
                        segments=[AdoptedSegment(segment=segment, uploaded=uploaded)],
                        epochs=decode_checkpoint(INDEXES.leader_epoch),
                        producers=[],
                    )
                ],
            )
        )

    async def fsck(self, *, deep: bool) -> Report:
        stores = SegmentStores(self.cluster.store, self._open)
        tier = RemoteTier(stores=stores, keys=key_ring())
        report = await run_fsck(
            self.cluster.control, self.cluster.store, deep=deep, clock=self.cluster.later, tier=tier
        )
        await stores.close()
        return report

    def path(self, suffix: str) -> Path:
        return self.folder / (KEY_BASE + suffix)

    def _open(self, url: str) -> ObjectStore:
        return open_store(url, clock=SystemClock())


@pytest.fixture
async def topic(tmp_path: Path) -> AsyncIterator[AdoptedTopic]:
    cluster = await SmallCluster.open(tmp_path)
    yield AdoptedTopic(cluster, tmp_path / "theirs")
    await cluster.close()


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("log_start", [5000, 9453])
async def test_what_kafka_wrote_is_healthy(topic: AdoptedTopic, mode: Mode, log_start: int) -> None:
    await topic.adopt(mode, log_start)
    assert (await topic.fsck(deep=False)).ok
    report = await topic.fsck(deep=True)
    assert {finding.problem.text for finding in report.findings} == MADE_UP
    assert report.counts["segments"] == 1
    assert report.counts["batches"] > 100


@pytest.mark.parametrize("mode", MODES, ids=str)
async def test_an_adopted_object_that_is_gone_is_named(topic: AdoptedTopic, mode: Mode) -> None:
    await topic.adopt(mode)
    topic.path(".log").unlink()
    report = await topic.fsck(deep=False)
    assert found(report) == {(NAME, Promise.OBJECTS)}
    assert f"segment 5000 to 9453: its object {KEY_BASE}.log is not in the store" in told(report)


async def test_an_adopted_index_that_does_not_fit_its_log_is_found(topic: AdoptedTopic) -> None:
    await topic.adopt(MODES[0])
    indexes = bytearray(topic.path(".indexes").read_bytes())
    (relative,) = struct.unpack_from(">i", indexes, 80)
    struct.pack_into(">i", indexes, 80, relative - 1)
    topic.path(".indexes").write_bytes(indexes)
    assert (await topic.fsck(deep=False)).ok
    report = await topic.fsck(deep=True)
    assert found(report) == {(NAME, Promise.READABLE)}
    assert f"an entry names offset {5000 + relative - 1}, with which no batch ends" in told(report)


async def test_an_adopted_time_index_that_hides_records_is_found(topic: AdoptedTopic) -> None:
    await topic.adopt(MODES[0])
    indexes = bytearray(topic.path(".indexes").read_bytes())
    start = len(INDEXES.offset)
    (timestamp,) = struct.unpack_from(">q", indexes, start + 24)
    struct.pack_into(">q", indexes, start + 24, timestamp - 1)
    topic.path(".indexes").write_bytes(indexes)
    report = await topic.fsck(deep=True)
    assert "its timestamp index: entry 2 says that nothing before it is newer than" in told(report)


@pytest.mark.parametrize(("newest_ms", "hides"), [(-1, True), (0, False), (1, False)])
async def test_a_newest_time_that_hides_records_is_found(
    topic: AdoptedTopic, newest_ms: int, hides: bool
) -> None:
    await topic.adopt(MODES[0], newest_ms=NEWEST_MS + newest_ms)
    assert ("its newest record is of" in told(await topic.fsck(deep=True))) == hides


async def test_a_store_that_cannot_be_opened_is_a_finding(topic: AdoptedTopic) -> None:
    await topic.adopt(MODES[0])
    topic.cluster.damage("UPDATE segments SET store_url = 'nonsense:'")
    for deep in (False, True):
        report = await topic.fsck(deep=deep)
        assert "its objects cannot be looked at: object store URLs begin with" in told(report)


async def test_an_adopted_topic_that_takes_writes_is_healthy(topic: AdoptedTopic) -> None:
    await topic.adopt(MODES[0], 6000)
    control = topic.cluster.control
    await control.topics.begin_migration(SEGMENT.topic_id)
    assert (await topic.fsck(deep=False)).ok
    await control.topics.switch_to_blocks(SEGMENT.topic_id)
    (adopted,) = await control.topics.with_ids([SEGMENT.topic_id])
    await topic.cluster.write(adopted, {0: [3, 4]})
    await control.segments.own(SEGMENT.topic_id)
    report = await topic.fsck(deep=True)
    assert {finding.problem.text for finding in report.findings} == MADE_UP
    assert report.counts["batches"] == 402
