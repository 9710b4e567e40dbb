"""Failures of the block tier to take record batches in."""

from stratalog.errors import OutcomeUnknownError, RetriableError


class BlockFailedError(RetriableError):
    """The block could not be uploaded or committed for as long as it was tried."""


class BrokerStoppingError(RetriableError):
    """This broker takes no more writes: send them to another one."""


class BlockInDoubtError(OutcomeUnknownError):
    """The block may or may not have been committed, and nobody could be asked."""
