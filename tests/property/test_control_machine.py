"""A control plane on SQLite against a model in memory, through any order of operations."""

import asyncio
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stratalog.batch.header import TimestampType
from stratalog.control.model import BatchToCommit, BlockToCommit, CommitOutcome, Span
from stratalog.control.open import open_control_plane
from stratalog.ids import (
    BrokerId,
    ObjectId,
    Offset,
    PartitionIndex,
    ProducerId,
    TopicId,
    TopicPartition,
    uuid7,
)

T = TypeVar("T")
OLD, YOUNG = 1_000, 9_000_000_000_000
PARTITIONS = 2


@dataclass
class ModelRow:
    base: int
    end: int
    size: int
    timestamp: int
    object_id: ObjectId


@dataclass
class ModelPartition:
    rows: list[ModelRow] = field(default_factory=list)
    log_start: int = 0
    high_watermark: int = 0

    def cut(self, log_start: int) -> None:
        self.log_start = max(self.log_start, log_start)
        self.rows = [row for row in self.rows if row.end > self.log_start]


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
        self.objects: set[ObjectId] = set()
        self.forgotten: set[ObjectId] = set()
        self.reopened = 0
        self.create_topic("a")

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        self.run(self.plane.close())
        self.loop.close()
        self.folder.cleanup()

    @precondition(lambda self: len(self.topics) < 2)
    @rule(name=st.sampled_from("ab"))
    def create_topic(self, name: str) -> None:
        if name in self.topics:
            return
        topic = self.run(self.plane.create_topic(name, partition_count=PARTITIONS, configs={}))
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
        [answers] = self.run(self.plane.commit_blocks([_block(object_id, batches)]))
        for batch, answer in zip(batches, answers, strict=True):
            partition = self.model[batch.topic_partition]
            base, end = partition.high_watermark, partition.high_watermark + batch_records(batch)
            assert (answer.outcome, answer.base_offset) == (CommitOutcome.ACCEPTED, base)
            assert answer.log_start == partition.log_start
            partition.high_watermark = end
            partition.rows.append(
                ModelRow(base, end, batch.byte_size, batch.max_timestamp, object_id)
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

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.model)))
        partition = self.model[key]
        target = data.draw(st.integers(-1, partition.high_watermark))
        [deleted] = self.run(self.plane.delete_records({key: Offset(target)}))
        partition.cut(partition.high_watermark if target == -1 else target)
        assert deleted.log_start == partition.log_start

    @precondition(lambda self: self.model)
    @rule(data=st.data(), max_rows=st.integers(1, 3))
    def retain_by_time(self, data: st.DataObject, max_rows: int) -> None:
        key = data.draw(st.sampled_from(sorted(self.model)))
        partition = self.model[key]
        expired = 0
        for row in partition.rows[:max_rows]:
            if row.timestamp != OLD:
                break
            expired += 1
        self._retain(key, expired, retention_ms=60_000, retention_bytes=None, max_rows=max_rows)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), limit=st.integers(0, 3000), max_rows=st.integers(1, 3))
    def retain_by_size(self, data: st.DataObject, limit: int, max_rows: int) -> None:
        key = data.draw(st.sampled_from(sorted(self.model)))
        partition = self.model[key]
        left = sum(row.size for row in partition.rows)
        expired = 0
        for row in partition.rows[:max_rows]:
            left -= row.size
            if left < limit:
                break
            expired += 1
        self._retain(key, expired, retention_ms=None, retention_bytes=limit, max_rows=max_rows)

    def _retain(
        self,
        key: TopicPartition,
        expired: int,
        *,
        retention_ms: int | None,
        retention_bytes: int | None,
        max_rows: int,
    ) -> None:
        removed = self.run(
            self.plane.enforce_retention(
                key,
                retention_ms=retention_ms,
                retention_bytes=retention_bytes,
                max_rows=max_rows,
            )
        )
        assert removed == expired
        if expired:
            partition = self.model[key]
            partition.cut(partition.rows[expired - 1].end)

    @precondition(lambda self: len(self.objects) > 5)
    @rule(name=st.sampled_from("ab"))
    def delete_topic(self, name: str) -> None:
        topic_id = self.topics.pop(name, None)
        if topic_id is None:
            return
        self.run(self.plane.delete_topic(topic_id))
        for key in [key for key in self.model if key.topic_id == topic_id]:
            self.condemned += self.model.pop(key).rows

    @precondition(lambda self: self.condemned)
    @rule(max_rows=st.integers(1, 5))
    def purge(self, max_rows: int) -> None:
        removed = self.run(self.plane.purge_deleted_topics(max_rows=max_rows))
        assert removed == min(max_rows, len(self.condemned))
        if removed == len(self.condemned):
            self.condemned.clear()
        else:
            # Which rows went is the database's choice, so all of them have to.
            while self.run(self.plane.purge_deleted_topics(max_rows=100)):
                pass
            self.condemned.clear()

    @precondition(lambda self: self.objects)
    @rule()
    def forget_marked_objects(self) -> None:
        marked = self.run(self.plane.marked_objects(grace_ms=0, limit=100))
        ids = [each.object_id for each in marked]
        assert not set(ids) & self._referenced()
        self.run(self.plane.forget_objects(ids))
        self.forgotten.update(ids)

    @precondition(lambda self: len(self.objects) > 8 * self.reopened)
    @rule()
    def reopen(self) -> None:
        self.reopened += 1
        self.run(self.plane.close())
        self.plane = self.run(open_control_plane(self.url, entropy=self.entropy))

    @precondition(lambda self: self.model)
    @rule(data=st.data(), max_bytes=st.integers(1, 3000))
    def find(self, data: st.DataObject, max_bytes: int) -> None:
        key = data.draw(st.sampled_from(sorted(self.model)))
        partition = self.model[key]
        offset = data.draw(st.integers(0, partition.high_watermark + 1))
        span = Span(
            topic_id=key.topic_id,
            partition=key.partition,
            offset=Offset(offset),
            max_bytes=max_bytes,
        )
        [found] = self.run(self.plane.find_batches([span]))
        expected, total = [], 0
        if offset >= partition.log_start:
            for row in partition.rows:
                if row.end > offset and total < max_bytes:
                    expected.append((row.base, row.end - 1, row.object_id))
                    total += row.size
        assert [(r.base_offset, r.last_offset, r.object_id) for r in found.rows] == expected

    @invariant()
    def states_agree(self) -> None:
        states = self.run(self.plane.partitions(list(self.model)))
        for key, partition in self.model.items():
            state = states[key]
            start = partition.rows[0].base if partition.rows else partition.high_watermark
            assert (state.log_start, state.high_watermark, state.block_end) == (
                partition.log_start,
                partition.high_watermark,
                partition.high_watermark,
            )
            assert state.block_start == state.remote_end == start
            assert state.size_bytes == sum(row.size for row in partition.rows)

    @invariant()
    def objects_without_rows_are_marked(self) -> None:
        stored = self.run(self.plane.objects(limit=1000))
        assert {each.object_id for each in stored} == self.objects - self.forgotten
        alive = {each.object_id for each in stored if each.marked_ms is None}
        assert alive == self._referenced()

    def _referenced(self) -> set[ObjectId]:
        rows = [row for partition in self.model.values() for row in partition.rows]
        return {row.object_id for row in rows + self.condemned}


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
