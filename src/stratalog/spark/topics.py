"""Reading topics in one call."""

import json
import os
from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame, SparkSession

from stratalog.opening.location import ClusterLocation
from stratalog.scan.model import ScanColumn
from stratalog.spark.columns import spark_schema
from stratalog.spark.errors import SchemaError
from stratalog.spark.source import StratalogSource


def read_topic(
    spark: SparkSession,
    topic: str | Sequence[str],
    *,
    columns: Iterable[str] | None = None,
    where: str | None = None,
    data: str | os.PathLike[str] | None = None,
    objects: str | None = None,
    control: str | None = None,
    config: str | os.PathLike[str] | None = None,
    **options: object,
) -> DataFrame:
    """Read a batch of one topic or several, with the named columns or all of them.

    Columns that are not named are not decoded, and records that `where` leaves out are not read,
    for example `"partition = 0 AND timestamp >= '2026-06-01T00:00:00Z'"`: Spark does not tell a
    source which columns and rows a query needs. `data`, `objects`, `control` and `config` say where
    the cluster is, as on the command line. Further arguments are options of the format. A value
    that is not a text is written as JSON, so that offsets may be a dict.
    """
    reader = spark.read.format(StratalogSource.name())
    if columns is not None:
        reader = reader.schema(spark_schema([_column(name) for name in columns]))
    if isinstance(topic, str):
        reader = reader.option("topic", topic)
    else:
        reader = reader.option("subscribe", ",".join(topic))
    location = ClusterLocation(data=data, objects=objects, control=control, config=config)
    for name, value in _seen_from(spark, location).given().items():
        reader = reader.option(name, value)
    if where is not None:
        reader = reader.option("where", where)
    for name, given in options.items():
        reader = reader.option(name, given if isinstance(given, str) else json.dumps(given))
    return reader.load()


def _column(name: str) -> ScanColumn:
    try:
        return ScanColumn(name)
    except ValueError:
        raise SchemaError(f"column {name!r}: a topic has {', '.join(ScanColumn)}") from None


def _seen_from(spark: SparkSession, location: ClusterLocation) -> ClusterLocation:
    """Return the location as Spark's processes need it.

    They may have been started in another folder and with other environment variables. A Connect
    server is on another machine and has files of its own.
    """
    return location.absolute() if hasattr(spark, "_jsparkSession") else location
