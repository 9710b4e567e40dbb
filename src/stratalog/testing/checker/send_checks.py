"""Checks of the fate of messages: lost, doubled, displaced, out of order."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise

from stratalog.testing.checker.history import Place, Promise, Stage
from stratalog.testing.checker.history_view import Evidence, Message, View
from stratalog.testing.checker.report import Finding


def lost_write(view: View) -> Iterator[Finding]:
    """No consumer read an acknowledged message, although one read further, or the log ends
    before it."""
    for value, message in view.messages.items():
        offset = message.acked_offset
        if offset is None or message.reads:
            continue
        place = message.invoked.place
        log = view.logs[place]
        if offset <= log.highest_read:
            yield Finding(
                check="lost-write",
                what=f"{value} was acknowledged at offset {offset} of {place}, and nobody read it"
                f" although offset {log.highest_read} was read",
                evidence=[message.evidence, *view.at(log.highest_read_at)],
            )
    yield from _cut_off(view)


def _cut_off(view: View) -> Iterator[Finding]:
    for at, drained in view.drained:
        for end in drained.ends:
            assert end.offset is not None, "a drained consumer knows where the log ends"
            for offset, values in view.logs[end.place].values.items():
                if offset >= end.offset:
                    yield Finding(
                        check="lost-write",
                        what=f"{' and '.join(values)} stood at offset {offset} of {end.place},"
                        f" and the log was found to end at {end.offset}",
                        evidence=view.at(*values.values(), at),
                    )


def unseen(view: View) -> Iterator[Finding]:
    """No consumer read an acknowledged message that lies beyond everything that was read."""
    for value, message in view.messages.items():
        if not message.acked or message.reads:
            continue
        log = view.logs[message.invoked.place]
        offset = message.acked_offset
        if offset is None or offset > log.highest_read:
            yield Finding(
                check="unseen",
                what=f"{value} was acknowledged (offset {offset} of {message.invoked.place}),"
                f" and nobody has read it to the end; reads end at {log.highest_read}",
                evidence=[message.evidence],
            )


def inconsistent_offsets(view: View) -> Iterator[Finding]:
    """One offset has two values."""
    for place, log in view.logs.items():
        for offset, values in log.values.items():
            if len(values) > 1:
                yield Finding(
                    check="inconsistent-offsets",
                    what=f"offset {offset} of {place} held {' and '.join(values)}",
                    evidence=view.at(*sorted(set(values.values()))),
                )


def duplicate(view: View) -> Iterator[Finding]:
    """One value of an idempotent producer stands at two offsets."""
    for value, message in repeated(view):
        if message.invoked.promise is Promise.IDEMPOTENT:
            yield _repeated(view, value, message)


def _repeated(view: View, value: str, message: Message) -> Finding:
    positions = message.positions
    where = ", ".join(f"{place} offset {offset}" for place, offset in sorted(positions))
    return Finding(
        check="duplicate",
        what=f"{value} was sent once by an idempotent producer, and stands at {where}",
        evidence=[message.evidence, *view.at(*sorted(set(positions.values())))],
    )


def repeated(view: View) -> Iterator[tuple[str, Message]]:
    """Yield messages that stand at several offsets. Retries of a plain producer may cause that."""
    for value, message in view.messages.items():
        if len(message.positions) > 1:
            yield value, message


def phantom(view: View) -> Iterator[Finding]:
    """A consumer read a value that was not sent to its partition."""
    for record, at in view.strangers:
        yield Finding(
            check="phantom",
            what=f"offset {record.offset} of {record.place} holds {record.value},"
            " which nobody had sent there",
            evidence=view.at(at),
        )


def aborted_read(view: View) -> Iterator[Finding]:
    """A consumer read a value whose sending certainly failed."""
    for value, message in view.messages.items():
        if message.stage is Stage.FAIL and message.reads:
            yield Finding(
                check="aborted-read",
                what=f"{value} failed ({message.done and message.done.error}), and was read",
                evidence=[message.evidence, *view.at(*message.reads.values())],
            )


def nonmonotonic_send(view: View) -> Iterator[Finding]:
    """A producer that keeps order was given a lower offset for a later message."""
    lanes: dict[tuple[str, Place], list[Message]] = defaultdict(list)
    for message in view.messages.values():
        # A send of unknown fate may be stored late, after its successors. That is allowed.
        if message.invoked.promise is not Promise.PLAIN and message.acked_offset is not None:
            lanes[message.invoked.client, message.invoked.place].append(message)
    for (client, place), messages in lanes.items():
        for earlier, later in _inversions(messages, place):
            yield Finding(
                check="nonmonotonic-send",
                what=f"{client} sent {earlier.invoked.value} before {later.invoked.value}, and"
                f" they stand at offsets {_first(earlier, place)} and {_first(later, place)}"
                f" of {place}",
                evidence=_evidence(view, earlier, later, place),
            )


def int_nonmonotonic_send(view: View) -> Iterator[Finding]:
    """Messages that went out as one record batch stand in another order, or not side by side.

    A batch is stored as a whole or not at all, so this holds for every producer.
    """
    units: dict[tuple[str, Place], list[Message]] = defaultdict(list)
    for message in view.messages.values():
        if message.invoked.unit is not None:
            units[message.invoked.unit, message.invoked.place].append(message)
    for (unit, place), messages in units.items():
        for earlier, later in pairwise(messages):
            here, there = _first(earlier, place), _first(later, place)
            if here is not None and there is not None and there != here + 1:
                yield Finding(
                    check="int-nonmonotonic-send",
                    what=f"{earlier.invoked.value} and {later.invoked.value} are neighbours in"
                    f" the batch {unit}, and stand at offsets {here} and {there} of {place}",
                    evidence=_evidence(view, earlier, later, place),
                )


def _inversions(messages: Iterable[Message], place: Place) -> Iterator[tuple[Message, Message]]:
    for earlier, later in pairwise(messages):
        here, there = _first(earlier, place), _first(later, place)
        if here is not None and there is not None and there <= here:
            yield earlier, later


def _first(message: Message, place: Place) -> int | None:
    """Find the lowest known offset of a message: a repetition comes later."""
    return min((offset for where, offset in message.positions if where == place), default=None)


def _evidence(view: View, earlier: Message, later: Message, place: Place) -> list[Evidence]:
    places = {earlier.evidence[0], later.evidence[0]}
    for message in (earlier, later):
        first = _first(message, place)
        places |= {at for (_, offset), at in message.positions.items() if offset == first}
    return view.at(*sorted(places))
