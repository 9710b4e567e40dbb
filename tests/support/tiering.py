"""A small converter for tests: rows of blocks become segments, step by documented step.

Everything that it does may be cut off after any step, by an exception or by the death of its
process; the next run continues with the remains, as a planner does.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tests.support.writers import announced_id

from stratalog.batch.header import TimestampType
from stratalog.clock import SystemClock
from stratalog.control.log.model import Coordinates, PartitionState
from stratalog.control.plane import ControlPlane
from stratalog.control.segments.errors import BoundaryMovedError
from stratalog.control.segments.model import Segment, SegmentState, SegmentToAdd, SegmentUploaded
from stratalog.control.topics.model import Topic
from stratalog.ids import Offset, PartitionIndex, SegmentId, TopicPartition
from stratalog.objects.store import Buffer, ObjectStore, Range
from stratalog.segment.build import BuiltLog, SegmentBuilder
from stratalog.segment.chunk_encoding import Encoding
from stratalog.segment.epoch_checkpoint import encode_checkpoint, epochs_between
from stratalog.segment.key_ring import KeyRing
from stratalog.segment.keys import segment_key_base
from stratalog.segment.model import IndexKind, SegmentIndexes, SourceRun
from stratalog.segment.producer_state import PartitionTail, advance
from stratalog.segment.reader import SegmentReader
from stratalog.segment.stores import SegmentStores
from stratalog.segment.txn_index import encode_aborted
from stratalog.segment.upload import UploadedLog, upload_indexes, upload_log
from stratalog.settings import RemoteSettings

_MOST = 10_000


class Step(StrEnum):
    BUILT = "built"
    ADDED = "added"
    LOG_UPLOADED = "log uploaded"
    INDEXES_UPLOADED = "indexes uploaded"
    FINISHED = "finished"
    CHAINED = "chained"


class CrashError(Exception):
    """The converter was made to die here."""


@dataclass(frozen=True, kw_only=True)
class Converter:
    control: ControlPlane
    store: ObjectStore
    """Where the blocks lie, and the segments too unless they have a store of their own."""
    segment_store: ObjectStore | None = None
    encoding: Encoding = field(default_factory=Encoding)
    keys: KeyRing = field(default_factory=KeyRing)
    prefix: str = "segments/"
    index_interval_bytes: int = 4096

    async def convert(
        self,
        topic: Topic,
        partition: int = 0,
        *,
        up_to: int | None = None,
        max_rows: int = _MOST,
        crash_after: Step | None = None,
    ) -> Segment | None:
        """Make the next segment of the rows that end at or before `up_to`, if there are any."""
        key = TopicPartition(topic.id, PartitionIndex(partition))
        await self._pick_up(key)
        state = (await self.control.log.partitions([key]))[key]
        rows = [
            row
            for row in await self.control.log.all_coordinates(
                key, after=Offset(state.block_start - 1), limit=max_rows
            )
            if up_to is None or row.last_offset < up_to
        ]
        return await self._make(topic, key, rows, crash_after) if rows else None

    async def _make(
        self,
        topic: Topic,
        key: TopicPartition,
        rows: Sequence[Coordinates],
        crash_after: Step | None,
    ) -> Segment | None:
        def reached(step: Step) -> None:
            if step is crash_after:
                raise CrashError(step)

        log, built = await self._build(rows)
        reached(Step.BUILT)
        segment = await self._named(topic, key, built)
        await self.control.segments.add(segment)
        reached(Step.ADDED)
        uploaded_log = await upload_log(
            self._segments, segment.key_base, _each(log), self.encoding, self.keys
        )
        reached(Step.LOG_UPLOADED)
        uploaded = await self._upload_indexes(topic, segment, built, uploaded_log)
        reached(Step.INDEXES_UPLOADED)
        await self.control.segments.finish(segment.segment_id, uploaded)
        reached(Step.FINISHED)
        await self.control.segments.chain(segment.segment_id)
        reached(Step.CHAINED)
        chained = await self.control.segments.chained(
            key, after=Offset(built.base_offset - 1), limit=1
        )
        return chained[0] if chained else None

    async def _pick_up(self, key: TopicPartition) -> None:
        """Chain finished segments that fit, and give up everything else that was begun."""
        state = (await self.control.log.partitions([key]))[key]
        for segment in await self.control.segments.unchained(older_than_ms=0, limit=_MOST):
            if segment.topic_partition != key:
                continue
            if _is_next(segment, state) and await self._chained(segment.segment_id):
                state = (await self.control.log.partitions([key]))[key]
            else:
                await self.control.segments.delete([segment.segment_id])

    async def _chained(self, segment_id: SegmentId) -> bool:
        try:
            await self.control.segments.chain(segment_id)
        except BoundaryMovedError:
            # Its rows have been sorted into a split file, and its end lies inside of one.
            return False
        return True

    async def _build(self, rows: Sequence[Coordinates]) -> tuple[list[Buffer], BuiltLog]:
        builder = SegmentBuilder(
            rows[0].base_offset, index_interval_bytes=self.index_interval_bytes
        )
        log: list[Buffer] = []
        for row in rows:
            place = Range(row.byte_offset, row.byte_offset + row.byte_size)
            [data] = await self.store.get_ranges(row.object_key, [place])
            log.append(builder.add(bytearray(data), _run(row)))
        return log, builder.finish()

    async def _named(self, topic: Topic, key: TopicPartition, built: BuiltLog) -> SegmentToAdd:
        segment_id = SegmentId(await announced_id(self.control, SystemClock().now_ms()))
        return SegmentToAdd(
            segment_id=segment_id,
            topic_id=key.topic_id,
            partition=key.partition,
            base_offset=built.base_offset,
            last_offset=built.last_offset,
            size_bytes=built.size_bytes,
            max_timestamp=built.max_timestamp,
            min_timestamp=built.min_timestamp,
            leader_epochs=built.leader_epochs,
            key_base=segment_key_base(self.prefix, topic.name, *key, built.base_offset, segment_id),
        )

    async def _upload_indexes(
        self, topic: Topic, segment: SegmentToAdd, built: BuiltLog, log: UploadedLog
    ) -> SegmentUploaded:
        epochs = await self.control.log.epochs(segment.topic_partition)
        tail, aborted = advance(await self._tail(segment), built)
        indexes = SegmentIndexes(
            offset=built.offset_index,
            timestamp=built.time_index,
            producer_snapshot=tail.to_snapshot(),
            leader_epoch=encode_checkpoint(epochs_between(epochs, 0, segment.last_offset)),
            transaction=encode_aborted(aborted),
        )
        return await upload_indexes(
            self._segments,
            segment.key_base,
            indexes,
            log,
            segment,
            topic.name,
            self.keys,
            event_ms=SystemClock().now_ms(),
        )

    async def _tail(self, segment: SegmentToAdd) -> PartitionTail:
        """The state of the producers at the end of the segment before."""
        before = await self.control.segments.chained(
            segment.topic_partition, after=Offset(segment.base_offset - 2), limit=1
        )
        if not before or before[0].end_offset != segment.base_offset:
            return PartitionTail()
        reader = SegmentReader(
            stores=SegmentStores(self._segments, _nothing_else),
            keys=self.keys,
            settings=RemoteSettings(),
        )
        snapshot = await reader.index(before[0], IndexKind.PRODUCER_SNAPSHOT)
        await reader.close()
        return PartitionTail.from_snapshot(snapshot)

    @property
    def _segments(self) -> ObjectStore:
        return self.segment_store or self.store


def _is_next(segment: Segment, state: PartitionState) -> bool:
    return segment.state is SegmentState.COPY_FINISHED and segment.base_offset == state.remote_end


def _run(row: Coordinates) -> SourceRun:
    stamps_time = row.timestamp_type is TimestampType.LOG_APPEND_TIME and not row.stamped
    return SourceRun(
        row.base_offset,
        row.last_offset,
        row.leader_epoch,
        row.stamped,
        row.committed_ms if stamps_time else None,
    )


async def _each(parts: Sequence[Buffer]) -> AsyncIterator[Buffer]:
    for part in parts:
        yield part


def _nothing_else(url: str) -> ObjectStore:
    raise AssertionError(f"a converter has no business at {url}")
