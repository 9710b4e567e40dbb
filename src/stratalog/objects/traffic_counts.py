"""Traffic of a store: the requests and the bytes of objects behind its calls."""

from typing import Protocol, runtime_checkable


class CountTraffic(Protocol):
    def __call__(self, operation: str, *, requests: int = 0, size_bytes: int = 0) -> None: ...


@runtime_checkable
class TellsTraffic(Protocol):
    """A store whose calls may take several requests, or carry more bytes than they answer."""

    def count_with(self, count: CountTraffic) -> None:
        """Report requests when they are sent, and bytes when they have arrived."""


def uncounted(operation: str, *, requests: int = 0, size_bytes: int = 0) -> None:
    """Drop the counts of a store without metrics."""
