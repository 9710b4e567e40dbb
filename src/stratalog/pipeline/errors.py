"""The errors of the pipeline."""

from stratalog.control.log.model import Coordinates
from stratalog.errors import CallError, DamagedError, RetriableError, StaleError, StratalogError
from stratalog.units import format_duration


class HoleError(DamagedError):
    """Rows that should follow each other do not."""


class RowFailedError(DamagedError):
    """A row could not be moved. The text says where it is; `__cause__` is the reason, and may be an
    error of a milder category."""

    def __init__(self, row: Coordinates, cause: StratalogError) -> None:
        end = row.byte_offset + row.byte_size
        where = f"object {row.object_key}, bytes {row.byte_offset} to {end}"
        super().__init__(f"{where}, offset {row.base_offset}: {cause}")
        self.row = row
        self.__cause__ = cause


class UnitMismatchError(DamagedError):
    """The result is not the planned one. The rows, or the plan, are wrong."""


class EarlierSegmentFailedError(StaleError):
    """The segment is useless, because an earlier one of its partition cannot be made."""


class UploadGoneError(DamagedError):
    """The uploaded object is not there, or not complete."""


class IndexesLostError(DamagedError):
    """The indexes of a segment are gone, and the next segment needs its producer snapshot."""


class JobFailedError(RetriableError):
    """A Spark job did not finish. Nothing of it is visible, so that it may be run again."""


class JobCancelledError(JobFailedError):
    """The job was cancelled."""


class NoExecutorError(JobFailedError):
    """Spark has started no task for too long."""

    def __init__(self, name: str, waited_ms: int) -> None:
        super().__init__(
            f"{name}: Spark gave no executor for {format_duration(waited_ms)}: see whether its"
            " workers are up, and have cores and memory to spare for executors as they are asked"
            " for; tiering.executor_wait_ms is how long a run waits"
        )


class SparkStartError(RetriableError):
    """Spark did not start, or cannot be reached. The message has its last output."""


class BadMasterError(CallError):
    """The master is not one that Spark knows."""


class NoJavaError(CallError):
    """There is no Java that Spark could run on. The message names the attempts and a remedy."""


class ChildDiedError(RetriableError):
    """The process ended instead of answering."""
