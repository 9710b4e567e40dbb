"""Which DataFrames can be written."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from stratalog.spark.errors import SchemaError
from stratalog.spark.sink_columns import check_columns


def headers(value: DataType, **more: DataType) -> DataType:
    return ArrayType(struct(key=StringType(), value=value, **more))


def struct(**fields: DataType) -> StructType:
    schema = StructType()
    for name, kind in fields.items():
        schema.add(name, kind)
    return schema


def check(schema: StructType, *, has_topic: bool = True) -> None:
    check_columns(schema, has_topic=has_topic)


TEXT, BYTES = StringType(), BinaryType()
ALL = struct(
    key=BYTES,
    value=BYTES,
    headers=headers(BYTES),
    topic=TEXT,
    partition=IntegerType(),
    timestamp=TimestampType(),
)


@pytest.mark.parametrize(
    "schema",
    [ALL, struct(value=TEXT), struct(value=BYTES, key=TEXT), struct(key=BYTES, value=TEXT)],
)
def test_columns_as_in_kafkas_sink_are_taken(schema: StructType) -> None:
    check(schema)


def test_a_column_may_say_the_topic_instead_of_an_option() -> None:
    check(struct(value=TEXT, topic=TEXT), has_topic=False)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (struct(value=IntegerType()), "column 'value': must be binary or string, not int"),
        (struct(value=TEXT, key=LongType()), "column 'key': must be binary or string, not bigint"),
        (struct(value=TEXT, partition=LongType()), "column 'partition': must be int, not bigint"),
        (struct(value=TEXT, topic=IntegerType()), "column 'topic': must be string"),
        (
            struct(value=TEXT, timestamp=LongType()),
            "column 'timestamp': must be timestamp, not bigint",
        ),
        (struct(value=TEXT, timestamp=TimestampNTZType()), "column 'timestamp': must be timestamp"),
        (
            struct(value=TEXT, headers=MapType(TEXT, BYTES)),
            "column 'headers': must be array<struct<",
        ),
        (
            struct(value=TEXT, headers=headers(TEXT)),
            "column 'headers': must be array<struct<key:string,value:binary>>, not",
        ),
        (
            struct(value=TEXT, headers=headers(BYTES, more=TEXT)),
            "column 'headers': must be",
        ),
        (
            struct(value=TEXT, offset=LongType()),
            "column 'offset': cannot be written; select only columns",
        ),
        (
            StructType([*struct(value=TEXT).fields, *struct(value=TEXT).fields]),
            "column 'value': is there 2 times",
        ),
        (struct(key=TEXT), "column 'value': is missing"),
    ],
)
def test_other_columns_are_refused_by_name(schema: StructType, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        check(schema)
    assert message in str(caught.value)


def test_some_topic_must_be_named() -> None:
    with pytest.raises(SchemaError, match="column 'topic': is missing, and no option topic"):
        check(struct(value=TEXT), has_topic=False)
