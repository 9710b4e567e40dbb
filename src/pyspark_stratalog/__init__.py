"""Spark looks for packages of this kind of name, and finds the data source `stratalog` here."""

from stratalog.spark.source import StratalogSource as DefaultSource

__all__ = ["DefaultSource"]
