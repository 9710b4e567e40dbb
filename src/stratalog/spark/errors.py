"""Errors that a Spark user can cause or meet. Each message says how to put it right."""

from stratalog.errors import CallError, OutcomeUnknownError, RetriableError, StaleError


class OptionError(CallError):
    """An option of the reader is wrong. The message names it and what it may be."""


class SchemaError(CallError):
    """The given schema is not made of a topic's columns. The message names the column."""


class DataLossError(StaleError):
    """What a stream was to read next is gone."""


class SinkError(CallError):
    """A write is refused. Nothing of it is in any topic."""


class SinkTopicError(SinkError):
    """There is no such topic."""


class SinkRowError(CallError):
    """A row cannot be written, and so nothing is. The message names the row."""


class SinkNotWrittenError(RetriableError):
    """The commit did not happen, and never will: the same write may be run again."""


class SinkInDoubtError(OutcomeUnknownError):
    """The commit may have happened. The message says what to do."""


class SinkPartlyWrittenError(CallError):
    """A partition was deleted or closed just then, and its rows were left out."""
