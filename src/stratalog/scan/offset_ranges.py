"""Ranges of offsets: positions of a request, checked against the offsets that exist. Pure."""

from typing import NamedTuple

from stratalog.control.log.model import PartitionState
from stratalog.control.scans.model import EARLIEST, LATEST, ScanWish
from stratalog.ids import Offset
from stratalog.scan.errors import BeyondEndError, RecordsLostError
from stratalog.scan.model import RowFilter, ScannedRange, ScanRequest
from stratalog.scan.partition_selection import SelectedPartition

_LIFTS = (
    "set fail_on_data_loss=False (failOnDataLoss as an option of Spark) to read what there is"
    " instead"
)


class Bound(NamedTuple):
    offset: Offset
    """May be `EARLIEST` or `LATEST`."""
    given: bool
    """True if the request names this very offset, so that it is an error if it does not exist."""


class Bounds(NamedTuple):
    start: Bound
    end: Bound


def wish_of(selected: SelectedPartition, bounds: Bounds, rows: RowFilter) -> ScanWish:
    """Return the range to ask the control plane for, without offsets that the filter leaves out."""
    start, end = bounds.start.offset, bounds.end.offset
    if rows.first_offset is not None and start != LATEST:
        start = Offset(max(start, rows.first_offset, 0))
    if rows.end_offset is not None and end != EARLIEST:
        last = max(rows.end_offset, 0)
        end = Offset(last if end == LATEST else min(end, last))
    return ScanWish(selected.key, start, end)


def range_of(
    selected: SelectedPartition, state: PartitionState, bounds: Bounds, request: ScanRequest
) -> ScannedRange:
    """Return the offsets to read. The range may be empty."""
    stop = state.last_stable if request.committed else state.high_watermark
    named = {EARLIEST: state.log_start, LATEST: stop}
    start = named.get(bounds.start.offset, bounds.start.offset)
    end = named.get(bounds.end.offset, bounds.end.offset)
    if request.fail_on_data_loss:
        _check(selected, state, bounds)
    rows = request.rows
    start = max(start, state.log_start, Offset(rows.first_offset or 0))
    end = min(end, stop, end if rows.end_offset is None else Offset(rows.end_offset))
    start = min(start, stop)
    return ScannedRange(
        topic=selected.topic,
        partition=selected.partition,
        start=start,
        end=max(start, end),
        high_watermark=state.high_watermark,
    )


def _check(selected: SelectedPartition, state: PartitionState, bounds: Bounds) -> None:
    start, end = bounds
    if start.given and start.offset < state.log_start:
        raise RecordsLostError(
            f"{selected} is to be read from offset {start.offset}, but begins at"
            f" {state.log_start}: earlier records were deleted; {_LIFTS}"
        )
    for bound, verb in ((start, "read from"), (end, "read up to")):
        if bound.given and bound.offset > state.high_watermark:
            raise BeyondEndError(
                f"{selected} is to be {verb} offset {bound.offset}, but ends at"
                f" {state.high_watermark}; {_LIFTS}"
            )
