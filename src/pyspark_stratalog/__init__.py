"""The data source `stratalog`, in a package that Spark finds by the prefix of its name."""

from stratalog.spark.source import StratalogSource as DefaultSource

__all__ = ["DefaultSource"]
