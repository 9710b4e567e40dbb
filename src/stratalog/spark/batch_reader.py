"""Reading a snapshot of topics: `spark.read.format("stratalog")`.

Conditions come by the option `where`. Spark could hand down those of its queries, but it keeps one
reader for all that is done with a DataFrame, with the conditions that it handed down last: another
query on the same DataFrame, or its other half of a join, would be given the wrong rows.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from stratalog.spark.columns import columns_of
from stratalog.spark.options import ReadOptions
from stratalog.spark.planning import (
    SplitPartition,
    find_place,
    partitions_of,
    plan,
    read_partition,
    scan_request,
)
from stratalog.spark.telling import ToldPlainly


class BatchReader(DataSourceReader):
    """Plans on the driver's side, and travels to the executors to read there."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._columns = columns_of(schema)
        self._place = find_place(options)

    def partitions(self) -> list[SplitPartition]:
        with ToldPlainly():
            return partitions_of(plan(self._options, scan_request(self._options, self._columns)))

    def __getstate__(self) -> dict[str, Any]:
        """A pickled reader goes to executors, which only read: it knows no control plane."""
        return {"_place": self._place}

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_partition(partition, self._place)
