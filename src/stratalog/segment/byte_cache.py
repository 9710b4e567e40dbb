"""A cache with a budget in bytes that a scan cannot empty of what is used again and again.

It is S3-FIFO (Yang and others, SOSP 2023) counted in bytes. What comes in waits in a young queue.
Whatever was read anew by the time it gets to the front of it moves to the main queue; the rest
leaves, and only its key is remembered for a while: coming back soon also leads to the main queue.
A scan thus passes through the young queue alone.

Two things are particular to chunks of a log. A consumer reads a chunk in several steps, which is
still one reading of it: what counts as reading anew is a step that does not go further than the
chunk has been read already. And what was read ahead has not been read at all when it gets to the
front: it may pass the young queue once more, and if it comes back after all, that is no sign of
its being wanted often.

What came last stays until the next one comes, however large it is: a consumer takes a chunk in many
steps, and would fetch and decode all of it for each of them. A chunk that is larger than the young
queue's share takes the difference from the main queue.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

ENTRY_OVERHEAD_BYTES = 400
"""What an entry costs beyond its value: its key, its place in a queue, the objects in between."""

_MOST_READINGS = 3
"""Readings that are remembered of an entry: as many turns it survives in the main queue unread."""
_MOST_GONE = 10_000
"""Keys that are remembered, whatever was the size of what left."""
_UNREAD = -(1 << 62)
"""Less than any position at which somebody begins to read."""


@dataclass(slots=True)
class _Entry(Generic[Value]):
    value: Value
    size_bytes: int
    reached: int
    """How far the value was read, as the greatest position at which a step began."""
    readings: int = 0
    """Steps that read anew what had been read."""
    spared: bool = False
    """Whether it passes the young queue a second time."""


class ByteCache(Generic[Key, Value]):
    def __init__(self, budget_bytes: int, *, young_share: Fraction = Fraction(1, 10)) -> None:
        self.budget_bytes = budget_bytes
        self.young_bytes = int(budget_bytes * young_share)
        """What the young queue keeps when the main queue wants all the room."""
        self.largest_bytes = budget_bytes - ENTRY_OVERHEAD_BYTES
        self.size_bytes = 0
        self._young: OrderedDict[Key, _Entry[Value]] = OrderedDict()
        self._main: OrderedDict[Key, _Entry[Value]] = OrderedDict()
        self._young_size_bytes = 0
        self._gone: OrderedDict[Key, int] = OrderedDict()
        self._gone_bytes = 0

    def __contains__(self, key: Key) -> bool:
        return key in self._young or key in self._main

    def __len__(self) -> int:
        return len(self._young) + len(self._main)

    def find(self, key: Key, at: int = 0) -> Value | None:
        """The value, of which the caller reads a step that begins at the position `at`: before 0,
        if the step began with other values."""
        entry = self._young.get(key) or self._main.get(key)
        if entry is None:
            return None
        if at <= entry.reached:
            entry.readings = min(entry.readings + 1, _MOST_READINGS)
        entry.reached = max(entry.reached, at)
        return entry.value

    def add(self, key: Key, value: Value, size_bytes: int, *, at: int | None = None) -> bool:
        """Keep a value, unless it is too large or here already; say whether it was kept.

        `at` is where the caller itself begins to read it; None, if it was read ahead.
        """
        if size_bytes > self.largest_bytes or key in self:
            return False
        size_bytes += ENTRY_OVERHEAD_BYTES
        entry = _Entry(value, size_bytes, _UNREAD if at is None else at)
        if key in self._gone:
            self._gone_bytes -= self._gone.pop(key)
            self._main[key] = entry
        else:
            self._young[key] = entry
            self._young_size_bytes += size_bytes
        self.size_bytes += size_bytes
        self._shrink()
        return True

    def discard(self, key: Key) -> None:
        """Let go of a value that turned out to be no good."""
        entry = self._young.pop(key, None)
        if entry is not None:
            self._young_size_bytes -= entry.size_bytes
        else:
            entry = self._main.pop(key, None)
        if entry is not None:
            self.size_bytes -= entry.size_bytes

    def _shrink(self) -> None:
        while self.size_bytes > self.budget_bytes:
            is_crowded = self._young_size_bytes > self.young_bytes and len(self._young) > 1
            if is_crowded or not self._main:
                self._turn_young()
            else:
                self._turn_main()

    def _turn_young(self) -> None:
        """Take the first of the young queue, and let it go unless there is a reason to keep it."""
        key, entry = self._young.popitem(last=False)
        if entry.reached == _UNREAD and not entry.spared:
            entry.spared = True
            self._young[key] = entry
            return
        self._young_size_bytes -= entry.size_bytes
        if entry.readings:
            entry.readings = 0
            self._main[key] = entry
            return
        self.size_bytes -= entry.size_bytes
        if entry.reached != _UNREAD:
            self._remember(key, entry.size_bytes)

    def _turn_main(self) -> None:
        key, entry = self._main.popitem(last=False)
        if entry.readings:
            entry.readings -= 1
            self._main[key] = entry
        else:
            self.size_bytes -= entry.size_bytes

    def _remember(self, key: Key, size_bytes: int) -> None:
        """Keys of what left are remembered for as long as the budget would have held it once."""
        self._gone[key] = size_bytes
        self._gone_bytes += size_bytes
        while self._gone_bytes > self.budget_bytes or len(self._gone) > _MOST_GONE:
            self._gone_bytes -= self._gone.popitem(last=False)[1]
