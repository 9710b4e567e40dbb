"""A cluster, and a topic that Kafka's plugin has tiered."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.adoption.adopting_cluster import AdoptingCluster, running
from tests.support.golden_topic import (
    lay_out,
    metadata_values,
    write_dump,
)
from tests.unit.segment.layout_golden import (
    PLAIN,
)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[AdoptingCluster]:
    with running(tmp_path / "cluster") as place:
        yield place


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return write_dump(tmp_path / "dump.jsonl", metadata_values())


@pytest.fixture
def tiered(tmp_path: Path) -> Path:
    """Where the plugin has left its objects, neither compressed nor encrypted."""
    lay_out(tmp_path / "tiered", PLAIN)
    return tmp_path / "tiered"
