"""Reading a snapshot of topics: `spark.read.format("stratalog")`."""

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from stratalog.spark.columns import columns_of
from stratalog.spark.filters import Wanted, take_filters
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
        self._wanted = Wanted()

    def partitions(self) -> list[SplitPartition]:
        with ToldPlainly():
            request = scan_request(self._options, self._columns, self._wanted)
            return partitions_of(plan(self._options, request)) if request is not None else []

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_partition(partition, self._place)


class FilteringBatchReader(BatchReader):
    """A reader that conditions are handed down to.

    It is a class of its own because Spark refuses one that could take them in a session where it
    does not hand them down, which is what a session does unless it is told otherwise.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self._wanted, left = take_filters(filters)
        return left
