"""Errors of checks and repairs."""

from stratalog.errors import CallError, DamagedError


class NoOtherStoreError(CallError):
    """A segment lies in a store that the check cannot open."""


class NotRepairedError(DamagedError):
    """The indexes of this segment cannot be rebuilt. The message says why."""


class LostRangeError(CallError):
    """A range cannot be marked as lost."""
