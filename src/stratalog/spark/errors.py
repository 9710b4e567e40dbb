"""What a Spark user can get wrong about a topic, told so that it can be put right."""

from stratalog.errors import CallError, StaleError


class OptionError(CallError):
    """An option of the reader is wrong. The message names it and what it may be."""


class SchemaError(CallError):
    """The given schema is not made of a topic's columns. The message names the column."""


class DataLossError(StaleError):
    """What a stream was to read next is gone."""
