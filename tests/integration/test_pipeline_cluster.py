"""The whole command on a standalone cluster, by spark-submit and over Spark Connect.

With PostgreSQL and S3, while executors and drivers are killed and the store refuses to work.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import asyncpg
import pyspark
import pytest
from tests.integration.gated_s3 import Gate, await_request, gated
from tests.integration.pipeline_commands import (
    COMMAND_S,
    PARTITIONS,
    Cluster,
    consume,
    produce,
    s3_cluster,
    status_of,
)
from tests.support.servers import S3Server
from tests.support.spark import SharedSpark, await_end_of, descendants

from stratalog.clock import SystemClock
from stratalog.objects.open import open_store
from stratalog.pipeline.hosting import submit
from stratalog.pipeline.hosting.java import find_java
from stratalog.pipeline.hosting.spark_conf import SMALL_JVM, SparkOptions

pytestmark = pytest.mark.timeout(600)

IDLE = "tiering.enabled=false"
LOGS = r"^PUT \S+\.log"
CONF = {
    # One executor, unless a test needs two: each costs it seconds.
    "spark.cores.max": "1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.driver.extraJavaOptions": SMALL_JVM,
    "spark.executor.extraJavaOptions": SMALL_JVM,
}
SPECULATION = {
    "spark.cores.max": "2",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "1s",
    # Of a job with one task, nothing tells how long it should take.
    "spark.speculation.task.duration.threshold": "3s",
}
ENVIRONMENT_PYTHON = "./environment/bin/python"
CLEAN_AT_ONCE = (
    "janitor.grace_ms",
    "janitor.backup_window_ms",
    "janitor.orphan_age_ms",
    "janitor.unfinished_age_ms",
)


class Storage:
    """PostgreSQL, and S3 behind a gate."""

    def __init__(self, cluster: Cluster, dsn: str, url: str, server: S3Server, gate: Gate) -> None:
        self.cluster = cluster
        self.gate = gate
        self._dsn = dsn
        self._url = url
        self._server = server

    def sql(self, statement: str) -> list[Any]:
        async def run() -> list[Any]:
            connection = await asyncpg.connect(self._dsn)
            try:
                return await connection.fetch(statement)
            finally:
                await connection.close()

        return asyncio.run(run())

    def keys(self) -> list[str]:
        """All objects but the markers and the witnesses of brokers."""

        async def run() -> list[str]:
            store = open_store(self._url, self._server.options, clock=SystemClock())
            keys = [info.key async for info in store.list("")]
            await store.close()
            return [key for key in keys if "/" in key and not key.startswith("witness/")]

        return asyncio.run(run())

    def check(self, written: dict[tuple[int, int], bytes], segments: int) -> None:
        """Nothing is lost, twice, or left over."""
        # The first broker gave the cluster its own values, and a run goes by the cluster's.
        for name in CLEAN_AT_ONCE:
            self.cluster.ask("cluster", "config", "set", name, "0")
        # The second round deletes the objects that the first one marked or barred.
        for _ in range(2):
            self.cluster.ask("pipeline", "run")
        assert len(self.keys()) == 3 * segments, "a log, its indexes and its manifest each"
        assert "ok" in self.cluster.ask("fsck", "--deep")
        status = status_of(self.cluster)
        assert (status["segments"], status["pending_rows"]) == (segments, 0)
        with self.cluster.broker(IDLE) as bootstrap:
            assert consume(bootstrap, len(written)) == written


@pytest.fixture
def storage(tmp_path: Path, postgres_dsn: str, s3_server: S3Server) -> Iterator[Storage]:
    with gated(s3_server) as (gate, server):
        cluster = s3_cluster(tmp_path, postgres_dsn, server)
        [url] = [each.partition("=")[2] for each in cluster.settings if "storage.objects" in each]
        yield Storage(cluster, postgres_dsn, url, s3_server, gate)
        cluster.end()
        gate.release()


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An archive with a Python in it that says so when it is started, and is ours otherwise."""
    script = f'#!/bin/sh\necho started >> {tmp_path / "used"}\nexec {sys.executable} "$@"\n'
    info = tarfile.TarInfo("bin/python")
    info.mode, info.size = 0o755, len(script)
    with tarfile.open(tmp_path / "environment.tar.gz", "w:gz") as archive:
        archive.addfile(info, BytesIO(script.encode()))
    return tmp_path / "environment.tar.gz"


def on_cluster(master: str) -> list[str]:
    return ["--master", master, "--python", sys.executable, *_options(CONF)]


def _options(conf: dict[str, str]) -> list[str]:
    return [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]


def executors() -> list[int]:
    """The JVMs that run the tasks of the cluster that this process has started."""
    found = []
    for pid in descendants(os.getpid()):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"CoarseGrainedExecutorBackend" in command:
            found.append(pid)
    return found


def test_a_cluster_converts_although_executors_die_the_store_is_busy_and_an_attempt_hangs(
    storage: Storage, spark_cluster: str, shared_spark: SharedSpark, environment: Path
) -> None:
    shared_spark.close()  # The cluster's two cores are needed here.
    cluster, gate = storage.cluster, storage.gate
    with cluster.broker(IDLE) as bootstrap:
        written = produce(bootstrap)
    busy, held = gate.refuse(r"^GET \S+blocks/", times=4), gate.hold(LOGS)
    running = cluster.start("pipeline", "run", "--json", *on_cluster(spark_cluster))
    await_request(held)
    assert busy.acquire(blocking=False)
    for pid in executors():
        os.kill(pid, signal.SIGKILL)
    gate.release()
    report = cluster.report(running)
    assert (report["segments"], report["failed"]) == (PARTITIONS, {})

    with cluster.broker(IDLE) as bootstrap:
        written |= produce(bootstrap, "later")
    held = gate.hold(LOGS, times=1)
    said = submitted(storage, spark_cluster, environment)
    assert f"into {PARTITIONS} segments" in said
    assert held.acquire(blocking=False), "one attempt never got its answer, and another was taken"
    assert (environment.parent / "used").exists(), "its Python came in the archive"
    assert len(cluster.ask_json("pipeline", "history")) == 2
    storage.check(written, segments=2 * PARTITIONS)


def submitted(storage: Storage, master: str, environment: Path) -> str:
    """Run the program for spark-submit, as the documentation says."""
    folder = storage.cluster.folder
    done = subprocess.run(
        [
            str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
            *("--master", master, "--archives", f"{environment}#environment"),
            *_options(CONF | SPECULATION),
            *(submit.__file__, "--config", str(folder / "stratalog.toml")),
            *storage.cluster.settings,
            *("--set", "tiering.task_bytes=1"),
        ],
        env={
            **os.environ,
            "JAVA_HOME": str(find_java().home),
            "PYSPARK_PYTHON": ENVIRONMENT_PYTHON,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        },
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=COMMAND_S,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_after_a_killed_driver_two_others_share_the_work_and_leave_nothing_over(
    storage: Storage, spark_cluster: str, shared_spark: SharedSpark, environment: Path
) -> None:
    shared_spark.close()  # It may have executors on the cluster.
    cluster, gate = storage.cluster, storage.gate
    with cluster.broker(IDLE) as bootstrap:
        written = produce(bootstrap)
    planned = cluster.ask_json("pipeline", "run", "--dry-run")
    held = gate.hold(LOGS)
    kill_driver(cluster.start("pipeline", "run", *on_cluster(spark_cluster)), held)
    gate.release()
    left = cluster.ask_json("pipeline", "run", "--dry-run")
    assert left["waiting"] == {"in another run": PARTITIONS}, "its claims have not expired yet"
    storage.sql("UPDATE claims SET expires_ms = 0")

    held = gate.hold(LOGS)
    [[rows]] = storage.sql(
        "SELECT max(n) FROM (SELECT count(*) AS n FROM batches GROUP BY partition) counted"
    )
    one_at_a_time = ("--set", f"tiering.max_batches_per_run={rows}", "--until-idle", "--json")
    server = SparkOptions(master=spark_cluster, conf=CONF, python=sys.executable)
    connect = ["--master", shared_spark.serve_connect(server), "--python", ENVIRONMENT_PYTHON]
    connect += ["--archive", f"{environment}#environment"]
    both = [
        cluster.start("pipeline", "run", *master, *one_at_a_time)
        for master in (on_cluster(spark_cluster), connect)
    ]
    for _ in both:
        await_request(held)
    gate.release()
    reports = [cluster.report(each) for each in both]
    assert all(report["failed"] == {} for report in reports)
    assert all(report["segments"] for report in reports), "both had a part in it"
    assert sum(report["segments"] for report in reports) == PARTITIONS
    assert sum(report["merged_bytes"] for report in reports) == planned["bytes"]
    assert (environment.parent / "used").exists(), "over Spark Connect, Python came in the archive"
    unfinished = [
        each for each in cluster.ask_json("pipeline", "history") if not each["finished_ms"]
    ]
    assert len(unfinished) == 1
    storage.check(written, segments=PARTITIONS)


def kill_driver(driver: "subprocess.Popen[str]", held: Any) -> None:
    """In the middle of its work. Its JVM ends by itself, and so do its executors."""
    await_request(held)
    below = descendants(driver.pid) | set(executors())
    driver.kill()
    driver.communicate()
    await_end_of(below)
