"""Every error that Stratalog raises on purpose, grouped by the reaction of the caller.

Rooms raise a subclass of exactly one category. The Kafka layer maps categories and a few
particular errors to Kafka error codes in one table (`kafka/server/error_codes.py`).
"""


class StratalogError(Exception):
    """Base of all errors of Stratalog."""


class RetriableError(StratalogError):
    """Nothing happened, or it is safe to do again: wait and repeat the same call."""


class StaleError(StratalogError):
    """The caller's knowledge is out of date: look again, then repeat."""


class CallError(StratalogError):
    """The call itself is wrong and will stay wrong until the caller changes it."""


class SettingsError(CallError):
    """A setting, or the file it stands in, is wrong. The message names the place and the cure."""


class TopicConfigError(CallError):
    """A topic config has a name that is not known, or a value that it cannot have."""


class MissingExtraError(CallError, ImportError):
    """A package of an optional part is not installed.

    Also an ImportError, because most callers meet it at an import and catch ImportError.
    """


class DamagedError(StratalogError):
    """Stored or received bytes are damaged."""


class OutcomeUnknownError(StratalogError):
    """The request may or may not have taken effect: find out before doing anything else."""


MALFORMED_JSON = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
)
"""The errors of Python that reading a document can raise if it is not the JSON that was expected.
A number may be infinite, and lists may be nested deeper than Python goes."""
