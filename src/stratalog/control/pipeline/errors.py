from stratalog.errors import CallError, StaleError


class ClaimLostError(StaleError):
    """The claim expired, and another run may work on its range."""


class SplitRefusedError(CallError):
    """The parts of a split file do not fit together. Nothing was changed."""


class UnknownRunError(StaleError):
    """No such run is in the history (any more)."""
