from stratalog.control.errors import PlanOutdatedError
from stratalog.errors import (
    CallError,
    StaleError,
)


class OffsetOutOfRangeError(CallError):
    """The offset lies outside the partition."""


class CommitMismatchError(CallError):
    """Only some of these objects are known: they do not come from one `commit_blocks`."""


class AnswersForgottenError(StaleError):
    """The commit took effect so long ago that its answers are gone."""


class ObjectsKnownError(Exception):
    """Leaves the transaction: one of the objects has a row, of this commit or a tombstone."""


class PartitionMovedError(PlanOutdatedError):
    """The partition is no longer as the plan found it. Nothing was changed."""
