from stratalog.errors import (
    CallError,
    DamagedError,
    OutcomeUnknownError,
    RetriableError,
)


class ControlUnavailableError(RetriableError):
    """The database did not answer, or aborted the transaction. Nothing was changed."""


class CommitInDoubtError(OutcomeUnknownError):
    """The connection was lost while the database committed: the outcome is unknown."""


class ControlAccessError(CallError):
    """The database refuses us: address, credentials, permissions."""


class NoControlPlaneError(CallError):
    """There is no control plane at the address, and the caller may not create one."""


class ControlDamagedError(DamagedError):
    """The file is not a database, or is broken."""


class SchemaNewerError(CallError):
    """The schema has migrations that this version does not know."""


class TooManyChangesError(CallError):
    """A config was changed so often that its history would grow without a bound."""


class PlanOutdatedError(Exception):
    """The control plane is no longer as the plan found it. Nothing was changed; plan again."""
