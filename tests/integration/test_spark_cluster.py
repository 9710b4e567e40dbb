"""Spark on a standalone cluster of two workers, with speculation."""

import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.integration.sink_topics import SinkLake, once, values
from tests.integration.spark_jobs import attempts, run_bins, scripted
from tests.spark import SharedSpark, activate
from tests.unit.pipeline.spark_tasks import task

from stratalog.pipeline.bins import Bin
from stratalog.pipeline.session import OpenSpark
from stratalog.pipeline.spark_conf import SMALL_JVM, SparkOptions

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
