"""The plan of a read: the bytes of segments to request. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stratalog.batch.header import HEADER_BYTES
from stratalog.control.segments.model import Segment
from stratalog.ids import Offset

FIRST_LOOK_BYTES = 32 * 1024
"""The least bytes of a request if the size of the first batch is not known. Two batches of a usual
producer fit, and a second request would take longer than these bytes."""
MOST_LOOK_BYTES = 4 * 1024 * 1024
"""The most bytes of a request for the first batch. An index may be very sparse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """The position at which a read continues."""

    number: int
    """The number of the segment among the segments that are read, from 0."""
    position: int
    """The position in the segment's log at which a batch begins."""
    expected: Offset | None
    """The least offset that this batch may have. None if only the offset index led here."""
    needed_bytes: int = FIRST_LOOK_BYTES
    """The bytes that must be read to see the next batch of the answer."""
    reads_on: bool = False
    """True if an earlier read ended here."""


class LogSpan(NamedTuple):
    """The bytes `[start, end)` of a segment's log."""

    number: int
    start: int
    end: int
    before_bytes: int = 0
    """The bytes of earlier segments that are read in the same step."""


def plan_spans(segments: Sequence[Segment], cursor: Cursor, max_bytes: int) -> list[LogSpan]:
    """Return the spans that can answer a read from the cursor on, with at least one batch.

    Later segments are read from their beginning, as long as there is room for a batch.
    """
    spans: list[LogSpan] = []
    start, least, rest = cursor.position, cursor.needed_bytes, max_bytes
    before_bytes = 0
    for number in range(cursor.number, len(segments)):
        end = min(segments[number].size_bytes, start + max(least, rest))
        spans.append(LogSpan(number, start, end, before_bytes))
        before_bytes += end - start
        rest -= end - start
        if end < segments[number].size_bytes or rest < HEADER_BYTES:
            break
        start, least = 0, 0
    return spans


def spans_after(segments: Sequence[Segment], last: LogSpan, size_bytes: int) -> list[LogSpan]:
    """Return the spans of the next `size_bytes`, which may lie in later segments."""
    spans: list[LogSpan] = []
    start = last.end
    for number in range(last.number, len(segments)):
        end = min(segments[number].size_bytes, start + size_bytes)
        if start < end:
            spans.append(LogSpan(number, start, end))
        size_bytes -= end - start
        start = 0
        if size_bytes <= 0:
            break
    return spans
