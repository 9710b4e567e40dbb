import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from stratalog.scan.model import ScanColumn
from stratalog.scan.schema import arrow_schema
from stratalog.spark.columns import columns_of, spark_schema
from stratalog.spark.errors import SchemaError


def test_the_columns_are_those_of_the_kafka_source_and_two_more() -> None:
    assert spark_schema(tuple(ScanColumn)).simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>,"
        "leaderEpoch:int,tier:string>"
    )


@pytest.mark.parametrize("columns", [tuple(ScanColumn), *((column,) for column in ScanColumn)])
def test_a_scan_gives_what_spark_demands(columns: tuple[ScanColumn, ...]) -> None:
    demanded = to_arrow_schema(spark_schema(columns), timezone="UTC")
    assert demanded.equals(arrow_schema(columns))


def test_a_schema_chooses_columns_in_its_order() -> None:
    chosen = (ScanColumn.OFFSET, ScanColumn.HEADERS, ScanColumn.KEY)
    assert columns_of(spark_schema(chosen)) == chosen


@pytest.mark.parametrize(
    ("field", "told"),
    [
        (StructField("size", LongType()), "column 'size': a topic has key, value"),
        (StructField("Offset", LongType()), "column 'Offset': a topic has key, value"),
        (StructField("offset", IntegerType()), "column 'offset': is bigint, not int; cast it"),
        (StructField("headers", ArrayType(StringType())), "column 'headers': is array<struct<"),
        (StructField("offset", LongType(), False), "column 'offset': must not be declared NOT"),
    ],
)
def test_a_column_that_a_topic_has_not_is_named(field: StructField, told: str) -> None:
    with pytest.raises(SchemaError) as caught:
        columns_of(StructType([StructField("topic", StringType()), field]))
    assert str(caught.value).startswith(told)


def test_a_schema_without_columns_is_refused() -> None:
    with pytest.raises(SchemaError, match="the schema is empty"):
        columns_of(StructType())
