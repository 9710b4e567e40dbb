"""Errors that the members of a consumer group get from its coordinator."""

from stratalog.errors import CallError, RetriableError, StaleError


class InvalidHeartbeatError(CallError):
    """The fields of a heartbeat do not go together."""


class UnsupportedAssignorError(CallError):
    """There is no server-side assignor of this name."""


class InvalidPatternError(CallError):
    """The pattern of a subscription is no regular expression, or uses unsupported syntax."""


class FencedMemberEpochError(StaleError):
    """The member has another epoch than the group knows: it gives up all partitions and joins as a
    new member."""


class StaleMemberEpochError(StaleError):
    """The member's epoch has moved on: it sends a heartbeat and then repeats the call."""


class OldCommitError(CallError):
    """A member commits offsets by a version of the call that knows no member epochs."""


class UnreleasedInstanceError(CallError):
    """Another member has this instance id and has not left."""


class NotSavedError(RetriableError):
    """An earlier change of the group could not be saved, and this change was undone with it."""
