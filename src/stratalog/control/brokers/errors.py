from stratalog.errors import (
    CallError,
)


class BrokerIdTakenError(CallError):
    """Another live broker has this id."""


class AddressTakenError(CallError):
    """Another broker is registered at this address, and its lease has not ended."""

    def __init__(self, text: str, *, renewals: int) -> None:
        super().__init__(text)
        self.renewals = renewals
        """Changes whenever the other broker renews its lease, which shows that it is alive."""


class BrokerNotRegisteredError(CallError):
    """No broker is registered under this id."""


class BrokerAliveError(CallError):
    """The broker's lease has not ended, so that it cannot be unregistered."""
