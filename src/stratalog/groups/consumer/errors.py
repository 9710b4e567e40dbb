"""What the coordinator of a consumer group tells its members when it cannot do as they wish."""

from stratalog.errors import CallError, StaleError


class InvalidHeartbeatError(CallError):
    """The fields of a heartbeat do not go together."""


class UnsupportedAssignorError(CallError):
    """There is no server-side assignor of this name."""


class InvalidPatternError(CallError):
    """The regular expression of a subscription is not one, or one that is not supported."""


class FencedMemberEpochError(StaleError):
    """The member's epoch is not the one we know: it gives up all partitions and joins anew."""


class StaleMemberEpochError(StaleError):
    """The member's epoch has moved on: it sends a heartbeat and then repeats the call."""


class OldCommitError(CallError):
    """A member commits offsets by a version of the call from before there were member epochs."""


class UnreleasedInstanceError(CallError):
    """Another member has this instance id and has not left."""
