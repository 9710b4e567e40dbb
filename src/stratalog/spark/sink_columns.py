"""The columns that can be written: the columns of Spark's Kafka sink, and the timestamp. Pure."""

from collections.abc import Mapping

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from stratalog.spark.errors import SchemaError

_BYTES = "binary or string"
ALLOWED: Mapping[str, str] = {
    "value": _BYTES,
    "key": _BYTES,
    "headers": "array<struct<key:string,value:binary>>",
    "topic": "string",
    "partition": "int",
    "timestamp": "timestamp",
}
"""The type of each column, as Spark names it."""


def check_columns(schema: StructType, *, has_topic: bool) -> None:
    """Raise `SchemaError` unless these columns make records. With `has_topic`, an option names the
    topic."""
    names = schema.fieldNames()
    for name in names:
        if name not in ALLOWED:
            raise SchemaError(
                f"column {name!r}: cannot be written; select only columns of {', '.join(ALLOWED)}"
            )
        if names.count(name) > 1:
            raise SchemaError(f"column {name!r}: is there {names.count(name)} times")
    for field in schema.fields:
        if not _is_allowed(field.name, field.dataType):
            raise SchemaError(
                f"column {field.name!r}: must be {ALLOWED[field.name]}, not"
                f" {field.dataType.simpleString()}: cast it before writing"
            )
    if "value" not in names:
        raise SchemaError(f"column 'value': is missing; it must be {_BYTES}")
    if not has_topic and "topic" not in names:
        raise SchemaError("column 'topic': is missing, and no option topic says where all rows go")


def _is_allowed(name: str, given: DataType) -> bool:
    match name:
        case "value" | "key":
            return isinstance(given, BinaryType | StringType)
        case "topic":
            return isinstance(given, StringType)
        case "partition":
            return isinstance(given, IntegerType)
        case "timestamp":
            return isinstance(given, TimestampType)
        case _:
            return _is_headers(given)


def _is_headers(given: DataType) -> bool:
    """Check the type except for its nullability: nulls are looked for in the rows."""
    if not isinstance(given, ArrayType) or not isinstance(given.elementType, StructType):
        return False
    fields = [(field.name, field.dataType) for field in given.elementType.fields]
    kinds = [("key", StringType), ("value", BinaryType)]
    return len(fields) == len(kinds) and all(
        name == wanted and isinstance(found, kind)
        for (name, found), (wanted, kind) in zip(fields, kinds, strict=True)
    )
