"""Errors of scans: of a request, of planning, and of reading."""

from stratalog.errors import CallError, DamagedError, StaleError


class ScanRefusedError(CallError):
    """The request contradicts itself. The message says how."""


class TopicNotFoundError(CallError):
    """A topic that the request names does not exist."""


class TopicReplacedError(TopicNotFoundError):
    """The topic was deleted since the request was made, and another topic has its name."""


class PartitionNotFoundError(CallError):
    """A partition that the request names does not exist."""


class RecordsLostError(CallError):
    """The range begins before the first record that is left."""


class BeyondEndError(CallError):
    """The range ends, or begins, after the last record."""


class NoSuchTimeError(CallError):
    """No record of the partition is as young as asked."""


class SnapshotGoneError(StaleError):
    """An object that the snapshot saw is not there any more."""


class ScanDamagedError(DamagedError):
    """The bytes that were read are not the batches that the control plane names. The message says
    which."""
