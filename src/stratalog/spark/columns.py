"""A topic's columns as Spark's types, and the columns that a given schema selects. Pure."""

from collections.abc import Mapping, Sequence

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from stratalog.scan.model import ScanColumn
from stratalog.spark.errors import SchemaError

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
TYPES: Mapping[ScanColumn, DataType] = {
    ScanColumn.KEY: BinaryType(),
    ScanColumn.VALUE: BinaryType(),
    ScanColumn.TOPIC: StringType(),
    ScanColumn.PARTITION: IntegerType(),
    ScanColumn.OFFSET: LongType(),
    ScanColumn.TIMESTAMP: TimestampType(),
    ScanColumn.TIMESTAMP_TYPE: IntegerType(),
    ScanColumn.HEADERS: ArrayType(_HEADER),
    ScanColumn.LEADER_EPOCH: IntegerType(),
    ScanColumn.TIER: StringType(),
}


def spark_schema(columns: Sequence[ScanColumn]) -> StructType:
    return StructType([StructField(column.value, TYPES[column]) for column in columns])


def columns_of(schema: StructType) -> tuple[ScanColumn, ...]:
    """Return the columns of a schema, in its order."""
    if not schema.fields:
        raise SchemaError(f"the schema is empty: name some of {', '.join(ScanColumn)}")
    return tuple(_column(field) for field in schema.fields)


def _column(field: StructField) -> ScanColumn:
    try:
        column = ScanColumn(field.name)
    except ValueError:
        raise SchemaError(f"column {field.name!r}: a topic has {', '.join(ScanColumn)}") from None
    wanted = TYPES[column]
    if field.dataType != wanted:
        raise SchemaError(
            f"column {column.value!r}: is {wanted.simpleString()}, not "
            f"{field.dataType.simpleString()}; cast it after reading"
        )
    if not field.nullable:
        raise SchemaError(f"column {column.value!r}: must not be declared NOT NULL")
    return column
