"""The decision when a block is sealed. Pure: the writer tells it each event
with its time.

A block is sealed when it is full or when its window has ended, and before that when waiting cannot
help and the request that it costs is worth it.

Waiting cannot help if no sender is expected. A sender is a client's connection. It is expected

- while it has requests in the block, has had more of them unanswered before, and has sent one just
  now;
- while it has no request unanswered, usually returns soon after an answer, and is not overdue;
- as one of a crowd, each of which returns rarely, but one of which will within milliseconds.

The first two kinds are waited for no longer than a block takes to be written: by then a block that
had been sealed at once would have been answered. A crowd is waited for until the window ends, so
that it shares blocks, unless the block holds all requests of a sender that returns soon: such a
sender sends nothing while it waits.

A request is worth it if the block has enough bytes, or if the budget has a token. Every block takes
a token, so that windows and early blocks together keep to the budget where windows alone do.

Few blocks are sealed early while others are being written: the next one collects meanwhile. While
none is being written, a block with enough bytes waits for no sender by name: clients with large
requests then fill the next block while the disk is busy with this one, and neither stands still.
"""

import math
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

NO_CONNECTION = -1
"""The sender of requests that come from this process itself."""

WORTHWHILE_BYTES = 1 << 20
"""A block of this size costs little per byte: a thousand of them in a GB, for half a cent at the
list price of S3, which takes 2.3 cents for each month in which it keeps them."""

SAVED_S = 10.0
"""The budget of so many seconds is saved up while few blocks are written."""

_MOST_EARLY = 2
"""Blocks under way beyond which none is sealed early. With one, half of the senders would wait for
the block of the other half."""
_SOON_S = 0.005
"""A sender that usually returns within this time is waited for by name. Of a crowd, one request is
expected within it: 200 in a second, from senders that return later."""
_NEXT_S = 0.002
"""The most between two requests that a client sends one after the other."""
_MOST_DEPTH = 16
"""A client that has had more requests unanswered has no limit that it could be known by. The usual
limit of clients is 5."""
_DEPTH_KEPT = 0.99
"""Of the depth that a sender was seen to have, after each answer."""
_CLASS_S = tuple(2.0**index / 1000 for index in range(16))
"""The usual time of each class. Senders that return after more than 2^15 ms are new ones each
time."""
_PATIENCE = 4
"""A sender is overdue after so many of its usual times."""
_FIRST_ROUND_S = 0.005
_LEARNED = 0.2
"""The weight of the newest of several measurements."""


_BILLED_REQUESTS_PER_S = 4.0
"""The budget for stores that bill requests: as many as the default window makes anyway."""
_UNBILLED = ("file:", "memory:")
"""Addresses of stores whose requests have no price."""


def requests_per_s(chosen: int | None, store_url: str) -> float:
    """Return the budget: the chosen one, or the default for this store."""
    if chosen is not None:
        return chosen
    return math.inf if store_url.startswith(_UNBILLED) else _BILLED_REQUESTS_PER_S


class Reason(Enum):
    """Why a block was sealed: the values of a metric's label."""

    FULL = "full"
    WINDOW = "window"
    EARLY = "early"
    CLOSING = "closing"


class Wait(NamedTuple):
    """The open block is left open until this time, unless something happens before."""

    until_s: float


@dataclass(slots=True)
class _Sender:
    unanswered: int = 0
    depth: float = 1.0
    """The most requests that it has had unanswered."""
    return_class: float = 10.0
    """The binary logarithm of the milliseconds between an answer and its next request. A new sender
    is taken for one that returns after a second: clients that come once each are a crowd, too."""
    answered_s: float = 0.0

    @property
    def usual_class(self) -> int:
        return round(self.return_class)

    @property
    def may_send_more(self) -> bool:
        return self.unanswered < self.depth - 0.5 or self.depth > _MOST_DEPTH

    @property
    def returns_soon(self) -> bool:
        return _CLASS_S[self.usual_class] <= _SOON_S


class Sealing:
    def __init__(self, *, max_bytes: int, window_s: float, requests_per_s: float) -> None:
        """With a budget of 0 no block is sealed early."""
        self.window_s = window_s
        self._max_bytes = max_bytes
        self._requests_per_s = requests_per_s
        self._tokens = self._most_tokens = max(1.0, requests_per_s * SAVED_S)
        self._tokens_s = 0.0
        self._senders: dict[int, _Sender] = {}
        self._absent: list[OrderedDict[int, _Sender]] = [OrderedDict() for _ in _CLASS_S]
        self._round_s = _FIRST_ROUND_S
        self._under_way = 0
        self._begin_block()

    def _begin_block(self) -> None:
        self._bytes = 0
        self._opened_s = math.inf
        self._arrived_s = -math.inf
        self._more_expected: OrderedDict[int, float] = OrderedDict()
        """When each sender of the block that may send more has sent its last request."""
        self._stalled: set[int] = set()
        """Senders that return soon, and have all their requests in this or in earlier blocks."""

    def arrived(self, number: int, size_bytes: int, now_s: float) -> None:
        """Note a request that has entered the open block."""
        self._bytes += size_bytes
        self._opened_s = min(self._opened_s, now_s)
        self._arrived_s = now_s
        sender = self._senders.get(number)
        if sender is None:
            sender = self._senders[number] = _Sender()
        elif not sender.unanswered:
            self._returned(number, sender, now_s)
        sender.unanswered += 1
        sender.depth = max(sender.depth, sender.unanswered)
        self._more_expected.pop(number, None)
        if sender.may_send_more:
            self._more_expected[number] = now_s
        elif sender.returns_soon:
            self._stalled.add(number)

    @property
    def is_full(self) -> bool:
        return self._bytes >= self._max_bytes

    def _returned(self, number: int, sender: _Sender, now_s: float) -> None:
        self._absent[sender.usual_class].pop(number, None)
        newest = math.log2(max((now_s - sender.answered_s) * 1000, 1.0))
        sender.return_class += (min(newest, len(_CLASS_S) - 1) - sender.return_class) / 2

    def sealed(self, now_s: float) -> None:
        """Note that the open block was sealed, and begin the next one."""
        self._refill(now_s)
        self._tokens = max(self._tokens - 1, 0.0)
        self._under_way += 1
        self._begin_block()

    def written(self, numbers: Iterable[int], sealed_s: float, now_s: float) -> None:
        """Note that a sealed block was answered: the sender of each of its requests."""
        self._under_way -= 1
        self._round_s += _LEARNED * (now_s - sealed_s - self._round_s)
        for number in numbers:
            sender = self._senders[number]
            sender.unanswered -= 1
            sender.depth = max(sender.depth * _DEPTH_KEPT, 1.0)
            if not sender.unanswered:
                sender.answered_s = now_s
                self._absent[sender.usual_class][number] = sender

    def decide(self, now_s: float) -> Reason | Wait:
        """Decide whether the open block, which has requests, is sealed now."""
        if self.is_full:
            return Reason.FULL
        window_end_s = self._opened_s + self.window_s
        if now_s >= window_end_s:
            return Reason.WINDOW
        if self._requests_per_s == 0 or self._under_way >= _MOST_EARLY:
            return Wait(window_end_s)
        until_s = max(self._affordable_s(now_s), self._expected_s(now_s))
        return Wait(min(until_s, window_end_s)) if until_s > now_s else Reason.EARLY

    def _affordable_s(self, now_s: float) -> float:
        self._refill(now_s)
        if self._bytes >= WORTHWHILE_BYTES or self._tokens >= 1:
            return -math.inf
        return now_s + (1 - self._tokens) / self._requests_per_s

    def _refill(self, now_s: float) -> None:
        passed_s, self._tokens_s = now_s - self._tokens_s, now_s
        if passed_s > 0:
            self._tokens = min(self._tokens + passed_s * self._requests_per_s, self._most_tokens)

    def _expected_s(self, now_s: float) -> float:
        """Return the time until which waiting helps, in the past if no sender is expected."""
        is_idle = self._bytes >= WORTHWHILE_BYTES and not self._under_way
        if self._bytes >= self._max_bytes / 2 and self._more_expected and not is_idle:
            # It will be full about as soon as another block could be written.
            return self._arrived_s + _SOON_S
        named_s, crowd = self._absent_expected(now_s)
        if self._more_expected:
            named_s = max(named_s, next(reversed(self._more_expected.values())) + _NEXT_S)
        named_s = -math.inf if is_idle else min(named_s, self._opened_s + self._round_s)
        if crowd >= 1 and not self._stalled:
            return max(named_s, now_s + _SOON_S)
        return named_s

    def _absent_expected(self, now_s: float) -> tuple[float, float]:
        """Return the time until which absent senders are waited for by name, and the number of
        requests that come soon from the others."""
        named_s, crowd = -math.inf, 0.0
        for usual_s, absent in zip(_CLASS_S, self._absent, strict=True):
            if absent:
                self._forget_overdue(absent, now_s - _PATIENCE * usual_s)
            if not absent:
                continue
            if usual_s <= _SOON_S:
                newest = next(reversed(absent.values()))
                named_s = max(named_s, newest.answered_s + _PATIENCE * usual_s)
            else:
                crowd += len(absent) * _SOON_S / usual_s
        return named_s, crowd

    def _forget_overdue(self, absent: OrderedDict[int, _Sender], before_s: float) -> None:
        while absent:
            number, sender = next(iter(absent.items()))
            if sender.answered_s >= before_s:
                return
            del absent[number], self._senders[number]
