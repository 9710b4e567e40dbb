"""Bounds the bytes of requests that are in memory at once. First come, first served."""

from collections import deque
from collections.abc import Callable


class Grant:
    """A claim on the budget's bytes: waiting, then held, then released."""

    __slots__ = ("_budget", "_on_grant", "held", "size_bytes")

    def __init__(self, budget: "ByteBudget", size_bytes: int, on_grant: Callable[[], None]) -> None:
        self._budget: ByteBudget | None = budget
        self._on_grant = on_grant
        self.size_bytes = size_bytes
        self.held = False

    def release(self) -> None:
        """Give the bytes back, or stop waiting for them. May be called twice."""
        budget, self._budget = self._budget, None
        if budget is not None:
            budget._release(self)

    def _take(self) -> None:
        self.held = True
        self._on_grant()


class ByteBudget:
    """A request larger than the whole budget is let in when nothing else is held: it could
    never be answered otherwise, and its size has a bound of its own."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.used_bytes = 0
        self._waiting: deque[Grant] = deque()

    def request(self, size_bytes: int, on_grant: Callable[[], None]) -> Grant:
        """Claim bytes. If the grant is not `held` on return, `on_grant` is called once it is."""
        grant = Grant(self, size_bytes, on_grant)
        if not self._waiting and self._fits(size_bytes):
            self.used_bytes += size_bytes
            grant.held = True
        else:
            self._waiting.append(grant)
        return grant

    def _fits(self, size_bytes: int) -> bool:
        return self.used_bytes + size_bytes <= self.total_bytes or self.used_bytes == 0

    def _release(self, grant: Grant) -> None:
        if grant.held:
            self.used_bytes -= grant.size_bytes
        else:
            self._waiting.remove(grant)
        while self._waiting and self._fits(self._waiting[0].size_bytes):
            granted = self._waiting.popleft()
            self.used_bytes += granted.size_bytes
            granted._take()
