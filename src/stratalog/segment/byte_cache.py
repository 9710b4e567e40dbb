"""A cache with a budget in bytes, whose often-used values a scan cannot displace.

The algorithm is S3-FIFO (Yang and others, SOSP 2023), counted in bytes. New values wait in a young
queue. A value that was read again by the time it reaches the front moves to the main queue. Other
values are dropped, and only their keys are remembered for a while: a value that comes back soon
also goes to the main queue. So a scan passes through the young queue only.

Two rules are particular to chunks of a log. A consumer reads a chunk in several steps, which count
as one reading: only a step that does not go further than an earlier one reads the chunk again. And
a chunk that was read ahead may not have been read at all when it reaches the front. It may pass
the young queue once more. If it comes back after it was dropped, that does not show frequent use.

The last value stays until the next one comes, however large it is: a consumer takes a chunk in many
steps, and would otherwise fetch and decode the whole chunk for each of them. A chunk that is larger
than the young queue's share takes the difference from the main queue.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

ENTRY_OVERHEAD_BYTES = 400
"""The memory of an entry beside its value: its key, its slot in a queue, and Python objects."""

_MOST_READINGS = 3
"""The most readings that are counted for an entry. It survives as many unread turns in the main
queue."""
_MOST_GONE = 10_000
"""The most keys of dropped values that are remembered, whatever size the values had."""
_UNREAD = -(1 << 62)
"""Less than any position at which a reader begins."""


@dataclass(slots=True)
class _Entry(Generic[Value]):
    value: Value
    size_bytes: int
    reached: int
    """The greatest position at which a step of a reader began."""
    readings: int = 0
    """The number of steps that read bytes again."""
    spared: bool = False
    """True if the entry passes the young queue a second time."""


class ByteCache(Generic[Key, Value]):
    def __init__(self, budget_bytes: int, *, young_share: Fraction = Fraction(1, 10)) -> None:
        self.budget_bytes = budget_bytes
        self.young_bytes = int(budget_bytes * young_share)
        """The young queue's share of the budget when the main queue is full."""
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
        """Return the value, of which the caller reads a step that begins at the position `at`.

        A negative position means that the step began with other values.
        """
        entry = self._young.get(key) or self._main.get(key)
        if entry is None:
            return None
        if at <= entry.reached:
            entry.readings = min(entry.readings + 1, _MOST_READINGS)
        entry.reached = max(entry.reached, at)
        return entry.value

    def add(self, key: Key, value: Value, size_bytes: int, *, at: int | None = None) -> bool:
        """Keep a value, unless it is too large or already cached. Return True if it was kept.

        `at` is the position at which the caller begins to read. None if the value was read ahead.
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
        """Drop a value that turned out to be damaged."""
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
        """Take the first entry of the young queue. Drop it unless there is a reason to keep it."""
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
        """Remember the key of a dropped value, until other dropped values fill the budget once."""
        self._gone[key] = size_bytes
        self._gone_bytes += size_bytes
        while self._gone_bytes > self.budget_bytes or len(self._gone) > _MOST_GONE:
            self._gone_bytes -= self._gone.popitem(last=False)[1]
