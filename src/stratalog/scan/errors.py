"""Why a scan cannot be planned, or not be read to its end."""

from stratalog.errors import CallError, DamagedError, StaleError


class ScanRefusedError(CallError):
    """The request contradicts itself. The message says how."""


class TopicNotFoundError(CallError):
    """A topic that shall be read does not exist."""


class TopicReplacedError(TopicNotFoundError):
    """The topic that shall be read does not exist any more, and another one has its name."""


class PartitionNotFoundError(CallError):
    """A partition that shall be read does not exist."""


class RecordsLostError(CallError):
    """The range begins before the first record that is left."""


class BeyondEndError(CallError):
    """The range ends, or begins, after the last record that there is."""


class NoSuchTimeError(CallError):
    """No record of the partition is as young as asked."""


class SnapshotGoneError(StaleError):
    """An object that the snapshot saw is not there any more."""


class ScanDamagedError(DamagedError):
    """What was read is not the range that the control plane speaks of. The message names it."""
