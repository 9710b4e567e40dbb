"""Spark on a standalone cluster of two workers, with speculation."""

import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.integration.spark_jobs import attempts, error_of, run_bins, scripted
from tests.support.sink_topics import SinkLake, once, values
from tests.support.spark import SharedSpark, activate
from tests.unit.pipeline.spark_tasks import task

from stratalog.pipeline.hosting.session import OpenSpark, open_session
from stratalog.pipeline.hosting.spark_conf import SMALL_JVM, SparkOptions
from stratalog.pipeline.jobs import Bin

pytestmark = pytest.mark.timeout(300)

CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": SMALL_JVM,
    "spark.executor.extraJavaOptions": SMALL_JVM,
    "spark.executor.memory": "512m",
    # Both executors are there before the first job starts.
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.minTaskRuntime": "1s",
}


@pytest.fixture
def spark(shared_spark: SharedSpark, spark_cluster: str) -> OpenSpark:
    options = SparkOptions(master=spark_cluster, conf=CONF, python=sys.executable)
    return shared_spark.open(options)


async def test_a_slow_attempt_is_overtaken_and_one_result_counts(
    spark: OpenSpark, tmp_path: Path
) -> None:
    tasks = [task("hang", 1, "slow"), *(task("", 0, f"quick{number}") for number in range(3))]
    outcomes = await run_bins(spark, scripted(tmp_path), Bin(name="x", tasks=tasks))
    assert attempts(outcomes["x"]) == [2, 1, 1, 1]
    assert (tmp_path / "slow.1").exists()
    assert not (tmp_path / "slow.1.done").exists()


def test_topics_are_read_and_written_by_executors(spark: OpenSpark, tmp_path: Path) -> None:
    lake = SinkLake.make(tmp_path)
    lake.write(0, 60)
    lake.merge_all()
    lake.write(60, 100)
    activate(spark.session)
    reader = spark.session.read.format("stratalog").options(**lake.options())
    rows = reader.option("minPartitions", "2").load()
    found = rows.select("value", "tier").collect()
    assert Counter(bytes(row.value) for row in found) == once(0, 100)
    assert {row.tier for row in found} == {"block", "remote"}
    frame = rows.selectExpr("key", "concat(binary('copy of '), value) AS value")
    frame.write.format("stratalog").options(**lake.options(sinkId="s")).mode("append").save()
    copies = [b"copy of " + value for value in values(0, 100)]
    assert lake.read() == Counter([*values(0, 100), *copies])


async def test_a_job_survives_the_end_of_an_executor(spark: OpenSpark, tmp_path: Path) -> None:
    tasks = [task("kill-executor", 1, "doomed"), *(task("", 0, f"other{n}") for n in range(3))]
    outcomes = await run_bins(spark, scripted(tmp_path), Bin(name="x", tasks=tasks))
    first, *others = attempts(outcomes["x"])
    assert first >= 2
    assert len(others) == 3
    assert not (tmp_path / "doomed.1.done").exists()


@pytest.mark.parametrize("over", ["a JVM", "Connect"])
async def test_a_job_for_which_no_worker_is_large_enough_fails_in_time(
    shared_spark: SharedSpark, spark_cluster: str, tmp_path: Path, over: str
) -> None:
    conf = {key: value for key, value in CONF.items() if "Java" in key or "host" in key}
    conf["spark.executor.memory"] = "8g"
    options = SparkOptions(master=spark_cluster, conf=conf, python=sys.executable)
    with ExitStack() as stack:
        if over == "Connect":
            address = shared_spark.serve_connect(options)
            spark = stack.enter_context(open_session(SparkOptions(master=address)))
        else:
            spark = shared_spark.open(options)
        work = [Bin(name=name, tasks=[task("", 0, name)]) for name in ("one", "two")]
        outcomes = await run_bins(spark, scripted(tmp_path), *work, executor_wait_ms=1000)
    for name, outcome in outcomes.items():
        assert error_of(outcome).startswith(f"{name}: Spark gave no executor for 1s")
    assert len(outcomes) == 2
