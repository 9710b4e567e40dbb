from stratalog.errors import (
    CallError,
    StaleError,
)


class LeaseExpiredError(StaleError):
    """The lease ran out: the objects that it protected may be gone."""


class SinkBehindError(CallError):
    """The sink has taken later batches already, or other rows as this one: it belongs to another
    history."""


class SinkRefusedError(CallError):
    """Not every batch of the write can be taken, so none was."""
