"""Errors of the janitor."""

from stratalog.errors import CallError


class DeletionRefusedError(CallError):
    """The store refuses to delete some objects; the others were deleted."""


class SegmentPrefixError(CallError):
    """The prefix of segments overlaps with a prefix of blocks or split files."""
