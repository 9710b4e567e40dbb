"""Errors of the tools for tests."""

from stratalog.errors import DamagedError, RetriableError


class BadHistoryError(DamagedError):
    """A line of a stored history cannot be read."""


class BrokerStartError(RetriableError):
    """A broker did not come up, although nothing was done to it."""
