"""Failures of the block tier to take record batches in, and damage to its objects."""

from stratalog.errors import DamagedError, OutcomeUnknownError, RetriableError


class BlockFailedError(RetriableError):
    """The block could not be uploaded or committed for as long as it was tried."""


class BrokerStoppingError(RetriableError):
    """This broker takes no more writes: send them to another one."""


class BrokerFencedError(RetriableError):
    """This broker may not write any more: the control plane or the store is not its own."""


class BlockInDoubtError(OutcomeUnknownError):
    """The block may have been committed, and the control plane could not be asked."""


class RowDamagedError(DamagedError):
    """The bytes that a row points at are not the batches that the row describes."""


class FooterDamagedError(DamagedError):
    """The end of this object is not a block's footer."""
