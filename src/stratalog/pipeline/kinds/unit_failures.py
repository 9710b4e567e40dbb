"""The failure of a unit as an executor answers it: the row, the reason, and whether to wait."""

from stratalog.control.pipeline.model import ClaimToken
from stratalog.errors import RetriableError, StaleError, StratalogError
from stratalog.objects.errors import ObjectNotFoundError, StoreAccessError
from stratalog.pipeline.errors import RowFailedError
from stratalog.pipeline.plan.tasks import UnitFailed


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
