"""Histories: the operations of clients and their answers, in order, for the checker to judge.

A history is a list of events, in the order in which a single recorder noted them. So an event that
stands before another one was not begun after it. Values are unique: every value is sent by one
operation only. A client that is closed and opened again gets a new name.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import IO, Any, NamedTuple, cast

from stratalog.testing.errors import BadHistoryError


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Record(NamedTuple):
    """A value that a consumer got, with its partition and its offset."""

    topic: str
    partition: int
    offset: int
    value: str

    @property
    def place(self) -> Place:
        return Place(self.topic, self.partition)


class Position(NamedTuple):
    """An offset of a partition: the position of a consumer, or the end of the partition."""

    topic: str
    partition: int
    offset: int | None
    """None if the client does not know it."""

    @property
    def place(self) -> Place:
        return Place(self.topic, self.partition)


class Stage(StrEnum):
    INVOKED = "invoked"
    OK = "ok"
    FAIL = "fail"
    """It certainly did not happen, and never will."""
    UNKNOWN = "unknown"
    """It may have happened, or may still."""


class Promise(StrEnum):
    """The guarantee that a producer relies on."""

    PLAIN = "plain"
    """Retries may repeat messages and change their order."""
    ORDERED = "ordered"
    """One request at a time for a partition: messages may be repeated, but come in order."""
    IDEMPOTENT = "idempotent"
    """Once and in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """A message on its way: once as invoked, and once more when its fate is known."""

    client: str
    stage: Stage
    topic: str
    partition: int
    value: str
    offset: int | None = None
    """With stage `ok`: the offset of the message, if the client got it."""
    promise: Promise = Promise.PLAIN
    unit: str | None = None
    """Sends with the same unit went out as one record batch."""
    error: str | None = None

    @property
    def place(self) -> Place:
        return Place(self.topic, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """One answer of a consumer, its records in the order in which it handed them out."""

    client: str
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """A consumer was assigned these partitions, and no others, outside a group."""

    client: str
    positions: tuple[Position, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seek:
    client: str
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribe:
    """A consumer joined a group. Until the group gives it partitions, it has none."""

    client: str
    group: str
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance:
    """A group gave a member these partitions, and no others."""

    client: str
    group: str
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A member commits the next offset that its group wants to read."""

    client: str
    group: str
    stage: Stage
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The answer to the question for a group's committed offset, asked after all earlier events."""

    client: str
    group: str
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfRange:
    """A consumer got the answer that its offset does not exist."""

    client: str
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """A consumer read everything when no send was under way any more: the log ends here."""

    client: str
    ends: tuple[Position, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WentBack:
    """The control plane went back to an earlier state. Until it is `Restored`, brokers may
    answer with an earlier end and with earlier commits of groups. They acknowledge nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The newest control plane is back, and brokers were started on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something for the reader of the history, such as a fault. No check looks at it."""

    what: str


Event = (
    Send
    | Poll
    | Assign
    | Seek
    | Subscribe
    | Rebalance
    | Commit
    | Committed
    | OutOfRange
    | Drained
    | WentBack
    | Restored
    | Note
)
History = list[Event]

_KINDS: Mapping[str, type[Any]] = {
    kind.__name__.lower(): kind
    for kind in (
        Send,
        Poll,
        Assign,
        Seek,
        Subscribe,
        Rebalance,
        Commit,
        Committed,
        OutOfRange,
        Drained,
        WentBack,
        Restored,
        Note,
    )
}


def to_json(event: Event) -> dict[str, object]:
    """Turn an event into plain values. Fields with their default are left out."""
    written: dict[str, object] = {"event": type(event).__name__.lower()}
    for field in fields(event):
        value = getattr(event, field.name)
        if value != field.default:
            written[field.name] = value
    return written


def write_history(history: Iterable[Event], file: IO[str]) -> None:
    for event in history:
        file.write(json.dumps(to_json(event), ensure_ascii=False) + "\n")


def read_history(lines: Iterable[str]) -> Iterator[Event]:
    for number, line in enumerate(lines, start=1):
        try:
            yield from_json(json.loads(line))
        except (ValueError, TypeError, KeyError) as error:
            raise BadHistoryError(
                f"line {number} of the history is no event ({error!r}): it was cut or changed"
            ) from error


def from_json(written: Mapping[str, Any]) -> Event:
    values = dict(written)
    kind = _KINDS[values.pop("event")]
    read = {name: _READERS.get(name, _same)(value) for name, value in values.items()}
    return cast(Event, kind(**read))


def _same(value: Any) -> Any:
    return value


def _tuples(kind: Any) -> Any:
    return lambda values: tuple(kind(*value) for value in values)


_READERS: Mapping[str, Any] = {
    "stage": Stage,
    "promise": Promise,
    "topics": tuple,
    "records": _tuples(Record),
    "positions": _tuples(Position),
    "places": _tuples(Place),
    "ends": _tuples(Position),
    "position": lambda value: Position(*value),
}
