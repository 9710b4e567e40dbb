from stratalog.errors import (
    StaleError,
)


class SegmentStateError(StaleError):
    """The segment is not in a state from which this step is allowed."""


class BoundaryMovedError(StaleError):
    """The partition's boundaries are not (any more) where this change expects them."""
