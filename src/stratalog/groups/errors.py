"""Errors that members of groups get. Most have a Kafka error code of the same name."""

from stratalog.errors import CallError, DamagedError, RetriableError, StaleError


class InvalidGroupIdError(CallError):
    """A group cannot have this name."""


class UnknownMemberError(StaleError):
    """No member has this id (any more): join again without an id."""


class IllegalGenerationError(StaleError):
    """The group has another generation: join again."""


class RebalanceInProgressError(StaleError):
    """The group is being rebalanced: join again."""


class FencedInstanceError(CallError):
    """Another process has taken this group.instance.id over."""


class MemberIdRequiredError(StaleError):
    """Join again with the id that comes with this answer."""


class InconsistentProtocolError(CallError):
    """The members of the group have no protocol in common with this one."""


class SessionTimeoutError(CallError):
    """The session timeout lies outside the broker's bounds."""


class GroupFullError(CallError):
    """The group has as many members as it may have."""


class GroupNotEmptyError(CallError):
    """The group has members: stop them first."""


class GroupNotFoundError(StaleError):
    """There is no group of this name."""


class SubscribedError(CallError):
    """Members of the group read this topic, so its offsets stay."""


class MetadataTooLargeError(CallError):
    """The text beside a committed offset is too long."""


class NotLoadedError(RetriableError):
    """The saved state of the group could not be loaded: ask again."""


class GroupStateDamagedError(DamagedError):
    """The saved state of a group cannot be decoded."""


class GroupMemoryError(CallError):
    """The members of all groups take as much memory as the settings allow."""


class NewGroupsError(CallError):
    """A client has made more groups in an hour than the settings allow."""


class MemberTooLargeError(CallError):
    """A member's subscription or assignment has more bytes than the settings allow."""


class GroupConfigError(CallError):
    """A config of a group has a name that is not known, or a value that it cannot have."""
