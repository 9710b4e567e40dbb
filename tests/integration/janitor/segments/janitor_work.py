"""The parts of the janitor's work on segments, each as one call."""

from typing import cast

import pytest
from tests.integration.segment_cluster import SegmentCluster, told
from tests.integration.small_cluster import ShiftedClock, SmallCluster
from tests.support.tiering import CrashError, Step

from stratalog.checks.remote_tier import beside_blocks
from stratalog.control.plane import ControlPlane
from stratalog.control.segments.model import Segment, SegmentUploaded
from stratalog.janitor.retention import Retention
from stratalog.janitor.segment_deletion import clear_unfinished, delete_doomed
from stratalog.janitor.segment_sweeper import SegmentSweeper
from stratalog.janitor.service import Janitor
from stratalog.objects.store import ObjectStore
from stratalog.segment.stores import SegmentStores
from stratalog.settings import HOUR_MS, JanitorSettings

ALL = [".log", ".indexes", ".rsm-manifest"]
EVERYTHING = Retention(ms=None, bytes=None)


async def delete(
    cluster: SegmentCluster,
    *,
    control: ControlPlane | None = None,
    store: object = None,
    grace_ms: int = 0,
) -> int:
    stores = beside_blocks(cast(ObjectStore, store or cluster.store))
    plane = control or cluster.control
    return await delete_doomed(plane.segments, stores, grace_ms=grace_ms, chunk_rows=100)


async def assert_healthy(cluster: SegmentCluster) -> None:
    report = await cluster.fsck(deep=True)
    assert report.ok, told(report)


async def clear(cluster: SegmentCluster, *, older_than_ms: int = 0) -> int:
    return await clear_unfinished(cluster.control, older_than_ms=older_than_ms, chunk_rows=100)


async def uploaded(cluster: SegmentCluster) -> SegmentUploaded:
    found = (await cluster.segments())[0].uploaded
    assert found is not None
    return found


def sweeper_of(
    cluster: SegmentCluster,
    *,
    control: ControlPlane | None = None,
    store: object = None,
    clock: ShiftedClock | None = None,
) -> SegmentSweeper:
    return SegmentSweeper(
        control or cluster.control,
        cast(ObjectStore, store or cluster.store),
        prefix="segments/",
        clock=clock or cluster.cluster.later,
        orphan_age_ms=HOUR_MS,
    )


def janitor_of(
    small: SmallCluster, retention: Retention = EVERYTHING, segments: SegmentStores | None = None
) -> Janitor:
    return Janitor(
        control=small.control,
        store=small.store,
        retention_of=lambda topic: retention,
        settings=JanitorSettings(
            grace_ms=0,
            backup_window_ms=0,
            deleted_topic_window_ms=0,
            answers_ms=0,
            unfinished_age_ms=0,
            chunk_rows=3,
            orphan_age_ms=0,
        ),
        offsets_retention_ms=1000,
        clock=small.later,
        segments=segments,
    )


async def unfinished(cluster: SegmentCluster, step: Step) -> Segment:
    with pytest.raises(CrashError):
        await cluster.converter.convert(cluster.topic, crash_after=step)
    (segment,) = await cluster.control.segments.unchained(older_than_ms=0, limit=10)
    return segment
