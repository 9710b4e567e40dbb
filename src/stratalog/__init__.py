"""Stratalog: a Kafka-compatible log that lives in object storage.

`read` is imported when it is first used: it loads Arrow, which no broker needs.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stratalog.scan.api import read

__all__ = ["read"]


def __getattr__(name: str) -> object:
    if name == "read":
        from stratalog.scan.api import read

        return read
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
