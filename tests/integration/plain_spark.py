"""A user's work in a Spark session that Stratalog has neither opened nor tuned.

Run as: python -m tests.integration.plain_spark CONFIG CHECKPOINT FILE, which writes its findings
to the file.
"""

import pickle
import sys
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from tests.integration.spark_topics import ReadRow, rows_of

from stratalog.spark import read_topic

FROM, TO, STREAMED = "orders", "copies", "streamed"
CONDITION = "partition = 0 AND offset BETWEEN 20 AND 79 AND key IS NOT NULL"
PER_BATCH = 50
SETTINGS = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "false",
    "spark.python.daemon.module": "pyspark.daemon",
}
"""Spark's defaults for the settings that the tuned session changes."""


@dataclass(frozen=True, kw_only=True)
class Found:
    everything: list[ReadRow]
    tiers: list[str]
    by_sql: list[ReadRow]
    by_where: list[ReadRow]
    by_call: list[int]
    """Offsets of the condition's rows, by `read_topic` with one column."""
    batches: list[int]
    """The rows of each batch of the stream."""


def settings_of(spark: SparkSession) -> dict[str, str]:
    return {name: str(spark.conf.get(name, default)) for name, default in SETTINGS.items()}


def write_twice(frame: DataFrame, config: str) -> None:
    for _ in range(2):
        writer = frame.select("key", "value", "headers", "partition", "timestamp").write
        given = writer.format("stratalog").options(config=config, topic=TO, sinkId="plain")
        given.mode("append").save()


def stream(spark: SparkSession, config: str, checkpoint: str) -> list[int]:
    reader = spark.readStream.format("stratalog").options(config=config, topic=FROM)
    rows = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger=PER_BATCH).load()
    query = (
        rows.select("key", "value", "headers", "partition", "timestamp")
        .writeStream.format("stratalog")
        .options(config=config, topic=STREAMED, sinkId="stream", checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [batch["numInputRows"] for batch in query.recentProgress if batch["numInputRows"]]


def work(spark: SparkSession, config: str, checkpoint: str) -> Found:
    assert settings_of(spark) == SETTINGS
    frame = spark.read.format("stratalog").options(config=config, topic=FROM).load()
    spark.sql(
        f"CREATE TEMPORARY VIEW seen USING stratalog OPTIONS (topic '{FROM}', config '{config}')"
    )
    called = read_topic(spark, FROM, columns=["partition", "offset", "key"], config=config)
    found = Found(
        everything=rows_of(frame),
        tiers=sorted(row.tier for row in frame.select("tier").distinct().collect()),
        by_sql=rows_of(spark.sql(f"SELECT * FROM seen WHERE {CONDITION}")),
        by_where=rows_of(frame.where(CONDITION)),
        by_call=sorted(row.offset for row in called.where(CONDITION).collect()),
        batches=stream(spark, config, checkpoint),
    )
    write_twice(frame, config)
    return found


def main(config: str, checkpoint: str, file: str) -> None:
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    Path(file).write_bytes(pickle.dumps(vars(work(spark, config, checkpoint))))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
