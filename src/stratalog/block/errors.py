"""Why a record batch was not taken in, other than damage to its bytes."""

from stratalog.errors import CallError, OutcomeUnknownError, RetriableError


class OutOfOrderSequenceError(CallError):
    """The producer's sequence does not follow its last one: batches before it are missing."""


class FencedProducerError(CallError):
    """A newer epoch of this producer has written already."""


class TransactionsUnsupportedError(CallError):
    """The request or batch belongs to a transaction, and this broker coordinates none."""


class BlockFailedError(RetriableError):
    """The block could not be uploaded or committed for as long as it was tried."""


class BrokerStoppingError(RetriableError):
    """This broker takes no more writes: send them to another one."""


class BlockInDoubtError(OutcomeUnknownError):
    """The block may or may not have been committed, and nobody could be asked."""
