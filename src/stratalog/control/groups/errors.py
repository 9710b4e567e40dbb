from stratalog.errors import (
    StaleError,
)


class NotCoordinatorError(StaleError):
    """Another broker coordinates this group (now): find out which, and ask that one."""
