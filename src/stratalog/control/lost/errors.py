from stratalog.errors import RetriableError, StaleError


class LostRangeChangedError(StaleError):
    """The rows of a range are not as they were planned to be filled."""


class LostRangeBusyError(RetriableError):
    """A run of the pipeline holds the partition."""
