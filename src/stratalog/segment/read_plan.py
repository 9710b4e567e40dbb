"""Which bytes of which segments to ask for. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stratalog.batch.header import HEADER_BYTES
from stratalog.control.segments.model import Segment
from stratalog.ids import Offset

FIRST_LOOK_BYTES = 32 * 1024
"""Asked for at least, where it is not known how large the first batch may be. Two batches of what
producers usually make; another request would take longer than these bytes."""
MOST_LOOK_BYTES = 4 * 1024 * 1024
"""Asked for at the most, to find the first batch. An index may be as sparse as its writer liked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """Where a read goes on."""

    place: int
    """Of the segment, among those that are read."""
    position: int
    """Of its log, at which a batch begins."""
    expected: Offset | None
    """The first offset that this batch may have; None, if only the index knows of it."""
    needed_bytes: int = FIRST_LOOK_BYTES
    """What must be read to see the next batch of the answer."""
    reads_on: bool = False
    """Whether an earlier read ended here."""


class LogSpan(NamedTuple):
    """The bytes `[start, end)` of a segment's log."""

    place: int
    start: int
    end: int
    before_bytes: int = 0
    """Of earlier segments, that are read in the same step."""


def plan_spans(segments: Sequence[Segment], cursor: Cursor, max_bytes: int) -> list[LogSpan]:
    """What can be answered with from the cursor on, and at least the first batch of it.

    Later segments are read from their beginning, for as long as there is room for a batch.
    """
    spans: list[LogSpan] = []
    start, least, rest = cursor.position, cursor.needed_bytes, max_bytes
    before_bytes = 0
    for place in range(cursor.place, len(segments)):
        end = min(segments[place].size_bytes, start + max(least, rest))
        spans.append(LogSpan(place, start, end, before_bytes))
        before_bytes += end - start
        rest -= end - start
        if end < segments[place].size_bytes or rest < HEADER_BYTES:
            break
        start, least = 0, 0
    return spans


def spans_after(segments: Sequence[Segment], last: LogSpan, size_bytes: int) -> list[LogSpan]:
    """The bytes that follow, so many of them, also in later segments."""
    spans: list[LogSpan] = []
    start = last.end
    for place in range(last.place, len(segments)):
        end = min(segments[place].size_bytes, start + size_bytes)
        if start < end:
            spans.append(LogSpan(place, start, end))
        size_bytes -= end - start
        start = 0
        if size_bytes <= 0:
            break
    return spans
