"""A control plane on SQLite against a model in memory, through any order of operations."""

import asyncio
import tempfile
from collections.abc import Coroutine
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, TypeVar
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.property.control_model import (
    OLD,
    YOUNG,
    ModelPartition,
    ModelRow,
    ModelSegment,
    expire,
    overlapping,
    rows_within,
)

from stratalog.batch.header import TimestampType
from stratalog.control.errors import ControlUnavailableError
from stratalog.control.log import replaced_rows
from stratalog.control.log.model import (
    BatchToCommit,
    BlockToCommit,
    CommitOutcome,
    PartitionState,
    Span,
)
from stratalog.control.log.trims import remove_rows_below_starts
from stratalog.control.open import open_control_plane
from stratalog.control.scans.errors import SinkBehindError
from stratalog.control.scans.model import ScanWish, SinkOutcome
from stratalog.control.segments.errors import BoundaryMovedError, SegmentStateError
from stratalog.control.segments.model import (
    ChainOutcome,
    EpochStart,
    SegmentState,
    SegmentToAdd,
    SegmentUploaded,
)
from stratalog.control.topics.migration_state import check_transition
from stratalog.ids import (
    BrokerId,
    LeaderEpoch,
    ObjectId,
    Offset,
    PartitionIndex,
    ProducerId,
    SegmentId,
    TopicId,
    TopicPartition,
    uuid7,
)

T = TypeVar("T")
PARTITIONS = 2


class ControlMachine(RuleBasedStateMachine):
    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.loop = asyncio.new_event_loop()
        self.url = f"sqlite:{Path(self.folder.name) / 'control.db'}"
        # Ids decide the order in which partitions are drawn, so a replay must make the same.
        self.entropy = Random(0).randbytes
        self.plane = self.run(open_control_plane(self.url, entropy=self.entropy))
        self.topics: dict[str, TopicId] = {}
        self.model: dict[TopicPartition, ModelPartition] = {}
        self.condemned: list[ModelRow] = []
        """Rows of deleted topics that were not purged yet."""
        self.segments: dict[SegmentId, ModelSegment] = {}
        """All known partitions, also of deleted topics."""
        self.seen: dict[TopicPartition, PartitionState] = {}
        self.objects: set[ObjectId] = set()
        self.forgotten: set[ObjectId] = set()
        self.sunk: dict[int, int] = {}
        """The batches that the sink has taken, and how many records each had."""
        self.reopened = self.deleted = 0
        self.create_topic()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        self.run(self.plane.close())
        self.loop.close()
        self.folder.cleanup()

    @precondition(lambda self: len(self.topics) < 2)
    @rule()
    def create_topic(self) -> None:
        name = min({"a", "b"} - self.topics.keys())
        topic = self.run(self.plane.topics.create(name, partition_count=PARTITIONS, configs={}))
        self.topics[name] = topic.id
        for index in range(PARTITIONS):
            self.model[TopicPartition(topic.id, PartitionIndex(index))] = ModelPartition()

    @precondition(lambda self: self.model)
    @rule(data=st.data(), blocks=st.integers(1, 4))
    def commit(self, data: st.DataObject, blocks: int) -> None:
        for _ in range(blocks):
            self._commit_block(data)

    def _commit_block(self, data: st.DataObject) -> None:
        """A byte between any two batches makes a row of each."""
        object_id = ObjectId(uuid7(len(self.objects), self.entropy))
        keys = data.draw(st.lists(st.sampled_from(sorted(self.model)), min_size=1, max_size=4))
        batches = [self._batch(data, key, 1000 * i) for i, key in enumerate(sorted(keys))]
        [answers] = self.run(self.plane.log.commit_blocks([_block(object_id, batches)]))
        for batch, answer in zip(batches, answers, strict=True):
            partition = self.model[batch.topic_partition]
            assert (answer.outcome, answer.base_offset) == (
                CommitOutcome.ACCEPTED,
                partition.high_watermark,
            )
            assert answer.log_start == partition.log_start
            partition.append(batch_records(batch), batch.byte_size, batch.max_timestamp, object_id)
        self.objects.add(object_id)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), step=st.integers(0, 2))
    def commit_sink(self, data: st.DataObject, step: int) -> None:
        """The same batch again, the next one, or a later one."""
        object_id = ObjectId(uuid7(len(self.objects), self.entropy))
        key = data.draw(st.sampled_from(sorted(self.model)))
        batch = self._batch(data, key, 0)
        block = _block(object_id, [batch])
        batch_id = max(self.sunk, default=0) + step
        if batch_records(batch) != self.sunk.get(batch_id, batch_records(batch)):
            with pytest.raises(SinkBehindError):
                self.run(self.plane.scans.commit_sink("sink", batch_id, [block]))
            return
        outcome = self.run(self.plane.scans.commit_sink("sink", batch_id, [block]))
        if batch_id in self.sunk:
            assert outcome is SinkOutcome.REPEATED
            return
        assert outcome is SinkOutcome.COMMITTED
        self.sunk[batch_id] = batch_records(batch)
        self.model[key].append(
            batch_records(batch), batch.byte_size, batch.max_timestamp, object_id
        )
        self.objects.add(object_id)

    def _batch(self, data: st.DataObject, key: TopicPartition, position: int) -> BatchToCommit:
        return BatchToCommit(
            topic_id=key.topic_id,
            partition=key.partition,
            byte_offset=position,
            byte_size=data.draw(st.integers(61, 999)),
            last_offset_delta=data.draw(st.integers(0, 4)),
            max_timestamp=data.draw(st.sampled_from([OLD, OLD, YOUNG])),
            timestamp_type=TimestampType.CREATE_TIME,
            producer_id=ProducerId(-1),
            producer_epoch=-1,
            base_sequence=-1,
        )

    def _filled(self) -> list[TopicPartition]:
        """Deleting rules run apart from the others, so that there is something to delete."""
        return sorted(
            key
            for key, partition in self.model.items()
            if len(partition.segments) + len(partition.rows) > 2
        )

    @precondition(lambda self: self._filled())
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(self._filled()))
        partition = self.model[key]
        target = data.draw(st.integers(-1, partition.high_watermark))
        [deleted] = self.run(self.plane.log.delete_records({key: Offset(target)}))
        partition.cut(partition.high_watermark if target == -1 else target)
        partition.leftovers.clear()
        assert deleted.log_start == partition.log_start

    @precondition(lambda self: self._filled())
    @rule(data=st.data(), max_rows=st.integers(1, 3))
    def retain_by_time(self, data: st.DataObject, max_rows: int) -> None:
        self._retain(data, retention_ms=60_000, retention_bytes=None, max_rows=max_rows)

    @precondition(lambda self: self._filled())
    @rule(data=st.data(), limit=st.integers(0, 3000), max_rows=st.integers(1, 3))
    def retain_by_size(self, data: st.DataObject, limit: int, max_rows: int) -> None:
        self._retain(data, retention_ms=None, retention_bytes=limit, max_rows=max_rows)

    def _retain(
        self,
        data: st.DataObject,
        *,
        retention_ms: int | None,
        retention_bytes: int | None,
        max_rows: int,
    ) -> None:
        key = data.draw(st.sampled_from(self._filled()))
        removed = self.run(
            self.plane.log.enforce_retention(
                key,
                retention_ms=retention_ms,
                retention_bytes=retention_bytes,
                max_rows=max_rows,
            )
        )
        assert removed == expire(self.model[key], retention_bytes, max_rows)

    @precondition(lambda self: self._with_rows())
    @rule(data=st.data(), crash=st.booleans())
    def merge(self, data: st.DataObject, crash: bool) -> None:
        segment = self._add_segment(data)
        self._finish(segment)
        self._chain(segment, crash=crash)

    @precondition(lambda self: self._with_rows())
    @rule(data=st.data(), finish=st.booleans())
    def die_while_merging(self, data: st.DataObject, finish: bool) -> None:
        segment = self._add_segment(data)
        if finish:
            self._finish(segment)

    def _with_rows(self) -> list[TopicPartition]:
        return sorted(key for key, partition in self.model.items() if partition.rows)

    def _add_segment(self, data: st.DataObject) -> ModelSegment:
        """From the first rows of the block range."""
        key = data.draw(st.sampled_from(self._with_rows()))
        rows = self.model[key].rows
        rows = rows[: data.draw(st.integers(1, len(rows)))]
        segment = ModelSegment(
            segment_id=SegmentId(uuid7(len(self.segments), self.entropy)),
            key=key,
            base=rows[0].base,
            end=rows[-1].end,
            size=data.draw(st.integers(50, 2000)),
            timestamp=max(row.timestamp for row in rows),
        )
        self.segments[segment.segment_id] = segment
        self.run(self.plane.segments.add(_to_add(segment)))
        return segment

    def _finish(self, segment: ModelSegment) -> None:
        uploaded = SegmentUploaded(manifest="{}", stored_bytes=1, has_aborted=False)
        self.run(self.plane.segments.finish(segment.segment_id, uploaded))
        segment.state = SegmentState.COPY_FINISHED

    @precondition(lambda self: self.segments)
    @rule(data=st.data())
    def chain_later(self, data: st.DataObject) -> None:
        """An abandoned segment, which may not fit any more; without one, any segment."""
        left = [each.segment_id for each in self.segments.values() if each.waits]
        segment = self.segments[data.draw(st.sampled_from(sorted(left or self.segments)))]
        if segment.state is not SegmentState.COPY_FINISHED:
            with pytest.raises(SegmentStateError):
                self.run(self.plane.segments.chain(segment.segment_id))
            return
        if segment.chained:
            outcome = self.run(self.plane.segments.chain(segment.segment_id))
            assert outcome is ChainOutcome.CHAINED
            return
        partition = self.model.get(segment.key)
        if partition is None or partition.outcome_of_chaining(segment) is ChainOutcome.OVERTAKEN:
            outcome = self.run(self.plane.segments.chain(segment.segment_id))
            assert outcome is ChainOutcome.OVERTAKEN
            segment.doom()
        elif partition.outcome_of_chaining(segment) is None:
            with pytest.raises(BoundaryMovedError):
                self.run(self.plane.segments.chain(segment.segment_id))
        else:
            self._chain(segment, crash=data.draw(st.booleans()))

    def _chain(self, segment: ModelSegment, *, crash: bool) -> None:
        replacement = _fail if crash else remove_rows_below_starts
        with patch.object(replaced_rows, "remove_rows_below_starts", replacement):
            outcome = self.run(self.plane.segments.chain(segment.segment_id))
        assert outcome is ChainOutcome.CHAINED
        self.model[segment.key].chain(segment, crash=crash)

    @precondition(lambda self: len(self.segments) > 2)
    @rule(data=st.data())
    def give_up_segment(self, data: st.DataObject) -> None:
        """The janitor's treatment of segments that were never chained. Chained ones stay."""
        segment = self.segments[data.draw(st.sampled_from(sorted(self.segments)))]
        self.run(self.plane.segments.delete([segment.segment_id]))
        if not segment.chained:
            segment.doom()

    @precondition(lambda self: self._doomed())
    @rule()
    def forget_doomed_segments(self) -> None:
        doomed = self.run(self.plane.segments.doomed(grace_ms=0, limit=100))
        ids = {each.segment_id for each in doomed}
        assert ids == {each.segment_id for each in self._doomed()}
        self.run(self.plane.segments.forget(sorted(ids)))
        for segment_id in ids:
            del self.segments[segment_id]

    def _doomed(self) -> list[ModelSegment]:
        deleted = SegmentState.DELETE_STARTED
        return [each for each in self.segments.values() if each.state is deleted]

    @precondition(lambda self: self.topics and len(self.objects) > 5 * (self.deleted + 1))
    @rule(data=st.data())
    def delete_topic(self, data: st.DataObject) -> None:
        self.deleted += 1
        topic_id = self.topics.pop(data.draw(st.sampled_from(sorted(self.topics))))
        self.run(self.plane.topics.delete(topic_id))
        for key in [key for key in self.model if key.topic_id == topic_id]:
            partition = self.model.pop(key)
            self.condemned += partition.rows + partition.leftovers
            self.seen.pop(key, None)

    @precondition(lambda self: self.condemned or self._condemned_segments())
    @rule(max_rows=st.integers(1, 5))
    def purge(self, max_rows: int) -> None:
        segments = self._condemned_segments()
        removed = self.run(self.plane.topics.purge_deleted(window_ms=0, max_rows=max_rows))
        assert removed == min(max_rows, len(self.condemned) + len(segments))
        # Which went is the database's choice, so all of them have to.
        while self.run(self.plane.topics.purge_deleted(window_ms=0, max_rows=100)):
            pass
        self.condemned.clear()
        for segment in segments:
            segment.doom()

    def _condemned_segments(self) -> list[ModelSegment]:
        deleted = SegmentState.DELETE_STARTED
        return [
            each
            for each in self.segments.values()
            if each.key not in self.model and each.state is not deleted
        ]

    @precondition(lambda self: self.objects)
    @rule()
    def forget_marked_objects(self) -> None:
        marked = self.run(self.plane.objects.marked(grace_ms=0, limit=100))
        ids = [each.object_id for each in marked]
        assert not set(ids) & self._referenced()
        self.run(self.plane.objects.forget(ids))
        self.forgotten.update(ids)

    @precondition(lambda self: len(self.objects) > 8 * self.reopened)
    @rule()
    def reopen(self) -> None:
        self.reopened += 1
        self.run(self.plane.close())
        self.plane = self.run(open_control_plane(self.url, entropy=self.entropy))

    @precondition(lambda self: self._filled())
    @rule(data=st.data(), max_bytes=st.integers(1, 3000))
    def find(self, data: st.DataObject, max_bytes: int) -> None:
        key = data.draw(st.sampled_from(self._filled()))
        partition = self.model[key]
        offset = data.draw(st.integers(0, partition.high_watermark + 1))
        span = Span(
            topic_id=key.topic_id,
            partition=key.partition,
            offset=Offset(offset),
            max_bytes=max_bytes,
        )
        [found] = self.run(self.plane.log.find_batches([span]))
        expected: list[tuple[int, int, object]] = []
        if offset >= partition.log_start:
            expected += [
                (each.base, each.end - 1, each.segment_id)
                for each in partition.segments
                if each.end > offset
            ]
            expected += rows_within(partition, offset, max_bytes, whole=not expected)
        answer: list[tuple[int, int, object]] = [
            (each.base_offset, each.last_offset, each.segment_id) for each in found.segments
        ]
        answer += [(each.base_offset, each.last_offset, each.object_id) for each in found.rows]
        if found.segments:
            # How far it reaches is its own affair, as long as it leaves nothing out.
            assert answer == expected[: len(answer)]
        else:
            assert answer == expected

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def scan(self, data: st.DataObject) -> None:
        wishes = []
        for key, partition in self.model.items():
            bounds = st.integers(-2, partition.high_watermark + 1)
            start, end = data.draw(bounds), data.draw(bounds | st.just(-1))
            wishes.append(ScanWish(key, Offset(start), Offset(end)))
        taken = self.run(self.plane.scans.take_snapshot(wishes, holder="scan", duration_ms=60_000))
        self.run(self.plane.scans.release_lease(taken.lease.lease_id))
        for wish, found in zip(wishes, taken.partitions, strict=True):
            assert found is not None
            answer = [(each.base_offset, each.last_offset) for each in found.segments]
            answer += [(each.base_offset, each.last_offset) for each in found.rows]
            assert answer == overlapping(self.model[wish.partition], wish.start, wish.end)

    @invariant()
    def states_agree(self) -> None:
        states = self.run(self.plane.log.partitions(list(self.model)))
        for key, partition in self.model.items():
            state = states[key]
            assert (state.log_start, state.high_watermark, state.block_end) == (
                partition.log_start,
                partition.high_watermark,
                partition.high_watermark,
            )
            assert state.block_start == state.remote_end == partition.block_start
            assert state.size_bytes == partition.size
            before = self.seen.get(key, state)
            assert check_transition(before, state) == []
            assert before.remote_end <= state.remote_end
            assert before.log_start <= state.log_start
        self.seen = states

    @invariant()
    def offsets_are_dense_over_both_tiers(self) -> None:
        for key, partition in self.model.items():
            segments = self.run(self.plane.segments.chained(key, limit=1000))
            assert [each.segment_id for each in segments] == [
                each.segment_id for each in partition.segments
            ]
            if segments:
                assert segments[0].base_offset <= partition.log_start < segments[0].end_offset
                assert segments[-1].end_offset == partition.block_start
            for one, next_one in pairwise(segments):
                assert one.end_offset == next_one.base_offset

    @invariant()
    def segments_are_in_their_states(self) -> None:
        stored = self.run(self.plane.segments.all(limit=1000))
        assert {each.segment_id: (each.state, each.chained) for each in stored} == {
            each.segment_id: (each.state, each.chained) for each in self.segments.values()
        }

    @invariant()
    def objects_without_rows_are_marked(self) -> None:
        stored = self.run(self.plane.objects.all(limit=1000))
        assert {each.object_id for each in stored} == self.objects - self.forgotten
        alive = {each.object_id for each in stored if each.marked_ms is None}
        assert alive == self._referenced()

    def _referenced(self) -> set[ObjectId]:
        rows = [
            row
            for partition in self.model.values()
            for row in (*partition.rows, *partition.leftovers)
        ]
        return {row.object_id for row in rows + self.condemned}


async def _fail(*_args: object, **_kwargs: object) -> int:
    raise ControlUnavailableError("the broker is gone before it removes the rows")


def _to_add(segment: ModelSegment) -> SegmentToAdd:
    return SegmentToAdd(
        segment_id=segment.segment_id,
        topic_id=segment.key.topic_id,
        partition=segment.key.partition,
        base_offset=Offset(segment.base),
        last_offset=Offset(segment.end - 1),
        size_bytes=segment.size,
        max_timestamp=segment.timestamp,
        leader_epochs=[EpochStart(LeaderEpoch(0), Offset(segment.base))],
        key_base=f"segments/{segment.segment_id}",
    )


def batch_records(batch: BatchToCommit) -> int:
    return batch.last_offset_delta + 1


def _block(object_id: ObjectId, batches: list[BatchToCommit]) -> BlockToCommit:
    return BlockToCommit(
        object_id=object_id,
        key=f"blocks/{object_id}",
        size_bytes=1000 * len(batches),
        broker_id=BrokerId(0),
        batches=batches,
    )


ControlMachine.TestCase.settings = settings(
    max_examples=30,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestControlMachine = ControlMachine.TestCase
