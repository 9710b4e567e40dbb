"""A Spark session that is not ours: nothing is tuned, and every row is the same."""

import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.plain_spark import FROM, PER_BATCH, STREAMED, TO, Found
from tests.integration.spark_topics import Lake, ReadRow, consumed, fill
from tests.support.clusters import BASE, Cluster, create, folder_storage, one_broker

import stratalog
from stratalog.pipeline.hosting.java import find_java

pytestmark = pytest.mark.timeout(300)

COUNTS = {0: 90, 1: 30}
ROOT = Path(__file__).parents[2]
SOURCES = Path(stratalog.__file__).parents[1]


def consumed_from(cluster: Cluster, topic: str) -> list[ReadRow]:
    return [
        row._replace(topic=FROM)
        for partition, count in COUNTS.items()
        for row in consumed(cluster.bootstrap, topic, count, partition)
    ]


def environment() -> dict[str, str]:
    """An activated virtual environment and a Java, and nothing that speaks to Spark."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    return {
        **kept,
        "JAVA_HOME": str(find_java().home),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(SOURCES)]),
    }


def run_plain(lake: Lake, folder: Path) -> Found:
    file = folder / "found"
    command = [sys.executable, "-m", "tests.integration.plain_spark"]
    arguments = [str(lake.config), str(folder / "checkpoint"), str(file)]
    done = subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Found(**pickle.loads(file.read_bytes()))


def test_a_session_that_is_not_ours_reads_and_writes_the_same_rows(tmp_path: Path) -> None:
    lake = Lake.of(replace(BASE, storage=folder_storage(tmp_path)), tmp_path)
    with one_broker(tmp_path, base=lake.settings) as cluster:
        for topic in (FROM, TO, STREAMED):
            create(cluster, topic, partitions=len(COUNTS))
        for partition, count in COUNTS.items():
            fill(cluster.bootstrap, FROM, count, partition=partition)
        wanted = consumed_from(cluster, FROM)
        lake.convert(FROM, up_to=50)
        found = run_plain(lake, tmp_path)
        copies = {topic: consumed_from(cluster, topic) for topic in (TO, STREAMED)}
    some = [row for row in wanted if row.partition == 0 and 20 <= row.offset < 80 and row.key]
    assert found.everything == wanted
    assert found.tiers == ["block", "remote"]
    assert found.by_sql == found.by_where == some
    assert found.by_call == [row.offset for row in some]
    assert (sum(found.batches), max(found.batches)) == (len(wanted), PER_BATCH)
    assert by_time(copies[TO]) == by_time(copies[STREAMED]) == by_time(wanted)


def by_time(rows: list[ReadRow]) -> list[ReadRow]:
    """Tasks of a write are side by side, so that copies have other offsets."""
    moved = [row._replace(offset=0) for row in rows]
    return sorted(moved, key=lambda row: (row.partition, row.timestamp_ms))
