"""DataFrames written into topics by a real Spark, and read back by a Kafka consumer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.integration.spark_topics import ReadRow, consumed
from tests.support.clusters import Cluster, create, fresh_topic, one_broker
from tests.support.sink_topics import SinkLake
from tests.support.spark import activate

from stratalog.batch.header import Codec
from stratalog.batch.murmur2 import partition_of_key
from stratalog.pipeline.hosting.session import OpenSpark

pytestmark = pytest.mark.timeout(300)

TIME_MS = 1_780_000_000_000
ALL_COLUMNS = (
    "key binary, value binary, headers array<struct<key:string,value:binary>>, partition int, "
    "timestamp timestamp"
)


@dataclass(frozen=True)
class Written:
    lake: SinkLake
    cluster: Cluster

    def topic(self, name: str, partitions: int = 1, **configs: str) -> str:
        return create(self.cluster, fresh_topic(name), partitions=partitions, **configs)

    def read(self, topic: str) -> list[ReadRow]:
        """All rows by partition and offset, by a Kafka consumer."""
        ends = enumerate(self.lake.high_watermarks(topic))
        return [
            row
            for partition, end in ends
            if end
            for row in consumed(self.cluster.bootstrap, topic, end, partition)
        ]

    def texts(self, topic: str) -> list[str]:
        return sorted((row.value or b"").decode() for row in self.read(topic))

    def to(self, frame: DataFrame, topic: str | None, **options: str) -> DataFrameWriter:
        if topic is not None:
            options["topic"] = topic
        writer = frame.write.format("stratalog").options(config=str(self.lake.config), **options)
        return writer.mode("append")


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    folder = tmp_path_factory.mktemp("sink")
    lake = SinkLake.make(folder)
    with one_broker(folder, base=lake.settings) as cluster:
        yield Written(lake, cluster)


@pytest.fixture
def spark(local_spark: OpenSpark) -> SparkSession:
    session = local_spark.session
    activate(session)
    return session


def numbers(spark: SparkSession, count: int, tasks: int = 2) -> DataFrame:
    return spark.range(0, count, 1, tasks).selectExpr("CAST(id AS STRING) AS value")


def texts(count: int) -> list[str]:
    return sorted(str(number) for number in range(count))


def test_a_kafka_consumer_reads_the_rows_as_they_were(spark: SparkSession, topics: Written) -> None:
    topic = topics.topic("rows", 2)
    headers = [Row(key="a", value=b"1"), Row(key="a", value=None), Row(key="\u00e4", value=b"")]
    rows = [
        (b"key", b"value", headers, 0, TIME_MS),
        (None, b"no key", [], 0, TIME_MS + 1),
        (b"", None, None, 0, TIME_MS - 9_999),
        (b"\x00\xff", b"v" * 3000, headers[:1], 1, TIME_MS),
    ]
    frame = spark.createDataFrame(rows, ALL_COLUMNS.replace("timestamp timestamp", "ms bigint"))
    columns = ["key", "value", "headers", "partition", "timestamp_millis(ms) AS timestamp"]
    topics.to(frame.coalesce(1).selectExpr(*columns), topic).save()
    read = topics.read(topic)
    assert [(row.partition, row.offset) for row in read] == [(0, 0), (0, 1), (0, 2), (1, 0)]
    given = [
        (key, value, tuple(map(tuple, some or ())) or None, at) for key, value, some, _, at in rows
    ]
    assert [(row.key, row.value, row.headers, row.timestamp_ms) for row in read] == given
    assert {row.timestamp_type for row in read} == {0}


def test_every_codec_is_read_back(spark: SparkSession, topics: Written) -> None:
    for codec in Codec:
        topic = topics.topic("codec", compression_type="producer")
        topics.to(numbers(spark, 500), topic, compression=codec.name.lower()).save()
        assert topics.texts(topic) == texts(500), codec


def test_topics_that_stamp_append_time_are_stamped(spark: SparkSession, topics: Written) -> None:
    topic = topics.topic("stamped", message_timestamp_type="LogAppendTime")
    frame = numbers(spark, 3).selectExpr("value", "timestamp_millis(5) AS timestamp")
    topics.to(frame, topic).save()
    rows = topics.read(topic)
    assert {row.timestamp_type for row in rows} == {1}
    assert min(row.timestamp_ms for row in rows) > TIME_MS


def test_keys_lie_where_a_java_compatible_producer_puts_them(
    spark: SparkSession, topics: Written
) -> None:
    ours, theirs = topics.topic("ours", 7), topics.topic("theirs", 7)
    keys = [f"key {number} " + "x" * (number % 9) for number in range(200)]
    producer = Producer(
        {"bootstrap.servers": topics.cluster.bootstrap, "partitioner": "murmur2_random"}
    )
    for key in keys:
        producer.produce(theirs, b"", key.encode())
    assert producer.flush(30) == 0
    frame = spark.createDataFrame([(key, "") for key in keys], "key string, value string")
    topics.to(frame, ours).save()

    def places(topic: str) -> set[tuple[bytes | None, int]]:
        return {(row.key, row.partition) for row in topics.read(topic)}

    assert places(ours) == places(theirs)
    assert places(ours) == {(key.encode(), partition_of_key(key.encode(), 7)) for key in keys}


def test_rows_choose_their_topics(spark: SparkSession, topics: Written) -> None:
    names = [topics.topic("one"), topics.topic("two", 3)]
    rows = [(names[number % 2], str(number)) for number in range(100)]
    frame = spark.createDataFrame(rows, "topic string, value string")
    topics.to(frame, None).save()
    for place, name in enumerate(names):
        assert topics.texts(name) == sorted(str(n) for n in range(place, 100, 2))


def test_more_tasks_than_rows_write_each_row_once(spark: SparkSession, topics: Written) -> None:
    topic = topics.topic("few")
    topics.to(numbers(spark, 3, tasks=5), topic, sinkId=topic).save()
    topics.to(numbers(spark, 3, tasks=5), topic, sinkId=topic).save()
    assert topics.texts(topic) == texts(3)
    assert topics.lake.leases() is None


def test_spark_connect_writes_as_well(connect_spark: OpenSpark, topics: Written) -> None:
    topic = topics.topic("connect")
    topics.to(numbers(connect_spark.session, 10), topic, sinkId=topic).save()
    assert topics.texts(topic) == texts(10)


def refused(writer: DataFrameWriter) -> str:
    with pytest.raises(PySparkException) as caught:
        writer.save()
    return str(caught.value)


def test_what_cannot_be_written_is_refused_before_anything_is(
    spark: SparkSession, topics: Written
) -> None:
    topic = topics.topic("refused")
    frame = numbers(spark, 10)
    refusals: Sequence[tuple[DataFrameWriter, str]] = [
        (topics.to(spark.range(1).toDF("value"), topic), "column 'value': must be binary or"),
        (topics.to(frame, "absent"), "there is no topic 'absent' in sqlite:"),
        (topics.to(frame, topic).mode("overwrite"), 'only ever appended to: use mode("append")'),
    ]
    for writer, message in refusals:
        assert message in refused(writer)
    late = frame.selectExpr("value", "IF(value = '7', 9, 0) AS partition")
    assert "has no partition 9" in refused(topics.to(late, topic))
    assert topics.lake.high_watermarks(topic) == [0]
    assert topics.lake.leases() is None


class Stream:
    """A query over files of lines, one file in each batch."""

    def __init__(self, spark: SparkSession, topics: Written, folder: Path) -> None:
        self._spark = spark
        self._topics = topics
        self._lines = folder / "lines"
        self.checkpoint = folder / "checkpoint"
        self._lines.mkdir()
        self._files = 0

    def add(self, *lines: str) -> None:
        self._files += 1
        text = "".join(f"{line}\n" for line in lines)
        (self._lines / f"{self._files}.txt").write_text(text)

    def replace_first(self, *lines: str) -> None:
        (self._lines / "1.txt").write_text("".join(f"{line}\n" for line in lines))

    def run(self, topic: str, **options: Any) -> StreamingQuery:
        lines = self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(self._lines))
        query = (
            lines.writeStream.format("stratalog")
            .options(topic=topic, config=str(self._topics.lake.config), **options)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    def forget_last_commit(self) -> int:
        """As if Spark had died between the sink's commit and its own."""
        commits = self.checkpoint / "commits"
        last = max(int(entry.name) for entry in commits.iterdir() if entry.name.isdigit())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink()
        return last


@pytest.fixture
def stream(spark: SparkSession, topics: Written, tmp_path: Path) -> Stream:
    return Stream(spark, topics, tmp_path)


def test_a_stream_that_repeats_its_last_batch_writes_it_once(
    stream: Stream, topics: Written
) -> None:
    topic = topics.topic("stream", 2)
    stream.add("a", "b")
    stream.add("c")
    stream.run(topic, sinkId=topic)
    assert topics.texts(topic) == ["a", "b", "c"]
    assert stream.forget_last_commit() == 1
    stream.add("d")
    stream.run(topic, sinkId=topic)
    assert topics.texts(topic) == ["a", "b", "c", "d"]


def test_without_a_sink_id_a_repeated_batch_is_there_twice(stream: Stream, topics: Written) -> None:
    topic = topics.topic("twice")
    stream.add("a")
    stream.run(topic)
    stream.forget_last_commit()
    stream.run(topic)
    assert topics.texts(topic) == ["a", "a"]


def test_a_stream_that_starts_over_must_have_a_sink_id_of_its_own(
    stream: Stream, topics: Written, tmp_path: Path
) -> None:
    topic = topics.topic("over")
    stream.add("a")
    stream.add("b")
    stream.run(topic, sinkId=topic, leaseMs="10m")
    assert topics.lake.leases() is None
    stream.checkpoint = tmp_path / "another"
    with pytest.raises(PySparkException, match="needs a sinkId of its own"):
        stream.run(topic, sinkId=topic)
    assert topics.texts(topic) == ["a", "b"]


def test_a_stream_that_starts_over_after_its_only_batch_does_not_drop_rows(
    stream: Stream, topics: Written, tmp_path: Path
) -> None:
    topic = topics.topic("once")
    stream.add("a")
    stream.run(topic, sinkId=topic)
    stream.checkpoint = tmp_path / "another"
    stream.replace_first("b", "c")
    with pytest.raises(PySparkException, match="needs a sinkId of its own"):
        stream.run(topic, sinkId=topic)
    assert topics.texts(topic) == ["a"]


def test_a_stream_that_starts_over_with_as_many_rows_is_refused(
    stream: Stream, topics: Written, tmp_path: Path
) -> None:
    topic = topics.topic("as-many")
    stream.add("a")
    stream.run(topic, sinkId=topic)
    first = stream.checkpoint
    stream.checkpoint = tmp_path / "another"
    stream.replace_first("b")
    with pytest.raises(PySparkException, match="from another checkpoint"):
        stream.run(topic, sinkId=topic)
    assert topics.texts(topic) == ["a"]
    # The checkpoint is known by its id, also in another folder.
    stream.checkpoint = first.rename(tmp_path / "moved")
    stream.forget_last_commit()
    stream.run(topic, sinkId=topic)
    assert topics.texts(topic) == ["a"]


def test_other_rows_under_a_batch_id_that_was_used_are_refused(
    spark: SparkSession, topics: Written
) -> None:
    topic = topics.topic("other-rows")
    topics.to(numbers(spark, 3), topic, sinkId=topic).save()
    told = refused(topics.to(numbers(spark, 2), topic, sinkId=topic))
    assert "batch 0 already, with 3 records, and now it has 2" in told
    assert "Other rows need a batchId above 0" in told
    topics.to(numbers(spark, 2), topic, sinkId=topic, batchId="1").save()
    assert topics.texts(topic) == sorted([*texts(3), *texts(2)])
