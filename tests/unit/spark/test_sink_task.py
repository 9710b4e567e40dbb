"""A task of a sink writes only to the store that its cluster has claimed."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from tests.unit.spark.sinks import plan, rows, topic

from stratalog.block.keys import BLOCKS_PREFIX
from stratalog.opening.errors import WorkerStoreError
from stratalog.opening.marker import MARKER_KEY, StoreMarker, encode_marker
from stratalog.spark.sink_model import SinkPlan
from stratalog.spark.sink_task import write_rows

CLUSTER = uuid4()


def plan_for(folder: Path, cluster_id: UUID | None = CLUSTER) -> SinkPlan:
    """Plan for a cluster with a store of its own for segments, which this machine does not see."""
    made = plan(topic("orders"), url=f"file:{folder}")
    stores = replace(made.access.stores, segments_url=f"file:{folder.with_name('cold')}")
    return replace(made, access=replace(made.access, stores=stores, cluster_id=cluster_id))


def claim(folder: Path, cluster_id: UUID) -> None:
    folder.mkdir()
    marker = StoreMarker(cluster_id=cluster_id, generation=1)
    (folder / MARKER_KEY).write_bytes(encode_marker(marker))


def written(given: SinkPlan) -> int:
    return len(write_rows(given, [rows(value=[b"one", b"two"])]).blocks)


def test_blocks_go_into_the_clusters_store_wherever_its_segments_are(tmp_path: Path) -> None:
    claim(tmp_path / "objects", CLUSTER)
    assert written(plan_for(tmp_path / "objects")) == 1
    assert not (tmp_path / "cold").exists()


def test_a_folder_that_is_not_mounted_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(WorkerStoreError, match=f"there is no {MARKER_KEY}"):
        written(plan_for(tmp_path / "objects"))
    assert list(tmp_path.iterdir()) == []


def test_the_mount_point_of_a_store_takes_no_upload(tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    with pytest.raises(WorkerStoreError, match="mount the store there"):
        written(plan_for(tmp_path / "objects"))
    assert list((tmp_path / "objects").iterdir()) == []


def test_the_store_of_another_cluster_takes_no_upload(tmp_path: Path) -> None:
    other = uuid4()
    claim(tmp_path / "objects", other)
    with pytest.raises(WorkerStoreError, match=f"it belongs to cluster {other}"):
        written(plan_for(tmp_path / "objects"))
    assert not (tmp_path / "objects" / BLOCKS_PREFIX).exists()


def test_a_store_that_no_broker_has_claimed_yet_needs_no_marker(tmp_path: Path) -> None:
    assert written(plan_for(tmp_path / "objects", cluster_id=None)) == 1
