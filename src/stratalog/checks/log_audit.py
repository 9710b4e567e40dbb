"""The comparison of a segment's log with its row. Pure: fed batch by batch."""

from collections.abc import Iterator

from stratalog.batch.errors import BatchDamagedError
from stratalog.batch.frames import check_crc
from stratalog.batch.header import BatchHeader
from stratalog.checks.report import Problem, Promise
from stratalog.checks.segment_promises import name_of
from stratalog.control.segments.lifecycle import epoch_at
from stratalog.control.segments.model import Segment
from stratalog.ids import Offset
from stratalog.segment.keys import LOG_SUFFIX
from stratalog.segment.log_batches import is_dense
from stratalog.segment.time_index import NO_TIMESTAMP

_MAX_PROBLEMS = 10
"""The most problems that are reported for one log: more would not help."""


class LogAudit:
    """Checks that offsets rise and stay inside the segment.

    In a segment that Stratalog wrote, offsets are also dense. Kafka's segments may have gaps, which
    compaction leaves.
    """

    def __init__(self, segment: Segment) -> None:
        self.problems: list[Problem] = []
        self._segment = segment
        self._name = segment.key_base + LOG_SUFFIX
        self._dense = is_dense(segment)
        self._expected = int(segment.base_offset)
        self._max_timestamp = NO_TIMESTAMP

    def step(self, position: int, header: BatchHeader, batch: memoryview) -> bool:
        """Check the next batch. Returns False if its CRC is wrong."""
        whole = True
        where = f"the batch of offset {header.base_offset}, at byte {position} of {self._name}"
        try:
            check_crc(batch, 0, header)
        except BatchDamagedError as error:
            self._add(Promise.CHECKSUMS, f"{where}: {error.reason}")
            whole = False
        for text in self._breaches(header):
            self._add(Promise.ONE_VALUE, f"{where}: {text}")
        self._expected = max(self._expected, header.last_offset + 1)
        self._max_timestamp = max(self._max_timestamp, header.max_timestamp)
        return whole

    def finish(self) -> None:
        segment = self._segment
        if self._dense and self._expected != segment.end_offset:
            self._add(Promise.ONE_VALUE, f"its log ends with offset {self._expected - 1}")
        exact = self._max_timestamp == segment.max_timestamp
        if not exact and (self._dense or self._max_timestamp > segment.max_timestamp):
            self._add(
                Promise.ONE_VALUE,
                f"its newest record is of {self._max_timestamp}, its row says "
                f"{segment.max_timestamp}",
            )

    def _breaches(self, header: BatchHeader) -> Iterator[str]:
        base = header.base_offset
        if base < self._expected or (self._dense and base != self._expected):
            yield f"the next offset is {self._expected}"
        if header.last_offset_delta < 0 or header.last_offset > self._segment.last_offset:
            yield f"it ends with offset {header.last_offset}"
        # A batch without records stands for a lost range.
        if self._dense and header.records_count not in (header.last_offset_delta + 1, 0):
            yield f"{header.records_count} records for {header.last_offset_delta + 1} offsets"
        epoch = epoch_at(self._segment.leader_epochs, Offset(base))
        least = self._segment.min_timestamp
        if least is not None and header.max_timestamp < least:
            yield f"it is of {header.max_timestamp}, the row says that none is before {least}"
        if header.leader_epoch != epoch:
            yield f"the bytes say epoch {header.leader_epoch}, the row {epoch}"

    def _add(self, promise: Promise, text: str) -> None:
        if len(self.problems) < _MAX_PROBLEMS:
            text = f"{name_of(self._segment)}: {text}"
            self.problems.append(Problem(promise=promise, text=text))
