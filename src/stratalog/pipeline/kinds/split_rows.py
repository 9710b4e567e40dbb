"""The part of one partition in a split file: its batches, checked and stamped, and its new rows.

Pure. A row ends where the next batch would make it too large to be read for a small fetch, or has
another leader epoch or timestamp type. The rows of a part adjoin, in bytes and in offsets. A row
has the commit time of its newest batch, and beside it the commit time of its oldest one.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from crc32c import crc32c

from stratalog.batch.errors import BatchDamagedError
from stratalog.batch.frames import check_crc
from stratalog.batch.header import (
    CRC_START,
    HEADER_BYTES,
    LAST_OFFSET_DELTA_POSITION,
    LOG_OVERHEAD_BYTES,
    TimestampType,
    parse_header,
)
from stratalog.batch.stamp import stamp_append_time
from stratalog.block.footer import FooterRange
from stratalog.control.log.commit_plan import MAX_ROW_BYTES
from stratalog.control.log.model import Coordinates
from stratalog.errors import StratalogError
from stratalog.ids import LeaderEpoch, ObjectId, Offset, TopicPartition
from stratalog.pipeline.errors import RowFailedError, UnitMismatchError

_FIELDS = struct.Struct(">qiibIhi8xq14xi")
"""The header without base timestamp and producer."""
_OFFSET_LENGTH_EPOCH = struct.Struct(">qii")


class SplitObject(NamedTuple):
    """The object into which the rows move."""

    object_id: ObjectId
    key: str


@dataclass(slots=True)
class _Row:
    """A row while batches are added to it."""

    byte_offset: int
    base_offset: int
    leader_epoch: LeaderEpoch
    timestamp_type: TimestampType
    committed_ms: int
    oldest_ms: int
    max_timestamp: int
    byte_size: int = 0
    last_offset: int = 0
    batches: int = 0
    records: int = 0


@dataclass(slots=True)
class PartRows:
    """A part that begins at `byte_offset` of its file."""

    partition: TopicPartition
    byte_offset: int
    _rows: list[_Row] = field(default_factory=list)
    _next_offset: int | None = None
    _committed_ms: int = 0

    @property
    def byte_end(self) -> int:
        return self._rows[-1].byte_offset + self._rows[-1].byte_size

    def add(self, source: Coordinates, data: memoryview) -> None:
        """Check and stamp the batches of the partition's next row, in their memory."""
        try:
            if self._next_offset not in (None, source.base_offset):
                raise UnitMismatchError(f"offset {self._next_offset} is next")
            self._committed_ms = max(self._committed_ms, source.committed_ms)
            self._take(source, data)
            self._date(source)
        except StratalogError as error:
            raise RowFailedError(source, error) from error

    def coordinates(self, file: SplitObject) -> list[Coordinates]:
        return [
            Coordinates(
                topic_id=self.partition.topic_id,
                partition=self.partition.partition,
                base_offset=Offset(row.base_offset),
                last_offset=Offset(row.last_offset),
                object_id=file.object_id,
                object_key=file.key,
                byte_offset=row.byte_offset,
                byte_size=row.byte_size,
                max_timestamp=row.max_timestamp,
                timestamp_type=row.timestamp_type,
                committed_ms=row.committed_ms,
                leader_epoch=row.leader_epoch,
                stamped=True,
                oldest_ms=row.oldest_ms,
            )
            for row in self._rows
        ]

    def footer_ranges(self) -> Sequence[FooterRange]:
        return [
            FooterRange(
                byte_offset=row.byte_offset,
                byte_size=row.byte_size,
                record_count=row.records,
                batch_count=row.batches,
                base_offset=Offset(row.base_offset),
                last_offset=Offset(row.last_offset),
                max_timestamp=row.max_timestamp,
            )
            for row in self._rows
        ]

    def _take(self, source: Coordinates, view: memoryview) -> None:
        """Check and stamp the batches. This loop bounds the speed of splitting."""
        append_time_ms = _append_time_ms(source)
        offset, position, buffer_end = int(source.base_offset), 0, len(view)
        while position < buffer_end:
            if buffer_end - position < HEADER_BYTES:
                _refuse(view, position)
            (base_offset, length, epoch, magic, crc, _, delta,
             timestamp, records) = _FIELDS.unpack_from(view, position)  # fmt: skip
            end = position + LOG_OVERHEAD_BYTES + length
            if (
                magic != 2
                or not position + HEADER_BYTES <= end <= buffer_end
                or delta < 0
                or crc32c(view[position + CRC_START : end]) != crc
            ):
                _refuse(view, position)
            if not source.stamped:
                _OFFSET_LENGTH_EPOCH.pack_into(view, position, offset, length, source.leader_epoch)
                if append_time_ms is not None:
                    stamp_append_time(view, position, parse_header(view, position), append_time_ms)
                    timestamp = append_time_ms
            elif base_offset != offset or epoch != source.leader_epoch:
                raise UnitMismatchError(
                    f"a batch of offset {base_offset} and leader epoch {epoch} where {offset} and"
                    f" {source.leader_epoch} are next"
                )
            row = self._row_for(source, offset, end - position)
            offset, position = offset + delta + 1, end
            row.last_offset = offset - 1
            row.batches += 1
            row.records += records
            row.max_timestamp = max(row.max_timestamp, timestamp)
        if offset != source.last_offset + 1:
            raise UnitMismatchError(f"its batches end before {offset}, not at {source.last_offset}")
        self._next_offset = offset

    def _row_for(self, source: Coordinates, offset: int, size_bytes: int) -> _Row:
        """Return the row for the next batch: the last one if the batch fits, else a new one."""
        last = self._rows[-1] if self._rows else None
        if (
            last is None
            or last.byte_size + size_bytes > MAX_ROW_BYTES
            or last.leader_epoch != source.leader_epoch
            or last.timestamp_type is not source.timestamp_type
        ):
            last = _Row(
                byte_offset=self.byte_end if self._rows else self.byte_offset,
                base_offset=offset,
                leader_epoch=source.leader_epoch,
                timestamp_type=source.timestamp_type,
                committed_ms=self._committed_ms,
                oldest_ms=source.oldest_commit_ms,
                max_timestamp=-1,
            )
            self._rows.append(last)
        last.byte_size += size_bytes
        return last

    def _date(self, source: Coordinates) -> None:
        """Note the commit times of the source on the rows that have batches of it."""
        for row in reversed(self._rows):
            if row.last_offset < source.base_offset:
                break
            row.committed_ms = self._committed_ms
            row.oldest_ms = min(row.oldest_ms, source.oldest_commit_ms)


def _append_time_ms(source: Coordinates) -> int | None:
    """Return the append time to stamp, if the topic wants it and the row is not stamped yet."""
    stamps_time = not source.stamped and source.timestamp_type is TimestampType.LOG_APPEND_TIME
    return source.committed_ms if stamps_time else None


def _refuse(view: memoryview, position: int) -> NoReturn:
    """Raise the precise error of a batch that failed one of the tests."""
    check_crc(view, position, parse_header(view, position))
    at = position + LAST_OFFSET_DELTA_POSITION
    raise BatchDamagedError(at, "the last offset delta is negative", position)
