"""The builder of a segment's `.log`, and of the indexes that need only its own batches.

The builder streams: batches pass through, checked and stamped in the memory in which they came. The
builder keeps the indexes and a few words per producer. The indexes equal the ones that Kafka 4.1
writes. The producer snapshot and the aborted transactions depend on earlier segments:
`producer_state.advance` makes them of a `BuiltLog` afterwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from stratalog.batch.errors import BatchDamagedError
from stratalog.batch.frames import check_crc, codec_of
from stratalog.batch.header import CONTROL_BIT, Codec, parse_header
from stratalog.batch.stamp import Writable
from stratalog.control.segments.model import EpochStart
from stratalog.ids import NO_EPOCH, Offset
from stratalog.segment.errors import SegmentRefusedError, SourceDamagedError
from stratalog.segment.model import SourceRun
from stratalog.segment.offset_index import OffsetIndexWriter
from stratalog.segment.producer_changes import LastBatch, ProducerChanges, TransactionEvent
from stratalog.segment.time_index import NO_TIMESTAMP, TimeIndexWriter

DEFAULT_INDEX_INTERVAL_BYTES = 4096
INT32_LAST = (1 << 31) - 1
"""The greatest size, position and relative offset of a segment: all are int32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltLog:
    """The facts about a finished `.log`. Plain values: workers send them to the driver."""

    base_offset: Offset
    last_offset: Offset
    size_bytes: int
    max_timestamp: int
    min_timestamp: int | None
    """None unless all batches have the broker's time: other headers do not have the least time."""
    leader_epochs: Sequence[EpochStart]
    """The epochs of the records. The first starts at the base offset."""
    offset_index: bytes
    time_index: bytes
    producers: Sequence[LastBatch]
    transactions: Sequence[TransactionEvent]
    """The events in the order of their offsets."""
    first_codec: Codec


class SegmentBuilder:
    """Takes the runs of one segment in order. After an error it cannot be used any more."""

    def __init__(
        self,
        base_offset: Offset,
        *,
        index_interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES,
    ) -> None:
        self._base_offset = base_offset
        self._offsets = OffsetIndexWriter(base_offset)
        self._times = TimeIndexWriter(base_offset)
        self._changes = ProducerChanges()
        self._run: SourceRun | None = None
        self._epochs: list[EpochStart] = []
        self._first_codec: Codec | None = None
        self._size_bytes = 0
        self._next_offset = int(base_offset)
        # Imported here, because brokers and processes that only finish segments must not load the
        # compiler.
        from stratalog.batch.log_layout import LogLayout

        self._layout = LogLayout(base_offset, index_interval_bytes, NO_TIMESTAMP)

    def add(self, data: Writable, run: SourceRun) -> memoryview:
        """Check and stamp whole batches, the next ones of this run. Return the bytes to write.

        The returned bytes are the given memory. A run may come in several parts.
        """
        view = memoryview(data)
        if run != self._run:
            self._begin(run)
        self._check_size(len(view))
        if self._first_codec is None and len(view):
            self._first_codec = self._codec_of_first(view)
        self._take(view, run)
        self._size_bytes += len(view)
        if self._next_offset > run.last_offset + 1:
            raise SegmentRefusedError(
                f"the batches of offsets {run.base_offset} to {run.last_offset} go on"
                f" to {self._next_offset - 1}"
            )
        return view

    def finish(self) -> BuiltLog:
        self._end_run()
        if self._first_codec is None:
            raise SegmentRefusedError(f"the segment at {self._base_offset} has no batch")
        # Kafka adds the greatest timestamp to the time index when it rolls a segment.
        max_timestamp = self._layout.max_timestamp
        self._times.maybe_append(max_timestamp, self._layout.max_timestamp_offset)
        return BuiltLog(
            base_offset=self._base_offset,
            last_offset=Offset(self._next_offset - 1),
            size_bytes=self._size_bytes,
            max_timestamp=max_timestamp,
            min_timestamp=self._layout.min_timestamp,
            leader_epochs=self._epochs,
            offset_index=self._offsets.to_bytes(),
            time_index=self._times.to_bytes(),
            producers=self._changes.last_batches,
            transactions=self._changes.events,
            first_codec=self._first_codec,
        )

    def _take(self, view: memoryview, run: SourceRun) -> None:
        laid = self._layout.add(view)
        if laid is None:
            self._refuse(view, run)
        self._offsets.extend(laid.offset_entries)
        for timestamp, offset in laid.time_entries:
            self._times.maybe_append(timestamp, offset)
        for position in laid.noteworthy:
            self._note(view, position)
        self._next_offset = laid.next_offset

    def _note(self, view: memoryview, position: int) -> None:
        header = parse_header(view, position)
        if header.attributes & CONTROL_BIT:
            try:
                self._changes.note_control(view, position)
            except BatchDamagedError as error:
                raise self._damaged(error, header.base_offset) from error
        else:
            self._changes.note(header)

    def _begin(self, run: SourceRun) -> None:
        self._end_run()
        offsets = f"offsets {run.base_offset} to {run.last_offset}"
        if run.last_offset < run.base_offset:
            raise SegmentRefusedError(f"{offsets} are no run")
        if run.base_offset != self._next_offset:
            fault = "a gap" if run.base_offset > self._next_offset else "an overlap"
            raise SegmentRefusedError(f"{offsets} come where {self._next_offset} is next: {fault}")
        if run.last_offset - self._base_offset > INT32_LAST:
            reason = f"too far from the segment's base {self._base_offset} for its indexes"
            raise SegmentRefusedError(f"{offsets} are {reason}")
        self._begin_epoch(run)
        self._layout.begin_run(run.leader_epoch, run.append_time_ms, stamped=run.stamped)
        self._run = run

    def _begin_epoch(self, run: SourceRun) -> None:
        epoch = run.leader_epoch
        before = self._epochs[-1] if self._epochs else EpochStart(NO_EPOCH, self._base_offset)
        if epoch < before.epoch or epoch < 0:
            raise SegmentRefusedError(
                f"offsets {run.base_offset} to {run.last_offset} have leader epoch {epoch},"
                f" after epoch {before.epoch} from {before.start_offset} on"
            )
        if epoch > before.epoch:
            self._epochs.append(EpochStart(epoch, run.base_offset))

    def _end_run(self) -> None:
        run = self._run
        if run is not None and self._next_offset <= run.last_offset:
            raise SegmentRefusedError(
                f"the batches of offsets {run.base_offset} to {run.last_offset} end"
                f" before {self._next_offset}"
            )

    def _check_size(self, added_bytes: int) -> None:
        size_bytes = self._size_bytes + added_bytes
        if size_bytes > INT32_LAST:
            raise SegmentRefusedError(
                f"with the batches from offset {self._next_offset} on, the segment"
                f" at {self._base_offset} has {size_bytes} bytes; possible are {INT32_LAST}"
            )

    def _codec_of_first(self, view: memoryview) -> Codec:
        try:
            return codec_of(parse_header(view), 0)
        except BatchDamagedError as error:
            raise self._damaged(error, self._next_offset) from error

    def _refuse(self, view: memoryview, run: SourceRun) -> NoReturn:
        """Raise the error of the first wrong batch."""
        offset = self._next_offset
        position = 0
        while position < len(view):
            try:
                header = parse_header(view, position)
                check_crc(view, position, header)
            except BatchDamagedError as error:
                raise self._damaged(error, offset) from error
            if header.last_offset_delta < 0:
                raise SourceDamagedError(offset, "its last offset delta is negative")
            if run.stamped and (header.base_offset, header.leader_epoch) != (
                offset,
                run.leader_epoch,
            ):
                raise _misplaced(header.base_offset, header.leader_epoch, offset, run)
            offset += header.last_offset_delta + 1
            position += header.size_bytes
        raise AssertionError("compiled and interpreted code disagree about these batches")

    def _damaged(self, error: BatchDamagedError, offset: int) -> SourceDamagedError:
        at = f"byte {self._size_bytes + error.position} of the segment at {self._base_offset}"
        return SourceDamagedError(offset, f"{at}: {error.reason}")


def _misplaced(base_offset: int, epoch: int, expected: int, run: SourceRun) -> SegmentRefusedError:
    if base_offset == expected:
        fault = f"the batch at offset {base_offset} is of leader epoch {epoch}"
    else:
        fault = f"there is a batch of offset {base_offset} where {expected} is next"
    return SegmentRefusedError(
        f"{fault}, in the run of offsets {run.base_offset} to {run.last_offset}"
        f" and epoch {run.leader_epoch}"
    )
