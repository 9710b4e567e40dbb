"""Errors of this package, as a user of Spark sees them."""

from types import TracebackType

from stratalog.errors import StratalogError


class PlainErrors:
    """A block that errors of this package leave without traceback and cause.

    Spark puts an exception into its answers and logs, with the whole traceback and all causes. Our
    message is enough for the user. Messages of libraries are not checked and might hold secrets.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, StratalogError):
            raise error.with_traceback(None) from None
