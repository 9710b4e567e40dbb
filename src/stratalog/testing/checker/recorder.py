"""The recorder of a history, while clients on many threads act."""

import threading
from dataclasses import replace
from itertools import count

from stratalog.testing.checker.history import (
    Commit,
    Drained,
    Event,
    History,
    Place,
    Poll,
    Position,
    Promise,
    Record,
    Send,
    Stage,
)


class Recorder:
    """Keeps the order of events, and a running count of messages that are still to be read."""

    def __init__(self) -> None:
        self.history: History = []
        self._lock = threading.Lock()
        self._values: dict[str, str] = {}
        self._unseen: set[str] = set()
        self._read: set[str] = set()
        self._committed: dict[Place, int] = {}
        self._ends: dict[Place, int] = {}
        self._open = 0
        self._acked = 0

    @property
    def acked(self) -> int:
        return self._acked

    @property
    def unseen(self) -> int:
        """The number of acknowledged messages that no consumer has read so far."""
        return len(self._unseen)

    @property
    def under_way(self) -> int:
        """The number of messages whose fate is not known yet."""
        return self._open

    @property
    def group_lag(self) -> int:
        """The number of records that the group has still to commit, up to the end of the log."""
        return sum(max(0, end - self._committed.get(at, 0)) for at, end in self._ends.items())

    def add(self, event: Event) -> None:
        with self._lock:
            if isinstance(event, Send):
                self._take_send(event)
            elif isinstance(event, Poll):
                event = self._take_poll(event)
            elif isinstance(event, Commit) and event.stage is Stage.OK:
                self._note_highest(self._committed, event.position)
            elif isinstance(event, Drained):
                for end in event.ends:
                    self._note_highest(self._ends, end)
            self.history.append(event)

    def _note_highest(self, offsets: dict[Place, int], position: Position) -> None:
        offsets[position.place] = max(position.offset or 0, offsets.get(position.place, 0))

    def _take_send(self, event: Send) -> None:
        if event.stage is Stage.INVOKED:
            self._open += 1
            self._values[event.value] = event.value
            return
        self._open -= 1
        if event.stage is Stage.OK:
            self._acked += 1
            if event.value not in self._read:
                self._unseen.add(event.value)

    def _take_poll(self, event: Poll) -> Poll:
        """Share values with their sends: otherwise a long history would not fit into memory."""
        records = tuple(
            Record(*record[:3], self._values.get(record.value, record.value))
            for record in event.records
        )
        for record in records:
            self._read.add(record.value)
            self._unseen.discard(record.value)
        return replace(event, records=records)


class Sending:
    """The sends of one producer: names them, and notes how each ends."""

    def __init__(self, recorder: Recorder, client: str, promise: Promise) -> None:
        self.client = client
        self._recorder = recorder
        self._promise = promise
        self._numbers = count()

    def begin(self, topic: str, partition: int, *, unit: str | None = None) -> Send:
        send = Send(
            client=self.client,
            stage=Stage.INVOKED,
            topic=topic,
            partition=partition,
            value=f"{self.client}:{next(self._numbers)}",
            promise=self._promise,
            unit=unit,
        )
        self._recorder.add(send)
        return send

    def ok(self, send: Send, offset: int | None) -> None:
        self._recorder.add(replace(send, stage=Stage.OK, offset=offset))

    def failed(self, send: Send, error: object, *, certainly: bool) -> None:
        stage = Stage.FAIL if certainly else Stage.UNKNOWN
        self._recorder.add(replace(send, stage=stage, error=str(error)))
