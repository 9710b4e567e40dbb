"""The data source that Spark finds under the name `stratalog`.

Spark imports this whenever a session looks for data sources, whichever they are, so all the rest
is imported where it is used.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from stratalog.errors import StratalogError
from stratalog.spark.telling import ToldPlainly

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter

    from stratalog.spark.batch_reader import BatchReader
    from stratalog.spark.stream_reader import RefusedStream, StreamReader


class StratalogSource(DataSource):
    """Topics as DataFrames."""

    @classmethod
    def name(cls) -> str:
        return "stratalog"

    def schema(self) -> StructType:
        from stratalog.spark.columns import spark_schema
        from stratalog.spark.options import chosen_columns

        with ToldPlainly():
            return spark_schema(chosen_columns(self.options))

    def reader(self, schema: StructType) -> "BatchReader":
        from stratalog.spark.batch_reader import BatchReader
        from stratalog.spark.options import batch_options

        with ToldPlainly():
            return BatchReader(batch_options(self.options), schema)

    def streamReader(  # noqa: N802
        self, schema: StructType
    ) -> "StreamReader | RefusedStream":
        from stratalog.spark.ending import end_by_exception
        from stratalog.spark.options import stream_options
        from stratalog.spark.stream_reader import RefusedStream, StreamReader

        end_by_exception()
        try:
            return StreamReader(stream_options(self.options), schema)
        except StratalogError as error:
            # Spark stops its reader whatever happens, stumbles if there is none, and tells of that.
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> "DataSourceWriter":
        from stratalog.spark.sink import open_writer

        with ToldPlainly():
            return open_writer(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> "DataSourceStreamWriter":
        from stratalog.spark.sink import open_stream_writer

        with ToldPlainly():
            return open_stream_writer(self.options, schema, overwrite)
