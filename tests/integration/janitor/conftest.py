"""A small cluster on a real control plane, with its objects in memory or in a folder."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.small_cluster import SmallCluster

from stratalog.control.topics.model import Topic
from stratalog.opening.claim import claim_store


@pytest.fixture(params=["memory:", "file"])
async def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[SmallCluster]:
    objects = f"file:{tmp_path / 'objects'}" if request.param == "file" else request.param
    cluster = await SmallCluster.open(tmp_path, objects=objects)
    await claim_store(cluster.control, cluster.store)
    yield cluster
    await cluster.close()


@pytest.fixture
async def topic(cluster: SmallCluster) -> Topic:
    return await cluster.topic()
