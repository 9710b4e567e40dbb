from stratalog.errors import (
    CallError,
    StaleError,
)


class NotCoordinatorError(StaleError):
    """Another broker coordinates this group (now): find out which, and ask that one."""


class TooManyGroupsError(CallError):
    """The cluster has as many consumer groups as its settings allow."""
