"""Checks of the reads of consumers: gaps, steps back, offsets out of range.

The next record of a consumer must be the one at its position. The position follows from its last
read, from its assignment, or from the offset that its group has committed. In the last case it may
lie anywhere between the offset that was certainly committed and the one that may have been.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import NamedTuple

from stratalog.testing.checker.history import (
    Assign,
    Commit,
    Committed,
    Event,
    OutOfRange,
    Place,
    Poll,
    Position,
    Rebalance,
    Record,
    Restored,
    Seek,
    Stage,
    Subscribe,
    WentBack,
)
from stratalog.testing.checker.history_view import View
from stratalog.testing.checker.report import Finding


def int_poll_skip(view: View) -> Iterator[Finding]:
    """Inside one poll, a consumer was led across offsets at which something stands."""
    for at, before, after in _neighbours(view):
        skipped = view.logs[before.place].known_between(before.offset + 1, after.offset)
        if skipped:
            yield _skip(view, "int-poll-skip", [at], after, before.offset, skipped)


def int_nonmonotonic_poll(view: View) -> Iterator[Finding]:
    """Inside one poll, a consumer was led back."""
    for at, before, after in _neighbours(view):
        if after.offset <= before.offset:
            yield Finding(
                check="int-nonmonotonic-poll",
                what=f"one poll of {before.place} went from offset {before.offset} to"
                f" {after.offset}",
                evidence=view.at(at),
            )


def poll_skip(view: View) -> Iterator[Finding]:
    """Between two polls, a consumer was led across offsets at which something stands."""
    for step in _steps(view):
        position, first = step.position, step.first
        if first.offset > position.high:
            skipped = view.logs[first.place].known_between(position.high, first.offset)
            if skipped:
                places = [position.since, step.at]
                yield _skip(view, "poll-skip", places, first, position.high - 1, skipped)


def nonmonotonic_poll(view: View) -> Iterator[Finding]:
    """Between two polls, a consumer was led back."""
    for step in _steps(view):
        if step.first.offset < step.position.low and not view.is_lapse(step.at):
            yield Finding(
                check="nonmonotonic-poll",
                what=f"a consumer of {step.first.place} that stood at offset {step.position.low}"
                f" got offset {step.first.offset}",
                evidence=view.at(step.position.since, step.at),
            )


def out_of_range(view: View) -> Iterator[Finding]:
    """A consumer got the answer that its offset does not exist, and nothing was ever deleted."""
    for at, event in enumerate(view.history):
        if isinstance(event, OutOfRange) and not view.is_lapse(at):
            yield Finding(
                check="out-of-range",
                what=f"{event.client} was told that offset {event.position.offset} of"
                f" {event.position.place} is out of range",
                evidence=view.at(at),
            )


def gap(view: View) -> Iterator[Finding]:
    """No consumer ever found anything at some offsets below the highest one that was read."""
    for place, log in view.logs.items():
        read = sorted(log.values)
        for before, after in pairwise(read):
            if after > before + 1:
                yield Finding(
                    check="gap",
                    what=f"nothing was ever seen at offsets {before + 1} to {after - 1} of {place}",
                    evidence=view.at(
                        next(iter(log.values[before].values())),
                        next(iter(log.values[after].values())),
                    ),
                )


def committed_back(view: View) -> Iterator[Finding]:
    """A lower offset was committed or answered after a group had certainly committed a higher
    one."""
    highest: dict[tuple[str, Place], tuple[int, int]] = {}
    seen_when_begun: dict[tuple[str, str, Place], tuple[int, int]] = {}
    restorations = 0
    for at, event in view.group_events():
        if view.restorations_before(at) > restorations:
            # Commits to an earlier control plane ended with it.
            restorations = view.restorations_before(at)
            highest.clear()
            seen_when_begun.clear()
        if view.is_lapse(at):
            continue
        key = (event.group, event.position.place)
        mine = (event.client, *key)
        sure = highest.get(key, (-1, -1))
        offset = event.position.offset if event.position.offset is not None else -1
        if isinstance(event, Commit) and event.stage is Stage.INVOKED:
            seen_when_begun[mine] = sure
        elif isinstance(event, Commit) and event.stage is not Stage.OK:
            continue
        else:
            before = seen_when_begun.pop(mine, sure) if isinstance(event, Commit) else sure
            if offset < before[0]:
                yield _went_back(view, event, before, at)
            if isinstance(event, Commit) and offset > sure[0]:
                highest[key] = (offset, at)


def _went_back(view: View, event: Commit | Committed, before: tuple[int, int], at: int) -> Finding:
    return Finding(
        check="committed-back",
        what=f"group {event.group} had committed offset {before[0]} of {event.position.place},"
        f" and then {event.position.offset}",
        evidence=view.at(before[1], at),
    )


class _Range(NamedTuple):
    """The range of offsets for a consumer's next record, and the event that it follows from."""

    low: int
    high: int
    since: int


class _Step(NamedTuple):
    """The first record of a partition in a poll, and the position of the consumer before it."""

    position: _Range
    first: Record
    at: int


@dataclass(slots=True)
class _Followed:
    """The positions of consumers at one event of a history."""

    positions: dict[str, dict[Place, _Range]] = field(default_factory=dict)
    sure: dict[tuple[str, Place], int] = field(default_factory=dict)
    """The highest offset that a group has certainly committed."""
    perhaps: dict[tuple[str, Place], int] = field(default_factory=dict)
    """The highest offset that a group may have committed."""

    def take(self, at: int, event: Event) -> Iterator[_Step]:
        match event:
            case Poll():
                yield from self._take_poll(at, event)
            case Assign():
                known = (each for each in event.positions if each.offset is not None)
                self.positions[event.client] = {each.place: _exactly(each, at) for each in known}
            case Seek():
                self._move(event.client, event.position, at)
            case WentBack() | Restored():
                # Brokers may have answered with an earlier end, and consumers start over.
                self.positions.clear()
                self.sure.clear()
            case Subscribe():
                self.positions[event.client] = {}
            case Rebalance():
                self._take_rebalance(at, event)
            case Commit():
                self._take_commit(event)
            case OutOfRange():
                self.positions.get(event.client, {}).pop(event.position.place, None)
            case _:
                pass

    def _take_poll(self, at: int, event: Poll) -> Iterator[_Step]:
        positions = self.positions.setdefault(event.client, {})
        for place, records in by_place(event).items():
            if place in positions:
                yield _Step(positions[place], records[0], at)
            end = records[-1].offset + 1
            positions[place] = _Range(end, end, at)

    def _move(self, client: str, position: Position, at: int) -> None:
        positions = self.positions.setdefault(client, {})
        positions.pop(position.place, None)
        if position.offset is not None:
            positions[position.place] = _exactly(position, at)

    def _take_rebalance(self, at: int, event: Rebalance) -> None:
        """Note the positions of a member. A group without any commit begins as configured."""
        positions = self.positions[event.client] = {}
        for place in event.places:
            high = self.perhaps.get((event.group, place))
            if high is not None:
                low = self.sure.get((event.group, place), 0)
                positions[place] = _Range(low, high, at)

    def _take_commit(self, event: Commit) -> None:
        key, offset = (event.group, event.position.place), event.position.offset
        if offset is None or event.stage is Stage.FAIL:
            return
        self.perhaps[key] = max(offset, self.perhaps.get(key, 0))
        if event.stage is Stage.OK:
            self.sure[key] = max(offset, self.sure.get(key, 0))


def _exactly(position: Position, at: int) -> _Range:
    assert position.offset is not None
    return _Range(position.offset, position.offset, at)


def _steps(view: View) -> Iterator[_Step]:
    followed = _Followed()
    for at, event in enumerate(view.history):
        yield from followed.take(at, event)


def _neighbours(view: View) -> Iterator[tuple[int, Record, Record]]:
    """Yield neighbouring records of one partition inside one poll."""
    for at, event in enumerate(view.history):
        if isinstance(event, Poll):
            for records in by_place(event).values():
                for before, after in pairwise(records):
                    yield at, before, after


def by_place(poll: Poll) -> dict[Place, list[Record]]:
    """Group the records of a poll by partition: a client may take turns between partitions."""
    lanes: dict[Place, list[Record]] = defaultdict(list)
    for place, records in groupby(poll.records, key=lambda record: record.place):
        lanes[place].extend(records)
    return lanes


def _skip(
    view: View, check: str, places: list[int], after: Record, last_offset: int, skipped: list[int]
) -> Finding:
    log = view.logs[after.place]
    values = [value for offset in skipped[:3] for value in log.values[offset]]
    proof = next(iter(log.values[skipped[0]].values()))
    return Finding(
        check=check,
        what=f"a consumer of {after.place} went from offset {last_offset} to {after.offset},"
        f" across {len(skipped)} known ones ({', '.join(values)} …)",
        evidence=view.at(*places, proof),
    )
