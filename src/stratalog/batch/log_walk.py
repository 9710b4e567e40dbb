"""The walk over the batches of a log on their way to a reader: found, checked and stamped all at
once, as far as nothing is odd.

The walk ends before the first batch that needs a second look: a damaged one, one that is cut off,
one for which the answer has no room. The caller looks at that batch by itself, and finds the words
for its fault. So every rule stands twice: here for all batches that are right, and there for the
reason why one is not.

Importing this loads the compiler, and the compiled loops.
"""

import threading

import numpy as np

from stratalog.batch.addresses import address_of
from stratalog.batch.batch_crcs import are_right
from stratalog.batch.compiled_log_walk import (
    AT,
    EXPECTED,
    FIELDS,
    IS_EXACT,
    ROOM,
    START,
    stamp_batches,
    walk_log,
)
from stratalog.batch.header import parse_header
from stratalog.batch.log_place import LogBounds, LogPlace, Stamps
from stratalog.batch.stamp import stamp_append_time


def walk_on(data: memoryview, place: LogPlace, bounds: LogBounds, stamps: Stamps | None) -> None:
    """Move the place behind the batches that are right, and stamp them. None for `stamps` says that
    they have been stamped."""
    walk, walk_address = _of_thread.walk, _of_thread.address
    address, held = address_of(data)
    count = ROOM
    while count == ROOM:
        walk[:FIELDS] = (
            place.at,
            place.expected,
            place.is_exact,
            -1 if place.start is None else place.start,
            bounds.is_dense,
            stamps is None,
            not bounds.may_begin_anywhere,
            bounds.wanted,
            bounds.last_offset,
            bounds.max_bytes,
            bounds.at_least_one,
            0,
        )
        count = walk_log(address, len(data), walk_address)
        if not are_right(data, walk[FIELDS : FIELDS + 3 * count].reshape(count, 3)):
            break
        if stamps is not None:
            stamp_batches(address, walk_address, place.expected, stamps.leader_epoch)
            if stamps.append_time_ms is not None:
                for start in walk[FIELDS : FIELDS + 3 * count : 3].tolist():
                    header = parse_header(data, start)
                    stamp_append_time(data, start, header, stamps.append_time_ms)
        start = int(walk[START])
        place.at, place.expected = int(walk[AT]), int(walk[EXPECTED])
        place.is_exact = bool(walk[IS_EXACT])
        place.start = None if start < 0 else start
    del held


class _OfThread(threading.local):
    """The numbers of a walk, kept for the next one."""

    def __init__(self) -> None:
        self.walk = np.zeros(FIELDS + 3 * ROOM, np.int64)
        self.address: int = self.walk.__array_interface__["data"][0]


_of_thread = _OfThread()
