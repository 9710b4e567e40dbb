from stratalog.errors import (
    CallError,
    StaleError,
)


class TopicExistsError(CallError):
    """A topic of this name exists."""


class UnknownTopicError(StaleError):
    """No topic of this name or id exists (any more)."""


class PartitionCountError(CallError):
    """Partitions can only be added."""


class MigrationRefusedError(CallError):
    """The partition is in a state from which this migration step is not allowed."""


class AdoptionRefusedError(CallError):
    """The given segments are not a whole topic, or some of them are known here already."""
