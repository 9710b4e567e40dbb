"""What goes over the wire for the calls of a store: requests, and bytes of objects."""

from typing import Protocol, runtime_checkable


class CountTraffic(Protocol):
    def __call__(self, operation: str, *, requests: int = 0, size_bytes: int = 0) -> None: ...


@runtime_checkable
class TellsTraffic(Protocol):
    """A store whose calls may take several requests, or carry more bytes than they answer."""

    def count_with(self, count: CountTraffic) -> None:
        """Tell of requests as they are sent, and of bytes once they have arrived."""


def uncounted(operation: str, *, requests: int = 0, size_bytes: int = 0) -> None:
    """For stores whose traffic nobody wants to know."""
