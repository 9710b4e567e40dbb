"""A place in a log that is read, and the step from it to the end of the batches that are right."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple


class LogBounds(NamedTuple):
    """The batches that a reader may see, and the ones that it wants."""

    wanted: int
    """The answer begins with the batch that holds this offset or, in a gap, with the next one."""
    last_offset: int
    """Of the log, beyond which no batch may reach."""
    max_bytes: int
    """Of the answer."""
    at_least_one: bool
    """The first batch is answered even if it is larger than `max_bytes`."""
    is_dense: bool = True
    """False if the log may have gaps between its batches."""
    may_begin_anywhere: bool = True
    """False if the log, which is entered at a place that an index names, must not be entered
    behind the wanted offset."""


class Stamps(NamedTuple):
    """The stamps for batches that still lie as their producers sent them."""

    leader_epoch: int
    append_time_ms: int | None


@dataclass(slots=True, kw_only=True)
class LogPlace:
    """The place that a walk has reached."""

    expected: int
    """The offset of the next batch, or the least that it may have."""
    is_exact: bool = True
    """True if the batch must have this very offset, unless there are gaps."""
    at: int = 0
    """The position in the data."""
    start: int | None = None
    """The position at which the answer begins. None as long as no batch belongs to it."""


@cache
def load_log_walk() -> Callable[[memoryview, LogPlace, LogBounds, Stamps | None], None]:
    """Load the compiler and the loops of `walk_on`, which takes half a second, or seconds the first
    time on a machine. A broker does it before it serves clients."""
    from stratalog.batch.log_walk import walk_on

    return walk_on
