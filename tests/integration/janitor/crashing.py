"""A store that ends the process before one of its calls."""

from typing import Any


class CrashError(Exception):
    """The process died here."""


class Crashing:
    """Dies at one call: before it has any effect, or after it had."""

    def __init__(self, target: object, method: str, *, after: bool) -> None:
        self._target = target
        self._method = method
        self._after = after

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name)
        if name != self._method:
            return method

        async def crashing(*args: Any, **kwargs: Any) -> Any:
            if self._after:
                await method(*args, **kwargs)
            raise CrashError

        return crashing
