"""Errors that a Spark user can cause or meet. Each message says how to correct the cause."""

from stratalog.errors import CallError, OutcomeUnknownError, RetriableError, StaleError


class OptionError(CallError):
    """An option of the reader is wrong. The message names the option and its legal values."""


class SchemaError(CallError):
    """The given schema is not made of a topic's columns. The message names the column."""


class DataLossError(StaleError):
    """The records that a stream was to read next are gone."""


class SinkError(CallError):
    """A write is refused. None of its rows is in any topic."""


class SinkTopicError(SinkError):
    """The topic of a write does not exist."""


class SinkRowError(CallError):
    """A row cannot be written, so no row of the write is. The message names the row."""


class SinkNotWrittenError(RetriableError):
    """The commit did not happen and never will. The same write may be run again."""


class SinkInDoubtError(OutcomeUnknownError):
    """The commit may have happened. The message says how to go on."""


class SinkPartlyWrittenError(CallError):
    """A partition was deleted or closed during the commit, and its rows were left out."""
