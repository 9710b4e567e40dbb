"""Values that a config had before: retention goes by the largest one for a while.

A history is short. A value that returns takes the place of its older entry, and entries leave when
no window can reach back to them. A config that is changed to ever new values is refused at some
point, because to forget an entry early would let retention take records too soon.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from stratalog.control.errors import TooManyChangesError

KEPT_MS = 30 * 24 * 3_600_000
"""The longest window that a setting can ask for."""
_MOST = 100


class EarlierValue(NamedTuple):
    value: str | None
    """None: the default, whatever it was at the time."""
    until_ms: int
    """When another value took its place."""


def read_earlier(pairs: Iterable[Sequence[object]]) -> tuple[EarlierValue, ...]:
    """Read a history as it stands in JSON."""
    return tuple(
        EarlierValue(None if value is None else str(value), int(str(until_ms)))
        for value, until_ms in pairs
    )


def with_earlier(
    history: Iterable[EarlierValue], value: str | None, *, now_ms: int, name: str
) -> tuple[EarlierValue, ...]:
    """Return the history with a value that is replaced now."""
    kept = [
        entry for entry in history if entry.value != value and entry.until_ms > now_ms - KEPT_MS
    ]
    if len(kept) >= _MOST:
        raise TooManyChangesError(
            f"{name} had {_MOST} different values in a month, each of which may still decide which"
            " records are kept: change it later"
        )
    return (*kept, EarlierValue(value, now_ms))
