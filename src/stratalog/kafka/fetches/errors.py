"""Fetches of a session that is not there, or not as they say. Each has its Kafka error code."""

from stratalog.errors import StaleError


class FetchSessionError(StaleError):
    """The fetch is refused as a whole, without a word about its partitions."""


class FetchSessionNotFoundError(FetchSessionError):
    """The session was evicted, or its connection has gone. The client begins again."""


class FetchSessionEpochError(FetchSessionError):
    """A fetch of the session was lost, or came twice."""


class FetchSessionTopicIdError(FetchSessionError):
    """The client names topics by id now, and named them by name before, or the reverse."""
