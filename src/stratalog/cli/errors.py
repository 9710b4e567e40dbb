"""Errors of the command line: bad input, and brokers that do not answer or refuse."""

from stratalog.errors import CallError, RetriableError


class MeasurementError(RetriableError):
    """The measuring client failed."""


class BrokerStartError(CallError):
    """The temporary broker did not come up."""


class NothingMovesError(RetriableError):
    """Records stopped coming before all were there."""


class BrokerUnreachableError(RetriableError):
    """No broker answers at the address we were given."""


class BrokerRefusedError(CallError):
    """The broker answered, and the answer is no."""


class NoSuchTopicError(CallError):
    """The broker knows no topic of this name."""


class NoSuchGroupError(CallError):
    """The brokers know no group of this name."""


class GroupInUseError(CallError):
    """What was asked for needs a group without members."""


class NoSuchFileError(CallError):
    """There is nothing at the path."""


class NotAcknowledgedError(RetriableError):
    """Records were sent, and it is not known what became of them."""


class DumpError(CallError):
    """The file is not a dump of records that we understand."""


class NotStoredError(RetriableError):
    """Some records were not acknowledged."""


class NoSuchPlaceError(CallError):
    """The topic has no such partition or offset."""


class RecordJsonError(CallError):
    """A line is not a record in JSON."""


class NoSuchPartitionError(CallError):
    """The topic has no such partition."""


class NotSealedError(CallError):
    """Nobody has said that the source is sealed, and a dump cannot tell."""


class BadOptionError(CallError):
    """An option makes no sense."""


class NothingToAlterError(CallError):
    """The command was told no change."""


class PairError(CallError):
    """A name and a value were expected."""


class OtherClusterError(CallError):
    """Broker and control plane do not belong together."""


class PortTakenError(CallError):
    """Somebody else listens where we were told to."""


class TimeError(CallError):
    """The text names no point in time."""
