"""A history seen from the log's side: the values at each offset, their senders and readers."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from stratalog.testing.checker.history import (
    Commit,
    Committed,
    Drained,
    Event,
    Place,
    Poll,
    Record,
    Restored,
    Send,
    Stage,
    WentBack,
)

Evidence = tuple[int, Event]


@dataclass(slots=True)
class Message:
    """One value: the operation that sent it, and everything that was learnt about it."""

    invoked: Send
    invoked_at: int
    done: Send | None = None
    done_at: int = -1
    reads: dict[tuple[Place, int], int] = field(default_factory=dict)
    """The offsets at which the value was read, with the first poll that read it."""

    @property
    def stage(self) -> Stage:
        """The stage of the send. A send without an answer may have happened."""
        return self.done.stage if self.done is not None else Stage.UNKNOWN

    @property
    def acked(self) -> bool:
        return self.stage is Stage.OK

    @property
    def acked_offset(self) -> int | None:
        return self.done.offset if self.done is not None and self.acked else None

    @property
    def positions(self) -> dict[tuple[Place, int], int]:
        """All known offsets of this value, with the event that proves each."""
        known = dict(self.reads)
        if self.acked_offset is not None:
            known.setdefault((self.invoked.place, self.acked_offset), self.done_at)
        return known

    @property
    def evidence(self) -> Evidence:
        return (self.invoked_at, self.invoked) if self.done is None else (self.done_at, self.done)


@dataclass(slots=True)
class Log:
    """A partition, as far as the operations show it."""

    values: dict[int, dict[str, int]] = field(default_factory=dict)
    """Values by offset, each with the first event that placed it there. More than one is wrong."""
    highest_read: int = -1
    highest_read_at: int = -1

    def place(self, offset: int, value: str, at: int) -> None:
        self.values.setdefault(offset, {}).setdefault(value, at)

    def known_between(self, begin: int, end: int) -> list[int]:
        """List the offsets of [begin, end) with known values."""
        if end - begin > len(self.values):
            return sorted(offset for offset in self.values if begin <= offset < end)
        return [offset for offset in range(begin, end) if offset in self.values]


class View:
    """A history, indexed in one pass for all checks."""

    def __init__(self, history: Sequence[Event]) -> None:
        self.history = history
        self.messages: dict[str, Message] = {}
        self.logs: dict[Place, Log] = defaultdict(Log)
        self.strangers: list[tuple[Record, int]] = []
        """Records whose value had not been sent to their partition when they were read."""
        self.drained: list[tuple[int, Drained]] = []
        self._turns: list[int] = []
        """The events at which the control plane went back and was restored, in turns."""
        for at, event in enumerate(history):
            if isinstance(event, Send):
                self._take_send(at, event)
            elif isinstance(event, Poll):
                self._take_poll(at, event)
            elif isinstance(event, Drained):
                self.drained.append((at, event))
            elif isinstance(event, WentBack | Restored):
                self._turns.append(at)

    def at(self, *places: int) -> list[Evidence]:
        return [(place, self.history[place]) for place in places]

    def restorations_before(self, at: int) -> int:
        """Count how often the control plane was restored before an event."""
        return bisect_right(self._turns, at) // 2

    def is_lapse(self, at: int) -> bool:
        """Tell whether the control plane was an earlier one at an event."""
        return bisect_right(self._turns, at) % 2 == 1

    def group_events(self) -> Iterator[tuple[int, Commit | Committed]]:
        for at, event in enumerate(self.history):
            if isinstance(event, Commit | Committed):
                yield at, event

    def _take_send(self, at: int, event: Send) -> None:
        if event.stage is Stage.INVOKED:
            self.messages[event.value] = Message(event, at)
            return
        message = self.messages[event.value]
        message.done, message.done_at = event, at
        if event.stage is Stage.OK and event.offset is not None:
            self.logs[event.place].place(event.offset, event.value, at)

    def _take_poll(self, at: int, event: Poll) -> None:
        for record in event.records:
            place = record.place
            log = self.logs[place]
            log.place(record.offset, record.value, at)
            if record.offset > log.highest_read:
                log.highest_read, log.highest_read_at = record.offset, at
            message = self.messages.get(record.value)
            if message is None or message.invoked.place != place:
                self.strangers.append((record, at))
            else:
                message.reads.setdefault((place, record.offset), at)
