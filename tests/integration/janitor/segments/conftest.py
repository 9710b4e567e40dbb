"""A small cluster with segments."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.segment_cluster import SegmentCluster
from tests.integration.small_cluster import SmallCluster

from stratalog.opening.claim import claim_store


@pytest.fixture(params=["memory:", "file"])
async def small(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[SmallCluster]:
    objects = f"file:{tmp_path / 'objects'}" if request.param == "file" else request.param
    small = await SmallCluster.open(tmp_path, objects=objects)
    await claim_store(small.control, small.store)
    yield small
    await small.close()


@pytest.fixture
async def cluster(small: SmallCluster) -> SegmentCluster:
    return await SegmentCluster.make(small, segments=2)
