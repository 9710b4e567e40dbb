"""What a commit does, decided without a database: from what is there to what shall be there.

Pure, and the same for both databases. The caller holds the heads' locks from before it read
`heads`, `producers` and `now_ms` until the plan is written.

A batch that is rejected leaves its bytes dead in the object. Dead bytes part the rows around them,
so adjoining bytes of a partition prove adjoining offsets.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from stratalog.batch.header import TimestampType
from stratalog.control.model import (
    BatchToCommit,
    BlockToCommit,
    CommitAnswer,
    CommitOutcome,
    WriteTier,
)
from stratalog.control.sequences import (
    ProducerState,
    RecentBatch,
    advance,
    judge,
    last_sequence,
)
from stratalog.ids import NO_OFFSET, LeaderEpoch, ObjectId, Offset, ProducerId, TopicPartition

MAX_ROW_BYTES = 1024 * 1024
"""Batches coalesce up to here. Larger rows would make a small fetch read and check too much."""

ProducerKey: TypeAlias = tuple[TopicPartition, ProducerId]


class Head(NamedTuple):
    """A partition as its next commit finds it."""

    high_watermark: int
    last_commit_ms: int
    leader_epoch: int
    log_start: int
    write_tier: WriteTier


class HeadChange(NamedTuple):
    """The whole of what a commit changes about a head."""

    high_watermark: int
    added_bytes: int
    commit_ms: int


@dataclass(slots=True)
class NewRow:
    """Coordinates in the making."""

    partition: TopicPartition
    object_id: ObjectId
    byte_offset: int
    byte_size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    timestamp_type: TimestampType
    committed_ms: int
    leader_epoch: int


@dataclass(slots=True)
class CommitPlan:
    answers: list[list[CommitAnswer]] = field(default_factory=list)
    rows: list[NewRow] = field(default_factory=list)
    heads: dict[TopicPartition, HeadChange] = field(default_factory=dict)
    """Only those that change."""
    producers: dict[ProducerKey, ProducerState] = field(default_factory=dict)
    """Only those that change."""
    dead: set[ObjectId] = field(default_factory=set)
    """Objects of which nothing was accepted."""


def involved(blocks: Sequence[BlockToCommit]) -> tuple[set[TopicPartition], set[ProducerKey]]:
    """The partitions and the producers on them that `plan_commit` wants to know about."""
    partitions: set[TopicPartition] = set()
    producers: set[ProducerKey] = set()
    for block in blocks:
        for (topic_id, index), batches in groupby(block.batches, _partition_of):
            key = TopicPartition(topic_id, index)
            partitions.add(key)
            ids = {batch.producer_id for batch in batches}
            producers.update((key, producer_id) for producer_id in ids if producer_id >= 0)
    return partitions, producers


def plan_commit(
    blocks: Sequence[BlockToCommit],
    heads: Mapping[TopicPartition, Head],
    producers: Mapping[ProducerKey, ProducerState],
    now_ms: int,
) -> CommitPlan:
    """`heads` lacks partitions that do not exist, `producers` those that are unknown."""
    plan = CommitPlan()
    partitions: dict[TopicPartition, _Partition] = {}
    for block in blocks:
        answers: list[CommitAnswer] = []
        rows_before = len(plan.rows)
        # Grouping saves most lookups: a block is sorted by partition.
        for (topic_id, index), batches in groupby(block.batches, _partition_of):
            key = TopicPartition(topic_id, index)
            head = heads.get(key)
            if head is None:
                answers.extend(_UNKNOWN_PARTITION for _ in batches)
            elif head.write_tier is not WriteTier.BLOCK:
                answers.extend(_wrong_tier(head) for _ in batches)
            else:
                if key not in partitions:
                    partitions[key] = _Partition(key, head, producers, plan, now_ms)
                partitions[key].append(block.object_id, batches, answers)
        plan.answers.append(answers)
        if len(plan.rows) == rows_before:
            plan.dead.add(block.object_id)
    for partition in partitions.values():
        partition.finish()
    return plan


class _Partition:
    """One partition while batches are appended to it."""

    def __init__(
        self,
        key: TopicPartition,
        head: Head,
        producers: Mapping[ProducerKey, ProducerState],
        plan: CommitPlan,
        now_ms: int,
    ) -> None:
        self._key = key
        self._head = head
        self._producers = producers
        self._plan = plan
        self._next_offset = head.high_watermark
        self._added_bytes = 0
        self._commit_ms = max(now_ms, head.last_commit_ms)

    def append(
        self, object_id: ObjectId, batches: Iterable[BatchToCommit], answers: list[CommitAnswer]
    ) -> None:
        row: NewRow | None = None
        for batch in batches:
            answer = self._judge(batch)
            answers.append(answer)
            if answer.outcome is CommitOutcome.ACCEPTED:
                row = self._extend(row, object_id, batch)

    def finish(self) -> None:
        if self._added_bytes:
            self._plan.heads[self._key] = HeadChange(
                self._next_offset, self._added_bytes, self._commit_ms
            )

    def _judge(self, batch: BatchToCommit) -> CommitAnswer:
        # Without a producer, or without a sequence (a transaction's marker), nothing is checked.
        if batch.producer_id < 0 or batch.base_sequence < 0:
            return self._answer(CommitOutcome.ACCEPTED, self._next_offset, self._commit_ms)
        key = (self._key, batch.producer_id)
        state = self._plan.producers.get(key) or self._producers.get(key)
        last = last_sequence(batch.base_sequence, batch.last_offset_delta)
        verdict = judge(state, batch.producer_epoch, batch.base_sequence, last)
        if isinstance(verdict, RecentBatch):
            return self._answer(
                CommitOutcome.DUPLICATE, verdict.base_offset, verdict.append_time_ms
            )
        if verdict is not CommitOutcome.ACCEPTED:
            return self._answer(verdict, NO_OFFSET, -1)
        recent = RecentBatch(batch.base_sequence, last, self._next_offset, self._commit_ms)
        self._plan.producers[key] = advance(state, batch.producer_epoch, recent)
        return self._answer(CommitOutcome.ACCEPTED, self._next_offset, self._commit_ms)

    def _answer(
        self, outcome: CommitOutcome, base_offset: int, append_time_ms: int
    ) -> CommitAnswer:
        return CommitAnswer(
            outcome=outcome,
            base_offset=Offset(base_offset),
            append_time_ms=append_time_ms,
            log_start=Offset(self._head.log_start),
            leader_epoch=LeaderEpoch(self._head.leader_epoch),
        )

    def _extend(self, row: NewRow | None, object_id: ObjectId, batch: BatchToCommit) -> NewRow:
        """Put an accepted batch into the open row, or open a new one."""
        append_time = batch.timestamp_type == TimestampType.LOG_APPEND_TIME
        max_timestamp = self._commit_ms if append_time else batch.max_timestamp
        base_offset = self._next_offset
        self._next_offset += batch.last_offset_delta + 1
        self._added_bytes += batch.byte_size
        if row is not None and _adjoins(row, batch):
            row.byte_size += batch.byte_size
            row.last_offset = self._next_offset - 1
            row.max_timestamp = max(row.max_timestamp, max_timestamp)
            return row
        row = NewRow(
            partition=self._key,
            object_id=object_id,
            byte_offset=batch.byte_offset,
            byte_size=batch.byte_size,
            base_offset=base_offset,
            last_offset=self._next_offset - 1,
            max_timestamp=max_timestamp,
            timestamp_type=batch.timestamp_type,
            committed_ms=self._commit_ms,
            leader_epoch=self._head.leader_epoch,
        )
        self._plan.rows.append(row)
        return row


def _adjoins(row: NewRow, batch: BatchToCommit) -> bool:
    return (
        row.byte_offset + row.byte_size == batch.byte_offset
        and row.timestamp_type == batch.timestamp_type
        and row.byte_size + batch.byte_size <= MAX_ROW_BYTES
    )


def _wrong_tier(head: Head) -> CommitAnswer:
    return CommitAnswer(
        outcome=CommitOutcome.WRONG_TIER,
        log_start=Offset(head.log_start),
        leader_epoch=LeaderEpoch(head.leader_epoch),
    )


_UNKNOWN_PARTITION = CommitAnswer(outcome=CommitOutcome.UNKNOWN_PARTITION)
_partition_of = attrgetter("topic_id", "partition")
