"""Reading topics in one call."""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from stratalog.scan.model import ScanColumn
from stratalog.settings_source import find_settings_file
from stratalog.spark.columns import spark_schema
from stratalog.spark.errors import SchemaError
from stratalog.spark.source import StratalogSource


def read_topic(
    spark: SparkSession,
    topic: str | Sequence[str],
    *,
    columns: Iterable[str] | None = None,
    where: str | None = None,
    config: str | os.PathLike[str] | None = None,
    **options: object,
) -> DataFrame:
    """A batch of one topic or several, with the columns that are named, or all of them.

    Naming columns saves decoding the others, and `where` reading what it leaves out, such as
    `"partition = 0 AND timestamp >= '2026-06-01T00:00:00Z'"`: Spark tells a source neither what a
    query needs. Other options are those of the format; what is not a text is written as JSON, so
    that offsets may be a dict.
    """
    reader = spark.read.format(StratalogSource.name())
    if columns is not None:
        reader = reader.schema(spark_schema([_column(name) for name in columns]))
    if isinstance(topic, str):
        reader = reader.option("topic", topic)
    else:
        reader = reader.option("subscribe", ",".join(topic))
    file = _settings_file(spark, config)
    if file is not None:
        reader = reader.option("config", str(file))
    if where is not None:
        reader = reader.option("where", where)
    for name, value in options.items():
        reader = reader.option(name, value if isinstance(value, str) else json.dumps(value))
    return reader.load()


def _column(name: str) -> ScanColumn:
    try:
        return ScanColumn(name)
    except ValueError:
        raise SchemaError(f"column {name!r}: a topic has {', '.join(ScanColumn)}") from None


def _settings_file(spark: SparkSession, config: str | os.PathLike[str] | None) -> Path | None:
    """Spark's processes may have been started in another folder and with other variables, but a
    Connect server is elsewhere and has files of its own."""
    given = Path(config) if config is not None else None
    if not hasattr(spark, "_jsparkSession"):
        return given
    file = find_settings_file(given, os.environ, Path.cwd())
    return file.absolute() if file is not None else None
