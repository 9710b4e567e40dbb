"""Topics as DataFrames, read by a session that knows nothing of Stratalog, with brokers stopped."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from tests.integration.spark_topics import (
    START_MS,
    Lake,
    ReadRow,
    consumed,
    fill,
    offsets_of,
    rows_of,
)
from tests.support.clusters import BASE, create, folder_storage, one_broker
from tests.support.segment_keys import KEYED, PRIVATE, PUBLIC
from tests.support.spark import SharedSpark

from stratalog.pipeline.hosting.session import OpenSpark
from stratalog.scan.model import ScanColumn
from stratalog.segment.chunk_encoding import Encoding
from stratalog.segment.key_ring import KeyRing
from stratalog.spark import read_topic

pytestmark = pytest.mark.timeout(300)

ORDERS = {0: 120, 1: 40}
REMOTE_END = 60


@dataclass(frozen=True)
class Topics:
    lake: Lake
    orders: list[ReadRow]
    """Of the topic `orders`, as a Kafka consumer has read them."""


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Topics:
    """`orders` has two partitions in both tiers, the rest is small. No broker is left."""
    folder = tmp_path_factory.mktemp("topics")
    settings = replace(BASE, storage=folder_storage(folder), remote=KEYED)
    lake = Lake.of(settings, folder)
    with one_broker(folder, base=settings) as cluster:
        create(cluster, "orders", partitions=2)
        for partition, count in ORDERS.items():
            fill(cluster.bootstrap, "orders", count, partition=partition)
        for name in ("eu-returns", "us-returns", "us-returns-old"):
            create(cluster, name)
            fill(cluster.bootstrap, name, 10)
        create(cluster, "empty")
        create(cluster, "stamped", message_timestamp_type="LogAppendTime")
        fill(cluster.bootstrap, "stamped", 20)
        orders = [
            row
            for partition, count in ORDERS.items()
            for row in consumed(cluster.bootstrap, "orders", count, partition)
        ]
    keys = KeyRing.load({"k": PUBLIC}, {"k": PRIVATE}, "k")
    lake.convert("orders", up_to=30)
    encoding = Encoding(compress=True, encrypt=True)
    lake.convert("orders", up_to=REMOTE_END, encoding=encoding, keys=keys)
    return Topics(lake, orders)


@pytest.fixture
def spark(local_spark: OpenSpark) -> SparkSession:
    return local_spark.session


@pytest.fixture
def reader(spark: SparkSession, topics: Topics) -> Callable[..., DataFrameReader]:
    def made(topic: str | None = "orders", **options: str) -> DataFrameReader:
        given = spark.read.format("stratalog").option("config", str(topics.lake.config))
        given = given.option("topic", topic) if topic is not None else given
        return given.options(**options)

    return made


Reader = Callable[..., DataFrameReader]


def test_rows_are_those_of_a_kafka_consumer_across_tiers(reader: Reader, topics: Topics) -> None:
    frame = reader().load()
    assert frame.columns == [column.value for column in ScanColumn]
    assert rows_of(frame) == topics.orders
    tiers = {
        (row.tier, row.partition): (row.first, row.last)
        for row in frame.groupBy("tier", "partition")
        .agg({"offset": "min", "*": "count"})
        .withColumnsRenamed({"min(offset)": "first", "count(1)": "last"})
        .collect()
    }
    assert tiers == {
        ("remote", 0): (0, REMOTE_END),
        ("block", 0): (REMOTE_END, 120 - REMOTE_END),
        ("block", 1): (0, 40),
    }
    assert [row.leaderEpoch for row in frame.select("leaderEpoch").distinct().collect()] == [0]


def test_a_job_for_kafka_changes_one_word(spark: SparkSession, topics: Topics) -> None:
    frame = (
        spark.read.format("stratalog")
        .option("kafka.bootstrap.servers", "nobody:9092")
        .option("subscribe", "orders,stamped")
        .option("startingOffsets", '{"orders": {"0": 23, "1": -2}, "stamped": {"0": -2}}')
        .option("endingOffsets", '{"orders": {"0": 50, "1": -1}, "stamped": {"0": 5}}')
        .option("includeHeaders", "true")
        .option("CONFIG", str(topics.lake.config))
        .load()
    )
    rows = rows_of(frame)
    wanted = [row for row in topics.orders if row.partition == 1 or 23 <= row.offset < 50]
    assert rows[: len(wanted)] == wanted
    stamped = rows[len(wanted) :]
    assert [(row.topic, row.offset, row.timestamp_type) for row in stamped] == [
        ("stamped", offset, 1) for offset in range(5)
    ]


def test_a_view_in_sql_needs_no_python(spark: SparkSession, topics: Topics) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW orders USING stratalog OPTIONS "
        f"(topic 'orders', config '{topics.lake.config}', columns 'partition,offset')"
    )
    found = spark.sql(
        "SELECT partition, count(*) AS n, max(offset) AS last FROM orders GROUP BY 1 ORDER BY 1"
    )
    assert [tuple(row) for row in found.collect()] == [(0, 120, 119), (1, 40, 39)]
    spark.catalog.dropTempView("orders")


def test_a_schema_chooses_columns_in_its_order(reader: Reader, topics: Topics) -> None:
    frame = reader().schema("timestampType int, offset bigint, key binary").load()
    assert frame.columns == ["timestampType", "offset", "key"]
    found = sorted((row.offset, bytes(row.key) if row.key else None) for row in frame.collect())
    assert found == sorted((row.offset, row.key) for row in topics.orders)


def test_a_pattern_matches_whole_names(reader: Reader) -> None:
    frame = reader(None, subscribePattern="..-returns", columns="topic,offset").load()
    assert sorted(tuple(row) for row in frame.distinct().collect()) == [
        (topic, offset) for topic in ("eu-returns", "us-returns") for offset in range(10)
    ]


def test_partitions_can_be_assigned(reader: Reader, topics: Topics) -> None:
    frame = reader(None, assign='{"orders": [1]}').load()
    assert rows_of(frame) == [row for row in topics.orders if row.partition == 1]


@pytest.mark.parametrize(
    ("options", "first", "end"),
    [
        ({"startingTimestamp": str(START_MS + 50_500)}, 51, 120),
        ({"endingTimestamp": str(START_MS + 70_000)}, 0, 70),
        ({"startingOffsetsByTimestamp": f'{{"orders": {{"0": {START_MS + 1000}}}}}'}, 1, 120),
        ({"endingOffsetsByTimestamp": f'{{"orders": {{"0": {START_MS + 10**9}}}}}'}, 0, 120),
        (
            {
                "startingTimestamp": str(START_MS + 10**9),
                "startingOffsetsByTimestampStrategy": "latest",
            },
            120,
            120,
        ),
    ],
)
def test_times_stand_for_offsets(
    options: dict[str, str], first: int, end: int, reader: Reader
) -> None:
    frame = reader(None, assign='{"orders": [0]}', **options).load()
    assert offsets_of(rows_of(frame)) == list(range(first, end))


def test_a_hot_partition_is_read_by_many_tasks_in_order(reader: Reader) -> None:
    def tasks(**options: str) -> list[int]:
        """How many rows each has."""
        frame = reader(None, assign='{"orders": [0]}', **options).load()
        by_task = frame.selectExpr("spark_partition_id() AS task", "offset").collect()
        assert [row.offset for row in by_task] == list(range(120))
        return list(Counter(row.task for row in by_task).values())

    assert tasks() == [120]
    assert len(tasks(minPartitions="4")) == 4
    assert len(tasks(minPartitions="100")) == 100
    assert len(tasks(splitBytes="1500")) >= 2
    assert tasks(maxRecordsPerPartition="30") == [30] * 4


def test_nothing_is_no_error(reader: Reader) -> None:
    assert rows_of(reader("empty").load()) == []
    assert rows_of(reader(None, subscribePattern="none.*").load()) == []


def test_filters_are_not_handed_down_unless_asked_for(spark: SparkSession, topics: Topics) -> None:
    frame = read_topic(spark, "orders", config=topics.lake.config).where("offset < 3")
    assert offsets_of(rows_of(frame)) == [0, 1, 2, 0, 1, 2]


@pytest.fixture(scope="module")
def held(topics: Topics, shared_spark: SharedSpark) -> Iterator[DataFrame]:
    """Two topics that were read once, without conditions."""
    spark = shared_spark.open_local().session
    frame = spark.read.format("stratalog").options(**two_topics(topics)).load().cache()
    yield frame
    frame.unpersist()


def two_topics(topics: Topics) -> dict[str, str]:
    return {"subscribePattern": "orders|eu-returns", "config": str(topics.lake.config)}


@pytest.mark.parametrize(
    ("where", "condition"),
    [
        ("partition = 0 AND offset BETWEEN 58 AND 61", None),
        ("partition IN (1, 7) AND offset >= 38", None),
        ("partition = 1 AND partition = 0", None),
        (
            f"timestamp > {START_MS + 117_000}",
            f"timestamp > timestamp_millis({START_MS + 117_000})",
        ),
        (f"timestamp <= {START_MS}", f"timestamp <= timestamp_micros({START_MS}999)"),
    ],
)
def test_conditions_by_option_give_the_rows_that_they_give_in_a_query(
    where: str, condition: str | None, spark: SparkSession, held: DataFrame, topics: Topics
) -> None:
    reader = spark.read.format("stratalog").option("where", where)
    found = rows_of(reader.options(**two_topics(topics)).load())
    assert found == rows_of(held.where(condition or where))


@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_queries_on_one_frame_do_not_disturb_each_other(
    pushdown: str, spark: SparkSession, topics: Topics
) -> None:
    """A session may be set to hand conditions down, and would mix up the conditions of two
    queries."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
    try:
        frame = read_topic(spark, "orders", config=topics.lake.config)
        low, high = frame.where("offset < 5"), frame.where("offset >= 115")
        assert (low.count(), frame.count(), high.count()) == (10, len(topics.orders), 5)
        both = sorted(row.offset for row in low.union(high).select("offset").collect())
        assert both == [n for offset in range(5) for n in (offset, offset)] + [*range(115, 120)]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_our_own_call_takes_columns_conditions_and_options(
    spark: SparkSession, topics: Topics
) -> None:
    frame = read_topic(
        spark,
        ["orders", "us-returns"],
        columns=["topic", "offset"],
        where="offset > 8",
        config=topics.lake.config,
        startingOffsets={"orders": {"0": 118}},
        minPartitions=2,
    )
    found = sorted(tuple(row) for row in frame.collect())
    orders = [("orders", offset) for offset in [*range(9, 40), 118, 119]]
    assert found == [*orders, ("us-returns", 9)]


@pytest.mark.parametrize(
    ("topic", "options", "schema", "told"),
    [
        ("ordres", {}, None, "there is no topic 'ordres'; did you mean 'orders'?"),
        ("orders", {"startOffsets": "1"}, None, "startoffsets: there is no such option; did you"),
        ("orders", {"startingOffsets": '{"orders": {"0": 121}}'}, None, "but ends at 120"),
        ("orders", {}, "offset int", "column 'offset': is bigint, not int; cast it after"),
        ("orders", {"config": "/no/such.toml"}, None, "/no/such.toml: there is no such settings"),
    ],
)
def test_a_mistake_is_told_with_what_to_do_and_without_our_insides(
    topic: str, options: dict[str, str], schema: str | None, told: str, reader: Reader
) -> None:
    asked = reader(topic, **options)
    if schema is not None:
        asked = asked.schema(schema)
    with pytest.raises(PySparkException) as caught:
        asked.load().collect()
    assert told in str(caught.value)
    assert str(caught.value).count('  File "') <= 3


def test_connect_reads_as_any_session(connect_spark: OpenSpark, topics: Topics) -> None:
    spark = connect_spark.session
    frame = read_topic(spark, "orders", config=str(topics.lake.config))
    assert rows_of(frame) == topics.orders
    frame = read_topic(spark, "orders", config=Path(topics.lake.config), where="offset = 7")
    assert len(rows_of(frame)) == 2
