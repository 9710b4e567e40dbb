"""From positions to ranges of offsets, checked against what is there. Pure."""

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
    """Whether somebody named this very offset, and must be told if it does not exist."""


class Bounds(NamedTuple):
    start: Bound
    end: Bound


def wish_of(chosen: SelectedPartition, bounds: Bounds, rows: RowFilter) -> ScanWish:
    """What to ask the control plane for: nothing that the filter leaves out anyway."""
    start, end = bounds.start.offset, bounds.end.offset
    if rows.first_offset is not None and start != LATEST:
        start = Offset(max(start, rows.first_offset, 0))
    if rows.end_offset is not None and end != EARLIEST:
        last = max(rows.end_offset, 0)
        end = Offset(last if end == LATEST else min(end, last))
    return ScanWish(chosen.key, start, end)


def range_of(
    chosen: SelectedPartition, state: PartitionState, bounds: Bounds, request: ScanRequest
) -> ScannedRange:
    """The offsets to be read, of which there may be none."""
    stop = state.last_stable if request.committed else state.high_watermark
    named = {EARLIEST: state.log_start, LATEST: stop}
    start = named.get(bounds.start.offset, bounds.start.offset)
    end = named.get(bounds.end.offset, bounds.end.offset)
    if request.fail_on_data_loss:
        _check(chosen, state, bounds)
    rows = request.rows
    start = max(start, state.log_start, Offset(rows.first_offset or 0))
    end = min(end, stop, end if rows.end_offset is None else Offset(rows.end_offset))
    start = min(start, stop)
    return ScannedRange(
        topic=chosen.topic,
        partition=chosen.partition,
        start=start,
        end=max(start, end),
        high_watermark=state.high_watermark,
    )


def _check(chosen: SelectedPartition, state: PartitionState, bounds: Bounds) -> None:
    start, end = bounds
    if start.given and start.offset < state.log_start:
        raise RecordsLostError(
            f"{chosen} shall be read from offset {start.offset}, but begins at"
            f" {state.log_start}: what came before was deleted; {_LIFTS}"
        )
    for bound, verb in ((start, "read from"), (end, "read up to")):
        if bound.given and bound.offset > state.high_watermark:
            raise BeyondEndError(
                f"{chosen} shall be {verb} offset {bound.offset}, but ends at"
                f" {state.high_watermark}; {_LIFTS}"
            )
