"""Reading a snapshot of topics: `spark.read.format("stratalog")`.

Conditions come by the option `where`. Spark could push down the conditions of its queries. But it
keeps one reader for all uses of a DataFrame, with the conditions that it pushed down last: another
query on the same DataFrame, or the other side of a join, would get the wrong rows.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from stratalog.opening.workers import WorkerAccess
from stratalog.spark.columns import columns_of
from stratalog.spark.options import ReadOptions
from stratalog.spark.plain_errors import PlainErrors
from stratalog.spark.scan_calls import (
    SplitPartition,
    partitions_of,
    plan,
    read_partition,
    scan_request,
    worker_access_of,
)

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    """Plans beside the driver, and travels to the executors to read there."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._columns = columns_of(schema)
        self._access = worker_access_of(options)

    def partitions(self) -> list[SplitPartition]:
        with PlainErrors():
            return partitions_of(plan(self._options, scan_request(self._options, self._columns)))

    def __getstate__(self) -> dict[str, WorkerAccess]:
        """Leave out the options: executors only read, and must not learn of the control plane."""
        return {"_access": self._access}

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_partition(partition, self._access)
