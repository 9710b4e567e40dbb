from stratalog.errors import (
    CallError,
    DamagedError,
    OutcomeUnknownError,
    RetriableError,
)


class ControlUnavailableError(RetriableError):
    """The database did not answer, or aborted the transaction. Nothing was changed."""


class CommitInDoubtError(OutcomeUnknownError):
    """The connection was lost while the database committed: the change may be there or not."""


class ControlAccessError(CallError):
    """The database refuses us: address, credentials, permissions."""


class NoControlPlaneError(CallError):
    """There is nothing at the address, and nobody asked for a new control plane."""


class ControlDamagedError(DamagedError):
    """The database file is not one, or is broken."""
