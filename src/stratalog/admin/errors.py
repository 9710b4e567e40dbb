"""Refusals of an admin's requests."""

from stratalog.errors import CallError


class InvalidTopicNameError(CallError):
    """A topic cannot have this name."""


class UnknownTopicIdError(CallError):
    """No topic has this id, or not any more."""


class DeletedTopicChoiceError(CallError):
    """Several deleted topics had this name, and none was chosen."""


class NotClusterWideError(CallError):
    """Each broker has its own value of this setting."""


class StillReadableError(CallError):
    """Records that can be read are about to be marked as lost."""


class PartitionAssignmentError(CallError):
    """Replicas are assigned by hand in a way that the cluster does not take."""


class ReplicationFactorError(CallError):
    """The replication factor is neither positive nor -1."""


class DuplicateEntryError(CallError):
    """One request names the same thing twice."""


class NoReassignmentError(CallError):
    """A reassignment is to be cancelled, and none is under way."""


class ElectionNotNeededError(CallError):
    """A leader is to be elected, and leaders are not elected."""


class TopicAccessDeniedError(CallError):
    """The principal lacks a right on a topic."""


class GroupAccessDeniedError(CallError):
    """The principal lacks a right on a group."""


class ClusterAccessDeniedError(CallError):
    """The principal lacks a right on the cluster."""


class GroupInUseError(CallError):
    """The operation needs a group without members."""


class TopicLimitError(CallError):
    """The topic would exceed a limit on topics or partitions."""
