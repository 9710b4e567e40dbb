"""A merge task: rows of neighbouring partitions become the `.log` objects of their segments.

One reader goes through the source objects, and all segments are written at the same time, so that
each byte is read once and written once. The memory holds `READ_AHEAD_BYTES`, one `PORTION_BYTES`
per segment, and the buffers of the store's streams, which are never larger than the segments.
"""

import asyncio
import struct
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterator, Sequence

from stratalog.batch.header import TimestampType
from stratalog.control.log.model import Coordinates
from stratalog.control.pipeline.model import ClaimToken
from stratalog.errors import StratalogError
from stratalog.ids import SegmentId
from stratalog.objects.store import Buffer
from stratalog.pipeline.errors import EarlierSegmentFailedError, RowFailedError, UnitMismatchError
from stratalog.pipeline.kinds.merge_model import LogMade, MergeTask, SegmentPlan
from stratalog.pipeline.kinds.row_buffers import AdjoiningRows, RowBuffers
from stratalog.pipeline.kinds.source_reader import READ_AHEAD_BYTES, ReadBudget, SourceReader
from stratalog.pipeline.kinds.unit_failures import unit_failed
from stratalog.pipeline.kinds.upload_queue import PORTION_BYTES, UploadQueue
from stratalog.pipeline.plan.object_reads import SourceRow, plan_object_reads
from stratalog.pipeline.plan.tasks import TaskDone, UnitFailed
from stratalog.pipeline.workplace import OpenWorkplace
from stratalog.segment.build import BuiltLog, SegmentBuilder
from stratalog.segment.keys import segment_key_base
from stratalog.segment.model import SourceRun
from stratalog.segment.upload import upload_log

_OFFSET = struct.Struct(">q")

UPLOADS_ENDING = 32
"""A small segment is stored by one request at its end, and thousands may end together."""


async def run_merge(
    task: MergeTask,
    place: OpenWorkplace,
    *,
    read_ahead_bytes: int = READ_AHEAD_BYTES,
    portion_bytes: int = PORTION_BYTES,
) -> TaskDone:
    budget = ReadBudget(read_ahead_bytes)
    ending = asyncio.Semaphore(UPLOADS_ENDING)
    segments = [
        _Segment(
            plan,
            place,
            UploadQueue(budget, len(plan.rows), portion_bytes=portion_bytes),
            ending,
            portion_bytes,
        )
        for plan in task.parts
    ]
    merge = _Merge(segments)
    reader = SourceReader(place.objects, budget, merge, place.pace, memory=merge.memory)
    async with asyncio.TaskGroup() as work:
        for segment in segments:
            work.create_task(merge.make(segment))
        work.create_task(reader.read(plan_object_reads(task.row_lists)))
    return merge.done()


class _Merge:
    """The segments of a task. Gives each row to the segment that needs it."""

    def __init__(self, segments: Sequence["_Segment"]) -> None:
        self._segments = segments
        self._of_token: dict[ClaimToken, list[_Segment]] = defaultdict(list)
        for segment in segments:
            self._of_token[segment.plan.token].append(segment)

    def wants(self, source: SourceRow) -> bool:
        return self._segments[source.part].queue.is_open

    def memory(self, source: SourceRow) -> memoryview:
        return self._segments[source.part].buffers.memory(source.row)

    def take(self, source: SourceRow, data: memoryview) -> None:
        self._segments[source.part].queue.put(source.row, data)

    def fail(self, source: SourceRow, error: StratalogError) -> None:
        self._segments[source.part].queue.fail(RowFailedError(source.row, error))

    async def make(self, segment: "_Segment") -> None:
        try:
            segment.outcome = await segment.upload()
        except Exception as error:
            segment.outcome = unit_failed(segment.plan.token, error)
            siblings = self._of_token[segment.plan.token]
            for later in siblings[siblings.index(segment) + 1 :]:
                later.queue.fail(EarlierSegmentFailedError("an earlier segment has failed"))

    def done(self) -> TaskDone:
        """Answer with the logs of each token up to its first failure."""
        logs: list[LogMade] = []
        failed: dict[ClaimToken, UnitFailed] = {}
        for segment in self._segments:
            match segment.outcome:
                case UnitFailed() as failure:
                    failed.setdefault(failure.token, failure)
                case LogMade() as log if log.token not in failed:
                    logs.append(log)
        return TaskDone(made=logs, failed=[*failed.values()])


class _Segment:
    """A segment while it is being made."""

    def __init__(
        self,
        plan: SegmentPlan,
        place: OpenWorkplace,
        queue: UploadQueue,
        ending: asyncio.Semaphore,
        buffer_bytes: int,
    ) -> None:
        self.plan = plan
        self.queue = queue
        self.outcome: LogMade | UnitFailed | None = None
        self._place = place
        self._ending = ending
        self._is_ending = False
        self._built: BuiltLog | None = None
        self.buffers = RowBuffers(plan.rows, buffer_bytes)

    async def upload(self) -> LogMade:
        plan, place = self.plan, self._place
        segment_id = SegmentId(place.new_id())
        key_base = segment_key_base(
            place.segments_prefix,
            plan.topic_name,
            plan.topic_id,
            plan.partition,
            plan.base_offset,
            segment_id,
        )
        try:
            uploaded = await upload_log(
                place.segments, key_base, self._batches(), place.encoding, place.keys
            )
        finally:
            self.queue.close()
            self.buffers.close()
            if self._is_ending:
                self._ending.release()
        assert self._built is not None, "a store takes the whole stream"
        return LogMade(
            token=plan.token,
            segment_id=segment_id,
            key_base=key_base,
            built=self._built,
            uploaded=uploaded,
        )

    async def _batches(self) -> AsyncIterator[Buffer]:
        """Yield the batches, checked and stamped. If one is bad, nothing is stored."""
        plan = self.plan
        builder = SegmentBuilder(plan.base_offset, index_interval_bytes=plan.index_interval_bytes)
        async for portion in self.queue.portions():
            waiting = deque(self.buffers.joined(portion))
            # Bytes that were yielded must not be held here while the upload waits for more.
            portion.clear()
            while waiting:
                _build(builder, waiting[0])
                yield waiting.popleft().data
        self._built = self._checked(builder.finish())
        await self._ending.acquire()
        self._is_ending = True

    def _checked(self, built: BuiltLog) -> BuiltLog:
        planned = (self.plan.last_offset, self.plan.size_bytes)
        if (built.last_offset, built.size_bytes) != planned:
            raise UnitMismatchError(
                f"the segment at offset {built.base_offset} ends at {built.last_offset} and has"
                f" {built.size_bytes} bytes; planned were {planned[0]} and {planned[1]}"
            )
        return built


def _build(builder: SegmentBuilder, adjoining: AdjoiningRows) -> None:
    """Add rows to the builder, in runs of rows with the same properties.

    To call the builder for each row takes longer than its work on the row.
    """
    start = 0
    for rows in _alike(adjoining.rows):
        end = start + sum(row.byte_size for row in rows)
        data = adjoining.data[start:end]
        try:
            builder.add(data, source_run(rows[0], rows[-1]))
            _check_edges(rows, data)
        except StratalogError as error:
            raise _failed_row(rows, data, error) from error
        start = end


def _check_edges(rows: Sequence[Coordinates], data: memoryview) -> None:
    """Check that each row begins with the batch of its first offset, which is stamped by now."""
    position = 0
    for row in rows:
        (offset,) = _OFFSET.unpack_from(data, position)
        if offset != row.base_offset:
            raise UnitMismatchError(f"offset {offset} is where {row.base_offset} should be")
        position += row.byte_size


def _alike(rows: Sequence[Coordinates]) -> Iterator[Sequence[Coordinates]]:
    first, traits = 0, _traits(rows[0])
    for at in range(1, len(rows)):
        row_traits = _traits(rows[at])
        if row_traits != traits or rows[at].base_offset != rows[at - 1].last_offset + 1:
            yield rows[first:at]
            first, traits = at, row_traits
    yield rows[first:]


def _traits(row: Coordinates) -> tuple[object, ...]:
    return row.leader_epoch, row.stamped, _append_time_ms(row)


def _failed_row(
    rows: Sequence[Coordinates], data: memoryview, error: StratalogError
) -> RowFailedError:
    """Find the row that is wrong, by building each row alone."""
    start = 0
    for row in rows:
        end = start + row.byte_size
        try:
            alone = SegmentBuilder(row.base_offset)
            alone.add(data[start:end], source_run(row, row))
            alone.finish()
        except StratalogError as found:
            return RowFailedError(row, found)
        start = end
    return RowFailedError(rows[0], error)


def source_run(first: Coordinates, last: Coordinates) -> SourceRun:
    """Describe rows that follow each other and are alike, for the builder of a segment."""
    return SourceRun(
        base_offset=first.base_offset,
        last_offset=last.last_offset,
        leader_epoch=first.leader_epoch,
        stamped=first.stamped,
        append_time_ms=_append_time_ms(first),
    )


def _append_time_ms(row: Coordinates) -> int | None:
    stamps_time = not row.stamped and row.timestamp_type is TimestampType.LOG_APPEND_TIME
    return row.committed_ms if stamps_time else None
