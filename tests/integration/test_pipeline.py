"""The pipeline end to end: real Kafka clients, real Spark, the command line, and a broker."""

import os
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.integration.pipeline_commands import (
    PARTITIONS,
    RECORDS,
    Cluster,
    consume,
    local_cluster,
    produce,
    s3_cluster,
    status_of,
)
from tests.support.servers import S3Server
from tests.support.spark import descendants

from stratalog.pipeline.hosting import guardian
from stratalog.pipeline.hosting.child_process import WORKER

pytestmark = pytest.mark.timeout(400)

PATIENCE_S = 100.0
THIN = ("--set", "tiering.min_segment_bytes=1MiB", "--set", "tiering.max_rows=4")
"""Nothing is worth a segment, and a few pieces of a partition are too many."""


@pytest.fixture(params=["folder", "s3"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Cluster:
    if request.param == "folder":
        return local_cluster(tmp_path)
    dsn: str = request.getfixturevalue("postgres_dsn")
    server: S3Server = request.getfixturevalue("s3_server")
    return s3_cluster(tmp_path, dsn, server)


def test_what_clients_wrote_is_split_and_merged_without_a_broker_and_read_as_before(
    cluster: Cluster,
) -> None:
    with cluster.broker("tiering.enabled=false") as bootstrap:
        written = produce(bootstrap)
    plan = cluster.ask_json("pipeline", "run", "--dry-run", *THIN)
    assert (plan["split_partitions"], plan["split_files"], plan["segments"]) == (PARTITIONS, 1, 0)
    report = cluster.json("pipeline", "run", "--no-clean", *THIN)
    assert (report["split_partitions"], report["split_files"]) == (PARTITIONS, 1)
    assert (report["segments"], report["failed"]) == (0, {})
    assert report["split_bytes"] == plan["bytes"]
    assert report["bytes_read"] == plan["bytes_read"]
    assert report["requests"] == plan["read_requests"] + plan["write_requests"]
    status = status_of(cluster)
    assert (status["pending_rows"], status["pending_split_files"]) == (PARTITIONS, 1)
    with cluster.broker("tiering.enabled=false") as bootstrap:
        assert consume(bootstrap, len(written)) == written
        written |= produce(bootstrap, "later")
    plan = cluster.ask_json("pipeline", "run", "--dry-run")
    assert plan["segments"] == PARTITIONS
    assert status_of(cluster)["pending_rows"] > PARTITIONS
    report = cluster.json("pipeline", "run", "--until-idle", "--gently")
    assert report["segments"] == PARTITIONS
    assert report["failed"] == {}
    assert report["bytes_read"] >= report["merged_bytes"] == plan["bytes"]
    status = status_of(cluster)
    assert (status["segments"], status["pending_rows"]) == (PARTITIONS, 0)
    assert all(
        each["tiered_end"] == each["high_watermark"] == 2 * RECORDS // PARTITIONS
        for each in status["partitions"]
    )
    assert len(cluster.ask_json("pipeline", "history")) == 3
    with cluster.broker("tiering.enabled=false") as bootstrap:
        assert consume(bootstrap, len(written)) == written
        written |= produce(bootstrap, "last")
        assert consume(bootstrap, len(written)) == written
    assert "ok" in cluster.ask("fsck", "--deep")


def test_a_broker_converts_by_itself_while_clients_read_and_write(tmp_path: Path) -> None:
    cluster = local_cluster(tmp_path)
    often = ("tiering.splitter_interval_ms=200", "tiering.merger_interval_ms=200")
    with cluster.broker(*often) as bootstrap:
        written = produce(bootstrap)
        wait_until_converted(cluster)
        assert consume(bootstrap, len(written)) == written
        assert priorities() == (niceness(0), {10}), "Spark steps back, its driver does not"
        written |= produce(bootstrap, "later")
        assert consume(bootstrap, len(written)) == written
        wait_until_converted(cluster)
        assert consume(bootstrap, len(written)) == written
    assert "ok" in cluster.ask("fsck", "--deep")


def test_a_topic_is_paused_triggered_and_resumed(tmp_path: Path) -> None:
    cluster = local_cluster(tmp_path)
    with cluster.broker("tiering.enabled=false") as bootstrap:
        produce(bootstrap)
    cluster.ask("pipeline", "pause", "orders")
    assert status_of(cluster)["paused_since_ms"] is not None
    planned = cluster.ask_json("pipeline", "run", "--dry-run")
    assert (planned["segments"], planned["waiting"]) == (0, {"of paused topics": PARTITIONS})
    cluster.ask("pipeline", "resume", "orders")
    assert cluster.ask_json("pipeline", "run", "--dry-run")["segments"] == PARTITIONS
    assert "Nothing is parked" not in cluster.ask("pipeline", "status", "orders")
    cluster.ask("pipeline", "unpark", "orders", "0")
    patient = ("--set", "tiering.age_ms=1h", "--set", "tiering.min_segment_bytes=1MiB")
    assert cluster.ask_json("pipeline", "run", "--dry-run", *patient)["segments"] == 0
    assert "the next run converts" in cluster.ask("pipeline", "trigger", "orders")
    assert status_of(cluster)["triggered_ms"] is not None
    assert cluster.ask_json("pipeline", "run", "--dry-run", *patient)["segments"] == PARTITIONS
    cluster.ask("pipeline", "pause", "orders")
    assert "the next run converts" not in cluster.ask("pipeline", "trigger", "orders")


def priorities() -> tuple[int, set[int]]:
    """Of the process that drives the pipeline beside a broker of ours, and of all below it."""
    [driver] = [pid for pid in descendants(os.getpid()) if WORKER[-1] in command_of(pid)]
    below = set()
    for pid in descendants(driver):
        # A guardian sleeps until its driver has gone.
        if guardian.__file__ in command_of(pid):
            continue
        with suppress(ProcessLookupError):  # Workers come and go.
            below.add(niceness(pid))
    return niceness(driver), below


def command_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def niceness(pid: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, pid)


def wait_until_converted(cluster: Cluster) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while status_of(cluster)["pending_rows"]:
        assert time.monotonic() < deadline, "nothing was converted"
        time.sleep(0.5)
