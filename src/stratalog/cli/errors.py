"""Errors of the command line: bad input, and brokers that do not answer or refuse."""

from stratalog.errors import CallError, RetriableError


class MeasurementError(RetriableError):
    """The measuring client failed."""


class BrokerStartError(CallError):
    """The temporary broker did not come up."""


class NothingMovesError(RetriableError):
    """Records stopped arriving before all were read."""


class BrokerUnreachableError(RetriableError):
    """No broker answers at the address."""


class BrokerRefusedError(CallError):
    """The broker answered with an error."""


class NoSuchTopicError(CallError):
    """The broker knows no topic of this name."""


class NoSuchGroupError(CallError):
    """The brokers know no group of this name."""


class NoSuchFileError(CallError):
    """No file has this path."""


class NotAcknowledgedError(RetriableError):
    """Records were sent, and it is not known whether they were stored."""


class DumpError(CallError):
    """The file is not a dump of metadata records."""


class NotStoredError(RetriableError):
    """Some records were not acknowledged."""


class NoSuchPlaceError(CallError):
    """The topic has no such partition or offset."""


class RecordJsonError(CallError):
    """A line is not a record in JSON."""


class NotSealedError(CallError):
    """The source is not confirmed to be sealed, and a dump cannot tell."""


class BadOptionError(CallError):
    """An option has a value that makes no sense."""


class NothingToAlterError(CallError):
    """The command line names no change."""


class PairError(CallError):
    """A text is not of the form name=value."""


class OtherClusterError(CallError):
    """The broker and the control plane belong to different clusters."""


class PortTakenError(CallError):
    """Another program listens on the address."""


class TimeError(CallError):
    """The text names no point in time."""
