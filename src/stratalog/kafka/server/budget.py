"""Bounds the bytes of requests that are in memory at once. First come, first served, and fair:

- The last quarter is kept for small requests, so that they are served beside large ones.
- While more than half is taken, a connection that has more than a quarter waits behind the others.

A request is charged in steps, as it arrives: a stated size costs nothing. So several requests that
have arrived in part may fill the budget together, and none of them could go on. The broker ends
this by itself: while no whole request is in memory whose answer would free bytes, one request at a
time may overdraw the budget until it is whole. All requests together take no more than the budget
and one request, whose size has a bound of its own. A client that is slow to send while it overdraws
makes the others wait no longer than until the deadline of its request.
"""

from collections import deque
from collections.abc import Callable

_KEPT_PART = 4
"""The part that is kept for small requests, and that one connection may have in any case."""


class Share:
    """The bytes that one connection has of a budget."""

    __slots__ = ("held_bytes",)

    def __init__(self) -> None:
        self.held_bytes = 0


class Grant:
    """A request's claim on the budget. It waits for a step, or holds all that it claimed."""

    __slots__ = (
        "_budget",
        "_is_whole",
        "_on_grant",
        "held_bytes",
        "is_small",
        "share",
        "wanted_bytes",
    )

    def __init__(
        self,
        budget: "ByteBudget",
        on_grant: Callable[[], None],
        share: Share | None,
        *,
        is_small: bool,
    ) -> None:
        self._budget: ByteBudget | None = budget
        self._on_grant = on_grant
        self.share = share or Share()
        self.is_small = is_small
        self._is_whole = False
        self.held_bytes = 0
        self.wanted_bytes = 0

    @property
    def held(self) -> bool:
        return not self.wanted_bytes

    def claim(self, size_bytes: int) -> None:
        """Claim more bytes. Unless the grant is `held` on return, `on_grant` is called later."""
        if self._budget is not None:
            self.wanted_bytes = size_bytes
            self._budget._claim(self)

    def arrived(self) -> None:
        """Note that the request is whole: the broker's own work will free its bytes."""
        if self._budget is not None and not self._is_whole:
            self._is_whole = True
            self._budget._arrived(self)

    def release(self) -> None:
        """Give the bytes back, and stop waiting for more. May be called twice."""
        budget, self._budget = self._budget, None
        if budget is not None:
            budget._release(self, is_whole=self._is_whole)


class ByteBudget:
    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.used_bytes = 0
        self._arriving_bytes = 0
        """The part of the used bytes whose requests are not whole yet."""
        self._small: deque[Grant] = deque()
        self._large: deque[Grant] = deque()
        self._greedy: deque[Grant] = deque()
        """Claims of connections that have more than their share, behind all others."""
        self._overdrawing: Grant | None = None

    @property
    def is_short(self) -> bool:
        """True while a claim waits."""
        return bool(self._small or self._large or self._greedy)

    def request(
        self,
        size_bytes: int,
        on_grant: Callable[[], None],
        *,
        share: Share | None = None,
        is_small: bool = True,
    ) -> Grant:
        """Claim the first bytes of a request, as `Grant.claim` does for the next ones."""
        grant = Grant(self, on_grant, share, is_small=is_small)
        grant.claim(size_bytes)
        return grant

    def _claim(self, grant: Grant) -> None:
        if not self.is_short and self._fits(grant):
            self._give(grant)
            return
        (self._small if grant.is_small else self._large).append(grant)
        self._serve(asking=grant)

    def _arrived(self, grant: Grant) -> None:
        self._arriving_bytes -= grant.held_bytes
        if self._overdrawing is grant:
            self._overdrawing = None

    def _release(self, grant: Grant, *, is_whole: bool) -> None:
        if not grant.held:
            self._queue_of(grant).remove(grant)
        if self._overdrawing is grant:
            self._overdrawing = None
        self.used_bytes -= grant.held_bytes
        grant.share.held_bytes -= grant.held_bytes
        if not is_whole:
            self._arriving_bytes -= grant.held_bytes
        if self.is_short:
            self._serve()

    def _queue_of(self, grant: Grant) -> deque[Grant]:
        return next(one for one in (self._small, self._large, self._greedy) if grant in one)

    def _serve(self, asking: Grant | None = None) -> None:
        while (grant := self._next()) is not None:
            self._queue_of(grant).remove(grant)
            self._give(grant)
            if grant is not asking:
                grant._on_grant()

    def _give(self, grant: Grant) -> None:
        wanted_bytes, grant.wanted_bytes = grant.wanted_bytes, 0
        self.used_bytes += wanted_bytes
        self._arriving_bytes += wanted_bytes
        grant.share.held_bytes += wanted_bytes
        grant.held_bytes += wanted_bytes

    def _next(self) -> Grant | None:
        if not self.is_short:
            return None
        for queue in (self._small, self._large, self._greedy):
            self._set_greedy_aside(queue)
            if queue and self._fits(queue[0]):
                return queue[0]
        if self.used_bytes > self._arriving_bytes:
            return None
        if self._overdrawing is None:
            self._overdrawing = (self._small or self._large or self._greedy)[0]
        return None if self._overdrawing.held else self._overdrawing

    def _set_greedy_aside(self, queue: deque[Grant]) -> None:
        while queue and queue is not self._greedy and self._is_greedy(queue[0]):
            self._greedy.append(queue.popleft())

    def _is_greedy(self, grant: Grant) -> bool:
        held_bytes = grant.share.held_bytes
        is_over = held_bytes + grant.wanted_bytes > self.total_bytes // _KEPT_PART
        return is_over and held_bytes > 0 and self.used_bytes > self.total_bytes // 2

    def _fits(self, grant: Grant) -> bool:
        limit = self.total_bytes
        if not grant.is_small:
            limit -= limit // _KEPT_PART
        elif self._overdrawing is not None:
            # The one that may overdraw takes nothing from small requests.
            limit += self._overdrawing.held_bytes
        if self.used_bytes + grant.wanted_bytes > limit:
            return False
        return not self._is_greedy(grant)
