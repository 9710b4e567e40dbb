from stratalog.errors import (
    CallError,
)


class BrokerIdTakenError(CallError):
    """Another live broker has this id."""
