"""The failure of a unit as an executor answers it: the row, the reason, and whether to wait."""

from stratalog.control.log.model import Coordinates
from stratalog.control.pipeline.model import ClaimToken
from stratalog.errors import DamagedError, RetriableError, StaleError, StratalogError
from stratalog.objects.store import ObjectNotFoundError, StoreAccessError
from stratalog.pipeline.plan.tasks import UnitFailed


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


def unit_failed(token: ClaimToken, error: Exception) -> UnitFailed:
    """Sort an error into the answer for the driver.

    A store that refuses access is no damage. Nor is a missing object, as far as an executor knows:
    the plan may be stale.
    """
    row = error.row if isinstance(error, RowFailedError) else None
    cause = error.__cause__ if isinstance(error, RowFailedError) else error
    expected = isinstance(error, StratalogError)
    return UnitFailed(
        token=token,
        error=str(error) if expected else f"{type(error).__name__}: {error}",
        retriable=isinstance(cause, RetriableError | StaleError | StoreAccessError),
        row=row,
        lost=row is not None and isinstance(cause, ObjectNotFoundError),
    )
