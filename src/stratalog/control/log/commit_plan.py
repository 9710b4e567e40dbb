"""The plan of a commit: from the heads and producers as they are to the rows and heads to write.

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
from stratalog.control.log.boundaries import broken
from stratalog.control.log.model import (
    BatchToCommit,
    BlockToCommit,
    CommitAnswer,
    CommitOutcome,
    WriteTier,
)
from stratalog.control.log.sequences import Producer, ProducerState, RecentBatch
from stratalog.ids import (
    NO_OFFSET,
    LeaderEpoch,
    ObjectId,
    Offset,
    PartitionIndex,
    ProducerId,
    TopicId,
    TopicPartition,
)

MAX_ROW_BYTES = 1024 * 1024
"""Batches coalesce up to here. Larger rows would make a small fetch read and check too much."""

# Bound once: to look up an enum's member costs more than all else that is done with it.
_ACCEPTED = CommitOutcome.ACCEPTED
_LOG_APPEND_TIME = TimestampType.LOG_APPEND_TIME

ProducerKey: TypeAlias = tuple[TopicPartition, ProducerId]


class Head(NamedTuple):
    """A partition as its next commit finds it."""

    high_watermark: int
    last_commit_ms: int
    leader_epoch: int
    log_start: int
    write_tier: WriteTier


class HeadChange(NamedTuple):
    """All changes of a commit to a head."""

    high_watermark: int
    added_bytes: int
    commit_ms: int


@dataclass(slots=True)
class NewRow:
    """Coordinates in the making."""

    topic_id: TopicId
    partition: PartitionIndex
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
    """Only heads that change."""
    producers: dict[ProducerKey, ProducerState] = field(default_factory=dict)
    """Only producers that change."""
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
    """Decide the answers. `heads` lacks missing partitions, `producers` lacks unknown producers."""
    plan = CommitPlan()
    partitions: dict[TopicPartition, _Partition] = {}
    for block in blocks:
        answers: list[CommitAnswer] = []
        # Grouping saves most lookups: a block is sorted by partition.
        for (topic_id, index), batches in groupby(block.batches, _partition_of):
            key = TopicPartition(topic_id, index)
            head = heads.get(key)
            if head is None or head.write_tier is not WriteTier.BLOCK:
                answers.extend(_refusal(head) for _ in batches)
                continue
            partition = partitions.get(key)
            if partition is None:
                partition = partitions[key] = _Partition(key, head, producers, now_ms)
            answers += partition.append(block.object_id, batches)
        plan.answers.append(answers)
    for partition in partitions.values():
        partition.finish(plan)
    alive = {row.object_id for row in plan.rows}
    plan.dead = {block.object_id for block in blocks if block.object_id not in alive}
    return plan


class _Partition:
    """One partition while batches are appended to it."""

    def __init__(
        self,
        key: TopicPartition,
        head: Head,
        producers: Mapping[ProducerKey, ProducerState],
        now_ms: int,
    ) -> None:
        self.rows: list[NewRow] = []
        self._key = key
        self._log_start = Offset(head.log_start)
        self._leader_epoch = LeaderEpoch(head.leader_epoch)
        self._known = producers
        self._producers: dict[ProducerId, Producer] = {}
        self._next_offset = self._first_offset = Offset(head.high_watermark)
        self._added_bytes = 0
        self._commit_ms = max(now_ms, head.last_commit_ms)

    def append(self, object_id: ObjectId, batches: Iterable[BatchToCommit]) -> list[CommitAnswer]:
        answers: list[CommitAnswer] = []
        row: NewRow | None = None
        for batch in batches:
            outcome, base_offset, append_time_ms = self._judge(batch)
            answers.append(
                CommitAnswer(
                    outcome, base_offset, append_time_ms, self._log_start, self._leader_epoch
                )
            )
            if outcome is _ACCEPTED:
                row = self._extend(row, object_id, batch)
        return answers

    def finish(self, plan: CommitPlan) -> None:
        plan.rows += self.rows
        for producer_id, producer in self._producers.items():
            if producer.changed:
                plan.producers[self._key, producer_id] = producer.state
        if self._added_bytes:
            self._check_offsets()
            plan.heads[self._key] = HeadChange(
                self._next_offset, self._added_bytes, self._commit_ms
            )

    def _check_offsets(self) -> None:
        """Raise unless the rows continue the partition where it ended.

        Only the plan is checked, not the boundaries that were stored before: a commit carries the
        batches of many partitions, and a damaged one must not refuse the batches of the others.
        """
        if not (
            self._first_offset < self._next_offset
            and self.rows[0].base_offset == self._first_offset
            and self.rows[-1].last_offset == self._next_offset - 1
        ):
            raise broken(
                self._key,
                f"a commit from {self._first_offset} to {self._next_offset} has rows from"
                f" {self.rows[0].base_offset} to {self.rows[-1].last_offset}",
            )

    def _judge(self, batch: BatchToCommit) -> tuple[CommitOutcome, Offset, int]:
        """The outcome, the first offset and the append time."""
        # Without a producer, or without a sequence (a transaction's marker), nothing is checked.
        if batch.producer_id < 0 or batch.base_sequence < 0:
            return _ACCEPTED, self._next_offset, self._commit_ms
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            producer = Producer(self._known.get((self._key, batch.producer_id)))
            self._producers[batch.producer_id] = producer
        if batch.must_follow and not producer.is_known:
            return CommitOutcome.FOLLOWS_MISSING, NO_OFFSET, -1
        verdict = producer.take(
            batch.producer_epoch,
            batch.base_sequence,
            batch.last_offset_delta,
            self._next_offset,
            self._commit_ms,
        )
        if verdict is _ACCEPTED:
            return _ACCEPTED, self._next_offset, self._commit_ms
        if isinstance(verdict, RecentBatch):
            return CommitOutcome.DUPLICATE, Offset(verdict.base_offset), verdict.append_time_ms
        if batch.must_follow and verdict is CommitOutcome.OUT_OF_ORDER_SEQUENCE:
            return CommitOutcome.FOLLOWS_MISSING, NO_OFFSET, -1
        return verdict, NO_OFFSET, -1

    def _extend(self, row: NewRow | None, object_id: ObjectId, batch: BatchToCommit) -> NewRow:
        """Put an accepted batch into the open row, or open a new one."""
        append_time = batch.timestamp_type == _LOG_APPEND_TIME
        max_timestamp = self._commit_ms if append_time else batch.max_timestamp
        base_offset = self._next_offset
        self._next_offset = Offset(base_offset + batch.last_offset_delta + 1)
        self._added_bytes += batch.byte_size
        if row is not None and _adjoins(row, batch):
            row.byte_size += batch.byte_size
            row.last_offset = self._next_offset - 1
            row.max_timestamp = max(row.max_timestamp, max_timestamp)
            return row
        row = NewRow(
            topic_id=self._key.topic_id,
            partition=self._key.partition,
            object_id=object_id,
            byte_offset=batch.byte_offset,
            byte_size=batch.byte_size,
            base_offset=base_offset,
            last_offset=self._next_offset - 1,
            max_timestamp=max_timestamp,
            timestamp_type=batch.timestamp_type,
            committed_ms=self._commit_ms,
            leader_epoch=self._leader_epoch,
        )
        self.rows.append(row)
        return row


def _adjoins(row: NewRow, batch: BatchToCommit) -> bool:
    return (
        row.byte_offset + row.byte_size == batch.byte_offset
        and row.timestamp_type is batch.timestamp_type
        and row.byte_size + batch.byte_size <= MAX_ROW_BYTES
    )


def _refusal(head: Head | None) -> CommitAnswer:
    if head is None:
        return CommitAnswer(outcome=CommitOutcome.UNKNOWN_PARTITION)
    return CommitAnswer(
        outcome=CommitOutcome.WRONG_TIER,
        log_start=Offset(head.log_start),
        leader_epoch=LeaderEpoch(head.leader_epoch),
    )


_partition_of = attrgetter("topic_id", "partition")
