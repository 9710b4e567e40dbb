"""A merge task: rows of neighbouring partitions become the `.log` objects of their segments.

One reader goes through the source objects, and all segments are written at the same time, so that
each byte is read once and written once. Held in memory are `READ_AHEAD_BYTES`, one `PORTION_BYTES`
per segment, and what the store's streams hold, which is never more than the segments themselves.
"""

import asyncio
import struct
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterator, Sequence
from uuid import UUID

from stratalog.batch.header import TimestampType
from stratalog.control.log.model import Coordinates
from stratalog.control.pipeline.model import ClaimToken
from stratalog.errors import StaleError, StratalogError
from stratalog.ids import SegmentId
from stratalog.objects.store import Buffer
from stratalog.pipeline.kinds.piece_failures import RowFailedError, UnitMismatchError, unit_failed
from stratalog.pipeline.kinds.row_buffers import SlabPiece, Slabs
from stratalog.pipeline.kinds.source_reader import READ_AHEAD_BYTES, Budget, Reader
from stratalog.pipeline.kinds.task_stores import OpenWorkplace
from stratalog.pipeline.kinds.upload_queue import PORTION_BYTES, Feed
from stratalog.pipeline.plan.object_reads import Piece, plan_visits
from stratalog.pipeline.plan.tasks import LogMade, MergeTask, SegmentPlan, TaskDone, UnitFailed
from stratalog.segment.build import BuiltLog, SegmentBuilder
from stratalog.segment.keys import segment_key_base
from stratalog.segment.model import SourceRun
from stratalog.segment.upload import upload_log

_OFFSET = struct.Struct(">q")

UPLOADS_ENDING = 32
"""Small segments are stored by one request at their end. Thousands of them may end together."""


class EarlierSegmentFailedError(StaleError):
    """There is no use in this segment: an earlier one of its partition cannot be made."""


async def run_merge(
    task: MergeTask,
    place: OpenWorkplace,
    *,
    read_ahead_bytes: int = READ_AHEAD_BYTES,
    portion_bytes: int = PORTION_BYTES,
) -> TaskDone:
    budget = Budget(read_ahead_bytes)
    ending = asyncio.Semaphore(UPLOADS_ENDING)
    segments = [
        _Segment(
            plan,
            place,
            Feed(budget, len(plan.rows), portion_bytes=portion_bytes),
            ending,
            portion_bytes,
        )
        for plan in task.segments
    ]
    merge = _Merge(segments)
    reader = Reader(place.objects, budget, merge, place.pace, memory=merge.memory)
    async with asyncio.TaskGroup() as work:
        for segment in segments:
            work.create_task(merge.make(segment))
        work.create_task(reader.read(plan_visits([plan.rows for plan in task.segments])))
    return merge.done()


class _Merge:
    """The segments of a task: gives pieces to the one that needs them, keeps what became of it."""

    def __init__(self, segments: Sequence["_Segment"]) -> None:
        self._segments = segments
        self._of_token: dict[ClaimToken, list[_Segment]] = defaultdict(list)
        for segment in segments:
            self._of_token[segment.plan.token].append(segment)

    def wants(self, piece: Piece) -> bool:
        return self._segments[piece.unit].feed.is_open

    def memory(self, piece: Piece) -> memoryview:
        return self._segments[piece.unit].slabs.memory(piece.row)

    def take(self, piece: Piece, data: memoryview) -> None:
        self._segments[piece.unit].feed.put(piece.row, data)

    def fail(self, piece: Piece, error: StratalogError) -> None:
        self._segments[piece.unit].feed.fail(RowFailedError(piece.row, error))

    async def make(self, segment: "_Segment") -> None:
        try:
            segment.outcome = await segment.upload()
        except Exception as error:
            segment.outcome = unit_failed(segment.plan.token, error)
            siblings = self._of_token[segment.plan.token]
            for later in siblings[siblings.index(segment) + 1 :]:
                later.feed.fail(EarlierSegmentFailedError("an earlier segment has failed"))

    def done(self) -> TaskDone:
        """Of each token what was made before its first failure."""
        logs: list[LogMade] = []
        failed: dict[ClaimToken, UnitFailed] = {}
        for segment in self._segments:
            match segment.outcome:
                case UnitFailed() as failure:
                    failed.setdefault(failure.token, failure)
                case LogMade() as log if log.token not in failed:
                    logs.append(log)
        return TaskDone(logs=logs, failed=[*failed.values()])


class _Segment:
    """One segment in the making."""

    def __init__(
        self,
        plan: SegmentPlan,
        place: OpenWorkplace,
        feed: Feed,
        ending: asyncio.Semaphore,
        slab_bytes: int,
    ) -> None:
        self.plan = plan
        self.feed = feed
        self.outcome: LogMade | UnitFailed | None = None
        self._place = place
        self._ending = ending
        self._is_ending = False
        self._built: BuiltLog | None = None
        self.slabs = Slabs(plan.rows, slab_bytes)

    async def upload(self) -> LogMade:
        plan, place = self.plan, self._place
        segment_id = SegmentId(UUID(bytes=place.entropy(16), version=4))
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
            self.feed.close()
            self.slabs.close()
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
        """The records, checked and stamped. If one is not as it should be, nothing is stored."""
        plan = self.plan
        builder = SegmentBuilder(plan.base_offset, index_interval_bytes=plan.index_interval_bytes)
        async for portion in self.feed.portions():
            pieces = deque(self.slabs.joined(portion))
            # Nothing here holds what has moved on while it waits for more.
            portion.clear()
            while pieces:
                _build(builder, pieces[0])
                yield pieces.popleft().data
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


def _build(builder: SegmentBuilder, piece: SlabPiece) -> None:
    """Rows about which the builder must know the same are one run to it: to call it for each of
    them takes longer than what it does."""
    start = 0
    for rows in _alike(piece.rows):
        end = start + sum(row.byte_size for row in rows)
        data = piece.data[start:end]
        try:
            builder.add(data, source_run(rows[0], rows[-1]))
            _check_edges(rows, data)
        except StratalogError as error:
            raise _blamed(rows, data, error) from error
        start = end


def _check_edges(rows: Sequence[Coordinates], data: memoryview) -> None:
    """Each row must begin with the batch of its own first offset, which is stamped by now."""
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


def _blamed(rows: Sequence[Coordinates], data: memoryview, error: StratalogError) -> RowFailedError:
    """The row that is wrong, which each is asked by itself."""
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
    """What a segment's builder must know of rows that follow each other and are alike."""
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
