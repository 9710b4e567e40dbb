"""The batches in the bytes of a row that answer a read. Pure.

All batches from the beginning of the bytes are checked, because their offsets follow from each
other, up to the last one that is answered. The answered ones are stamped where they lie.
"""

from typing import NamedTuple

from stratalog.batch.errors import BatchDamagedError
from stratalog.batch.frames import check_crc
from stratalog.batch.header import (
    HEADER_BYTES,
    LAST_OFFSET_DELTA_POSITION,
    BatchHeader,
    TimestampType,
    parse_header,
    unpack_header,
)
from stratalog.batch.log_place import LogBounds, LogPlace, Stamps, load_log_walk
from stratalog.batch.stamp import stamp, stamp_append_time
from stratalog.block.errors import RowDamagedError
from stratalog.control.log.model import Coordinates
from stratalog.errors import DamagedError
from stratalog.ids import Offset
from stratalog.objects.store import Buffer


class RowAnswer(NamedTuple):
    part: memoryview
    """The batches of the answer, one after the other."""
    position: int
    """The position in the row at which the next batch begins."""
    next_offset: Offset
    """The offset of that batch."""
    error: RowDamagedError | None = None
    """The damage that ended the answer."""


def select_from_row(
    row: Coordinates, data: Buffer, offset: Offset, max_bytes: int, *, at_least_one: bool
) -> RowAnswer:
    """Select the batches that answer a read from `offset`, from the first bytes of a row.

    There may be fewer bytes than the row has, but then at least `max_bytes`, and a whole batch if
    the answer needs one.
    """
    selection = _Selection(row, data, offset, max_bytes, at_least_one=at_least_one)
    try:
        selection.run()
    except DamagedError as error:
        end = row.byte_offset + row.byte_size
        where = f"object {row.object_key}, bytes {row.byte_offset} to {end}"
        reason = f"{where}, offset {row.base_offset}: {error}"
        return selection.result(RowDamagedError(reason))
    return selection.result()


class _Selection:
    def __init__(
        self, row: Coordinates, data: Buffer, offset: Offset, max_bytes: int, *, at_least_one: bool
    ) -> None:
        view = memoryview(data)
        if view.readonly and not row.stamped:
            view = memoryview(bytearray(view))
        self._row, self._data = row, view
        self._stamps = None if row.stamped else _stamps(row)
        self._place = LogPlace(expected=row.base_offset)
        self._bounds = LogBounds(
            wanted=max(offset, row.base_offset),
            last_offset=row.last_offset,
            max_bytes=max_bytes,
            at_least_one=at_least_one,
        )

    def run(self) -> None:
        """Walk over all that is right, and look at the rest batch by batch."""
        load_log_walk()(self._data, self._place, self._bounds, self._stamps)
        while self._place.at < len(self._data) and self._take_next():
            pass
        row, place = self._row, self._place
        if place.at == row.byte_size and place.expected != row.last_offset + 1:
            last = place.expected - 1
            raise RowDamagedError(f"the batches end at offset {last}, not {row.last_offset}")

    def result(self, error: RowDamagedError | None = None) -> RowAnswer:
        place = self._place
        start = place.at if place.start is None else place.start
        return RowAnswer(self._data[start : place.at], place.at, Offset(place.expected), error)

    def _take_next(self) -> bool:
        """Take one batch in. False if the answer or the bytes have no room for it."""
        row, data, place, bounds = self._row, self._data, self._place, self._bounds
        if len(data) < row.byte_size and _batch_end(data, place.at) > len(data):
            return False
        header = parse_header(data, place.at)
        last = place.expected + header.last_offset_delta
        if header.last_offset_delta < 0:
            position = place.at + LAST_OFFSET_DELTA_POSITION
            raise BatchDamagedError(position, "the last offset delta is negative", place.at)
        if last > row.last_offset:
            raise RowDamagedError(f"a batch ends at offset {last}, after {row.last_offset}")
        if row.stamped and header.base_offset != place.expected:
            reason = f"a batch says offset {header.base_offset}, not {place.expected}"
            raise RowDamagedError(reason)
        is_wanted = last >= bounds.wanted
        if is_wanted and self._is_full(place.at + header.size_bytes):
            return False
        if is_wanted or not row.stamped:
            check_crc(data, place.at, header)
        if self._stamps is not None:
            _stamp(data, place, header, self._stamps)
        if is_wanted and place.start is None:
            place.start = place.at
        place.at += header.size_bytes
        place.expected = last + 1
        return True

    def _is_full(self, end: int) -> bool:
        """Tell if the answer would be too large if it ended here."""
        place, bounds = self._place, self._bounds
        if place.start is None:
            return not bounds.at_least_one and end - place.at > bounds.max_bytes
        return end - place.start > bounds.max_bytes


def _stamps(row: Coordinates) -> Stamps:
    has_append_time = row.timestamp_type is TimestampType.LOG_APPEND_TIME
    return Stamps(
        leader_epoch=row.leader_epoch,
        append_time_ms=row.committed_ms if has_append_time else None,
    )


def _stamp(data: memoryview, place: LogPlace, header: BatchHeader, stamps: Stamps) -> None:
    if stamps.append_time_ms is not None:
        stamp_append_time(data, place.at, header, stamps.append_time_ms)
    stamp(data, place.at, base_offset=place.expected, leader_epoch=stamps.leader_epoch)


def _batch_end(data: memoryview, position: int) -> int:
    """The end of a batch as its header says, or of its header if not even that is there."""
    if len(data) - position < HEADER_BYTES:
        return position + HEADER_BYTES
    return position + unpack_header(data[position : position + HEADER_BYTES]).size_bytes
