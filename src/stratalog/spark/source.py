"""The data source that Spark finds under the name `stratalog`.

Spark imports this module whenever a session looks for any data source. So all other modules are
imported where they are used.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from stratalog.errors import StratalogError
from stratalog.spark.plain_errors import PlainErrors

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

        with PlainErrors():
            return spark_schema(chosen_columns(self.options))

    def reader(self, schema: StructType) -> "BatchReader":
        from stratalog.spark.batch_reader import BatchReader
        from stratalog.spark.options import batch_options

        with PlainErrors():
            return BatchReader(batch_options(self.options), schema)

    def streamReader(  # noqa: N802
        self, schema: StructType
    ) -> "StreamReader | RefusedStream":
        from stratalog.spark.options import stream_options
        from stratalog.spark.sigterm import exit_on_sigterm
        from stratalog.spark.stream_reader import RefusedStream, StreamReader

        exit_on_sigterm()
        try:
            return StreamReader(stream_options(self.options), schema)
        except StratalogError as error:
            # Spark always stops its reader. If there is none, it fails at that and reports only
            # that failure.
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> "DataSourceWriter":
        from stratalog.spark.sink import open_writer

        with PlainErrors():
            return open_writer(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> "DataSourceStreamWriter":
        from stratalog.spark.sink import open_stream_writer

        with PlainErrors():
            return open_stream_writer(self.options, schema, overwrite)
