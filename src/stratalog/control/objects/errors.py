from stratalog.errors import (
    CallError,
)


class BarredObjectError(CallError):
    """A tombstone stands under this object id: its commit was given up, for ever."""
