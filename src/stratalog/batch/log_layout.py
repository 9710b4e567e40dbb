"""Batches on their way into a log: checked, stamped and counted for its indexes, run by run.

Importing this loads the compiler, and the compiled loops.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stratalog.batch.column_buffers import filled_record
from stratalog.batch.column_layout import LAYOUT
from stratalog.batch.compiled_layout import lay_out
from stratalog.batch.header import parse_header
from stratalog.batch.run_frames import crcs_hold, frames_of
from stratalog.batch.stamp import stamp_append_time

_USUAL_BATCHES = 256
_LAST_TIMESTAMP = (1 << 63) - 1
_Entries = npt.NDArray[np.int64]


class Laid(NamedTuple):
    """Of the batches of one call."""

    next_offset: int
    offset_entries: list[int]
    """In turn an offset, relative to the log's first, and a position in the log."""
    time_entries: list[list[int]]
    """Pairs of a timestamp and an offset."""
    noteworthy: list[int]
    """Where those batches begin whose producers are to be noted."""


class LogLayout:
    """A log so far. Runs come in order, and a run may come in several calls."""

    def __init__(self, base_offset: int, interval_bytes: int, max_timestamp: int) -> None:
        fields = {
            "segment_offset": base_offset,
            "next_offset": base_offset,
            "interval_bytes": interval_bytes,
            "max_timestamp": max_timestamp,
            "max_timestamp_offset": base_offset,
            "noted_timestamp": max_timestamp,
            "min_append_time": _LAST_TIMESTAMP,
        }
        self._layout = filled_record(LAYOUT, fields)
        self._append_time_ms: int | None = None
        self._offset_entries, self._time_entries = _room_for(_USUAL_BATCHES)

    def begin_run(self, leader_epoch: int, append_time_ms: int | None, *, stamped: bool) -> None:
        """Of batches that are stamped, the time is as well."""
        append_time_ms = None if stamped else append_time_ms
        layout = self._layout
        layout["leader_epoch"], layout["stamped"] = leader_epoch, stamped
        layout["has_append_time"] = append_time_ms is not None
        layout["append_time_ms"] = append_time_ms or 0
        self._append_time_ms = append_time_ms

    def add(self, view: memoryview) -> Laid | None:
        """Stamp whole batches where they lie. None if there is something wrong with one; the layout
        is of no more use then."""
        frames = frames_of(view)
        if frames is None or not crcs_hold(view, frames):
            return None
        if len(frames) > len(self._offset_entries):
            self._offset_entries, self._time_entries = _room_for(len(frames))
        offsets, times = self._offset_entries, self._time_entries
        if lay_out(np.frombuffer(view, np.uint8), frames, self._layout, offsets, times) < len(
            frames
        ):
            return None
        if self._append_time_ms is not None:
            for start in frames["start"].tolist():
                stamp_append_time(view, start, parse_header(view, start), self._append_time_ms)
        _, next_offset, *_, offset_count, time_count, noteworthy = self._layout[0].item()
        return Laid(
            next_offset,
            offsets[:offset_count].ravel().tolist() if offset_count else [],
            times[:time_count].tolist() if time_count else [],
            frames["start"][frames["action"] != 0].tolist() if noteworthy else [],
        )

    @property
    def max_timestamp(self) -> int:
        return int(self._layout["max_timestamp"][0])

    @property
    def min_timestamp(self) -> int | None:
        """None unless all batches have the broker's time: of others, headers do not tell it."""
        layout = self._layout[0]
        return None if layout["other_times"] else int(layout["min_append_time"])

    @property
    def max_timestamp_offset(self) -> int:
        """The last one of the first batch that has the greatest timestamp."""
        return int(self._layout["max_timestamp_offset"][0])


def _room_for(batch_count: int) -> tuple[_Entries, _Entries]:
    """For an entry of each index per batch."""
    return np.empty((batch_count, 2), np.int64), np.empty((batch_count, 2), np.int64)
