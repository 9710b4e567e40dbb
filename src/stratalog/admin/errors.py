"""Requests of an admin that no topic can fulfil."""

from stratalog.errors import CallError


class InvalidTopicNameError(CallError):
    """A topic cannot have this name."""


class PartitionAssignmentError(CallError):
    """Replicas were assigned by hand, which means nothing where objects hold the data."""


class ReplicationFactorError(CallError):
    """The replication factor is neither positive nor -1."""


class DuplicateEntryError(CallError):
    """One request names the same thing twice."""
