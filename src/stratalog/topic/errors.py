"""Refusals to read, write or adopt a partition, although there is nothing wrong with its bytes."""

from stratalog.errors import CallError, DamagedError
from stratalog.pieces import Tier


class RowMissingError(DamagedError):
    """No row or segment holds an offset that the partition's boundaries say is there."""


class RemoteReadsOffError(CallError):
    """The records are in the remote tier, and the settings of this broker exclude it from reads."""


class TierNotServedError(CallError):
    """The records are in a tier that this broker has no reader for."""


class ReadOnlyTopicError(CallError):
    """The topic was adopted with its segments and has not been opened for writes yet."""


class NotInMetadataError(CallError):
    """The metadata of the source does not have the topic, or has several topics of its name."""


class OwnRealmError(CallError):
    """The objects to adopt lie where this cluster deletes objects without rows."""


class UnsealedSourceError(CallError):
    """Records of the source would be lost, because they are in no segment."""


class OpenTransactionsError(CallError):
    """The source ends inside transactions, which may still be committed or aborted."""


class AdoptedAlreadyError(CallError):
    """The topic was adopted before. The message names the steps that are left."""


class OutOfOrderSequenceError(CallError):
    """The producer's sequence does not follow its last one: batches before it are missing."""


class FencedProducerError(CallError):
    """A newer epoch of this producer has written already."""


class TransactionsUnsupportedError(CallError):
    """The request or batch belongs to a transaction, and this broker coordinates none."""


def remote_reads_off() -> RemoteReadsOffError:
    return RemoteReadsOffError(
        "the records are in the remote tier, and this broker's setting remote.reads is false: "
        "set it to true and restart the broker"
    )


def tier_not_served(tier: Tier) -> TierNotServedError:
    return TierNotServedError(f"the records are in the {tier} tier, which this broker cannot read")
