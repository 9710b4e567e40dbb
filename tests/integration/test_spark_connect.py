"""Spark Connect: a session without a JVM, without RDDs and without a Spark context."""

import tarfile
import time
from pathlib import Path

import pytest
from tests.integration.spark_jobs import (
    SparkJobs,
    attempts,
    cancel_hanging,
    error_of,
    run_bins,
    scripted,
)
from tests.support.spark import SharedSpark
from tests.unit.pipeline.lab import EAGER, PATIENT, Lab, using
from tests.unit.pipeline.spark_tasks import task

from stratalog.checks.fsck import run_fsck
from stratalog.pipeline.errors import SparkStartError
from stratalog.pipeline.hosting import session
from stratalog.pipeline.hosting.session import OpenSpark, open_session
from stratalog.pipeline.hosting.spark_conf import SparkOptions
from stratalog.pipeline.jobs import Bin, BinDone
from stratalog.pipeline.plan.tasks import Effort, Task, TaskDone
from stratalog.pipeline.workplace import Workplace, workplace_of

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def spark(connect_spark: OpenSpark) -> OpenSpark:
    return connect_spark


async def test_bins_are_done_fail_and_are_repeated_as_elsewhere(
    spark: OpenSpark, tmp_path: Path
) -> None:
    outcomes = await run_bins(
        spark,
        scripted(tmp_path),
        Bin(name="good, and well", tasks=[task("", 0, "a"), task("die", 1, "b"), task("", 0, "c")]),
        Bin(name="bad", tasks=[task("raise", 9, "d")]),
    )
    assert attempts(outcomes["good, and well"]) == [1, 2, 1]
    assert error_of(outcomes["bad"]) == "bad: ValueError: d is not to be had"


async def test_thin_partitions_are_split_and_later_merged(spark: OpenSpark, tmp_path: Path) -> None:
    async with Lab.open(tmp_path, tiering=PATIENT) as lab:
        topic = await lab.topic()
        await lab.fill(topic)
        report = await lab.run(SparkJobs(workplace_of(lab.settings), spark=spark))
        assert (report.split_partitions, report.split_files, report.failed) == (2, 1, {})
        assert [await lab.rows(topic, partition) for partition in (0, 1)] == [1, 1]
        await lab.check(topic)
        await lab.fill(topic, blocks=1)
        using(lab, EAGER)
        report = await lab.run(SparkJobs(workplace_of(lab.settings), spark=spark))
        assert (report.merged_partitions, report.segments, report.failed) == (2, 2, {})
        await lab.check(topic)
        await lab.check_clean()
        assert (await run_fsck(lab.control, lab.store, deep=True)).ok


async def test_cancelling_a_run_interrupts_its_operations(spark: OpenSpark, tmp_path: Path) -> None:
    await cancel_hanging(spark, tmp_path)
    outcomes = await run_bins(spark, scripted(tmp_path), Bin(name="x", tasks=[task("", 0, "j")]))
    assert isinstance(outcomes["x"], BinDone)


async def test_files_and_archives_are_sent_to_the_workers(
    spark: OpenSpark, shared_spark: SharedSpark, tmp_path: Path
) -> None:
    (tmp_path / "shipped.py").write_text("NUMBER = 40\n")
    (tmp_path / "two").write_text("2")
    with tarfile.open(tmp_path / "packed.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "two", "two")

    def run(given: Task, workplace: Workplace) -> TaskDone:
        import shipped  # type: ignore[import-not-found]
        from pyspark import SparkFiles

        two = int((Path(SparkFiles.getRootDirectory()) / "unpacked" / "two").read_text())
        return TaskDone(effort=Effort(requests=shipped.NUMBER + two))

    options = SparkOptions(
        master=shared_spark.connect_url,
        archives=[f"{tmp_path / 'packed.tar.gz'}#unpacked"],
        py_files=[str(tmp_path / "shipped.py")],
    )
    with open_session(options) as other:
        outcomes = await run_bins(other, run, Bin(name="x", tasks=[task("", 0, "k")]))
    assert attempts(outcomes["x"]) == [42]


def test_a_setting_that_only_the_server_can_make_is_refused(
    spark: OpenSpark, shared_spark: SharedSpark
) -> None:
    conf = {"spark.sql.warehouse.dir": "x"}
    with pytest.raises(SparkStartError, match=r"spark\.sql\.warehouse\.dir"):
        open_session(SparkOptions(master=shared_spark.connect_url, conf=conf))


def test_a_session_whose_server_is_gone_is_known_to_be_dead_and_dropped_at_once(
    local_spark: OpenSpark, shared_spark: SharedSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Comes last: it ends the server that the others share."""
    spark = open_session(SparkOptions(master=shared_spark.connect_url))
    assert spark.is_alive()
    assert local_spark.process is not None
    local_spark.process.kill()
    local_spark.process.wait()
    monkeypatch.setattr(session, "_ANSWER_SECONDS", 2.0)
    assert not spark.is_alive()
    began_s = time.monotonic()
    spark.drop()
    assert time.monotonic() - began_s < 30
