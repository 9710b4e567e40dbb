"""How our errors reach a user of Spark."""

from types import TracebackType

from stratalog.errors import StratalogError


class ToldPlainly:
    """Our own errors leave the block without the ways that led to them.

    Spark puts an exception into its answers and logs with its whole traceback and all that caused
    it. The message says what to do, and nobody has looked at what libraries put into theirs.
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
