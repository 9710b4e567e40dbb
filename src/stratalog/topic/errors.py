"""Why a partition cannot be read or written, although there is nothing wrong with its bytes."""

from stratalog.errors import CallError, DamagedError


class RowMissingError(DamagedError):
    """No row or segment holds an offset that the partition's boundaries say is there."""


class RemoteReadsOffError(CallError):
    """The records are in the remote tier, which this broker was told not to read."""


class ReadOnlyTopicError(CallError):
    """The topic was adopted with its segments and has not been opened for writes yet."""


def remote_reads_off() -> RemoteReadsOffError:
    return RemoteReadsOffError(
        "the records are in the remote tier, and this broker's setting remote.reads is false: "
        "set it to true and restart the broker"
    )
