"""The pure plan of a commit against a model that is too slow and too simple to be wrong."""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from uuid import UUID

from hypothesis import event, given, settings
from hypothesis import strategies as st

from stratalog.batch.header import TimestampType
from stratalog.control.log.answers import pack_answers, unpack_answers
from stratalog.control.log.commit_plan import (
    MAX_ROW_BYTES,
    CommitPlan,
    Head,
    NewRow,
    involved,
    plan_commit,
)
from stratalog.control.log.model import (
    BatchToCommit,
    BlockToCommit,
    CommitAnswer,
    CommitOutcome,
    WriteTier,
)
from stratalog.control.log.sequences import Producer, ProducerState, RecentBatch
from stratalog.ids import (
    BrokerId,
    LeaderEpoch,
    ObjectId,
    Offset,
    PartitionIndex,
    ProducerId,
    TopicId,
    TopicPartition,
)

TOPIC = TopicId(UUID(int=1))
EXISTING, ELSEWHERE, MISSING = 2, 3, 4
"""Partitions 0 and 1 take batches, 2 writes to the local tier, 3 does not exist."""
WRAP = 2**31


@dataclass
class Remembered:
    epoch: int
    base: int
    last: int
    offset: int


@dataclass
class Model:
    """All that was ever accepted, in full."""

    end: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    written: dict[tuple[int, int], list[Remembered]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def expect(self, batch: BatchToCommit) -> tuple[CommitOutcome, int]:
        if batch.partition >= ELSEWHERE:
            return CommitOutcome.UNKNOWN_PARTITION, -1
        if batch.partition >= EXISTING:
            return CommitOutcome.WRONG_TIER, -1
        outcome, offset = self._judge(batch)
        if outcome is CommitOutcome.ACCEPTED:
            self.end[batch.partition] += batch.last_offset_delta + 1
        return outcome, offset

    def _judge(self, batch: BatchToCommit) -> tuple[CommitOutcome, int]:
        end = self.end[batch.partition]
        if batch.producer_id < 0:
            return CommitOutcome.ACCEPTED, end
        last = (batch.base_sequence + batch.last_offset_delta) % WRAP
        history = self.written[batch.partition, batch.producer_id]
        if history:
            newest = history[-1]
            if batch.producer_epoch < newest.epoch:
                return CommitOutcome.FENCED_PRODUCER, -1
            kept = [each for each in history if each.epoch == batch.producer_epoch][-5:]
            expected = (newest.last + 1) % WRAP if kept else 0
            if batch.base_sequence != expected:
                for each in kept:
                    if (each.base, each.last) == (batch.base_sequence, last):
                        return CommitOutcome.DUPLICATE, each.offset
                return CommitOutcome.OUT_OF_ORDER_SEQUENCE, -1
        history.append(Remembered(batch.producer_epoch, batch.base_sequence, last, end))
        return CommitOutcome.ACCEPTED, end

    def likely_sequences(self, partition: int, producer: int) -> list[int]:
        history = self.written[partition, producer]
        if not history:
            return [0, WRAP - 2, WRAP - 1, 17]
        following = (history[-1].last + 1) % WRAP
        return [following, following, following, (following + 1) % WRAP, 0] + [
            each.base for each in history[-7:]
        ]


@st.composite
def batches(draw: st.DrawFn, model: Model, byte_offset: int) -> BatchToCommit:
    partition = draw(st.sampled_from([0, 0, 0, 1, 1, 2, 3]))
    producer = draw(st.sampled_from([-1, 5, 5, 6]))
    history = model.written[partition, producer]
    epoch = max(0, (history[-1].epoch if history else 0) + draw(st.sampled_from([0, 0, 0, 1, -1])))
    tracked = producer >= 0
    return BatchToCommit(
        topic_id=TOPIC,
        partition=PartitionIndex(partition),
        byte_offset=byte_offset + draw(st.sampled_from([0, 0, 0, 1])),
        byte_size=draw(st.sampled_from([61, 100, MAX_ROW_BYTES // 2, MAX_ROW_BYTES + 1])),
        last_offset_delta=draw(st.integers(0, 3)),
        max_timestamp=draw(st.integers(0, 100)),
        timestamp_type=draw(st.sampled_from(TimestampType)),
        producer_id=ProducerId(producer),
        producer_epoch=epoch if tracked else -1,
        base_sequence=draw(st.sampled_from(model.likely_sequences(partition, producer)))
        if tracked
        else -1,
    )


class Commits:
    """Commits one after the other, each planned on the state that the plans before it left."""

    def __init__(self) -> None:
        self.model = Model()
        self.heads = {
            TopicPartition(TOPIC, PartitionIndex(index)): Head(
                0, 0, 4, 0, WriteTier.BLOCK if index < EXISTING else WriteTier.LOCAL
            )
            for index in range(ELSEWHERE)
        }
        self.producers: dict[tuple[TopicPartition, ProducerId], ProducerState] = {}

    def apply(self, plan: CommitPlan) -> None:
        for key, change in plan.heads.items():
            self.heads[key] = self.heads[key]._replace(
                high_watermark=change.high_watermark, last_commit_ms=change.commit_ms
            )
        self.producers.update(plan.producers)


def draw_blocks(data: st.DataObject, model: Model, number: int) -> tuple[
    list[BlockToCommit], list[list[tuple[CommitOutcome, int]]]
]:  # fmt: skip
    """Blocks, and the model's answer for each batch in turn."""
    blocks, expected = [], []
    for index in range(data.draw(st.integers(1, 2))):
        end = 0
        members: list[BatchToCommit] = []
        verdicts: list[tuple[CommitOutcome, int]] = []
        for _ in range(data.draw(st.integers(0, 8))):
            member = data.draw(batches(model, end))
            end = member.byte_offset + member.byte_size
            members.append(member)
            verdicts.append(model.expect(member))
        blocks.append(
            BlockToCommit(
                object_id=ObjectId(UUID(int=number * 10 + index)),
                key="k",
                size_bytes=end,
                broker_id=BrokerId(0),
                batches=members,
            )
        )
        expected.append(verdicts)
    return blocks, expected


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_plan_agrees_with_the_model(data: st.DataObject) -> None:
    commits = Commits()
    now_ms = 1000
    for number in range(data.draw(st.integers(1, 4))):
        now_ms += data.draw(st.sampled_from([-50, 0, 10]))
        blocks, expected = draw_blocks(data, commits.model, number)
        partitions, _ = involved(blocks)
        heads = {key: head for key, head in commits.heads.items() if key in partitions}
        before = dict(commits.heads)
        plan = plan_commit(blocks, heads, commits.producers, now_ms)
        commits.apply(plan)
        for answers, verdicts in zip(plan.answers, expected, strict=True):
            assert [(a.outcome, a.base_offset) for a in answers] == verdicts
            for outcome, _ in verdicts:
                event(outcome.name)
        check_rows(blocks, plan, before, now_ms)
        assert {key.partition: head.high_watermark for key, head in commits.heads.items()} == {
            index: commits.model.end[index] for index in range(ELSEWHERE)
        }


def check_rows(
    blocks: list[BlockToCommit],
    plan: CommitPlan,
    before: dict[TopicPartition, Head],
    now_ms: int,
) -> None:
    """Rows cover the accepted batches and nothing else, densely, as coarse as they may be."""
    accepted = defaultdict(list)
    for block, answers in zip(blocks, plan.answers, strict=True):
        for batch, answer in zip(block.batches, answers, strict=True):
            if answer.outcome is CommitOutcome.ACCEPTED:
                accepted[batch.topic_partition].append((block.object_id, batch, answer))
    assert {(row.topic_id, row.partition) for row in plan.rows} == set(accepted) == set(plan.heads)
    for key, members in accepted.items():
        rows = [row for row in plan.rows if (row.topic_id, row.partition) == key]
        head, commit_ms = before[key], max(now_ms, before[key].last_commit_ms)
        assert rows[0].base_offset == head.high_watermark
        sizes = {answer.base_offset: batch.byte_size for _, batch, answer in members}
        for row, following in pairwise(rows):
            assert following.base_offset == row.last_offset + 1
            assert not could_extend(row, following, sizes[Offset(following.base_offset)])
        assert plan.heads[key] == (
            rows[-1].last_offset + 1,
            sum(batch.byte_size for _, batch, _ in members),
            commit_ms,
        )
        for row in rows:
            inside = [m for m in members if row.base_offset <= m[2].base_offset <= row.last_offset]
            check_row(row, inside, commit_ms)
    alive = {object_id for members in accepted.values() for object_id, _, _ in members}
    assert plan.dead == {block.object_id for block in blocks} - alive


def could_extend(row: NewRow, following: NewRow, first_bytes: int) -> bool:
    """Tell if the first batch of the following row would have fitted into this one."""
    return (
        following.object_id == row.object_id
        and following.byte_offset == row.byte_offset + row.byte_size
        and following.timestamp_type is row.timestamp_type
        and row.byte_size + first_bytes <= MAX_ROW_BYTES
    )


def check_row(
    row: NewRow, inside: list[tuple[ObjectId, BatchToCommit, CommitAnswer]], commit_ms: int
) -> None:
    position, offset = row.byte_offset, row.base_offset
    times = []
    for object_id, batch, answer in inside:
        assert (object_id, batch.byte_offset) == (row.object_id, position)
        assert batch.timestamp_type is row.timestamp_type
        assert answer.base_offset == offset
        assert (answer.append_time_ms, answer.leader_epoch) == (commit_ms, 4)
        position += batch.byte_size
        offset += batch.last_offset_delta + 1
        append_time = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
        times.append(commit_ms if append_time else batch.max_timestamp)
    assert (position, offset) == (row.byte_offset + row.byte_size, row.last_offset + 1)
    assert row.max_timestamp == max(times)
    assert (row.committed_ms, row.leader_epoch) == (commit_ms, 4)
    assert row.byte_size <= MAX_ROW_BYTES or len(inside) == 1


@given(st.lists(st.integers(0, 7), min_size=8, max_size=40), st.sampled_from([0, WRAP - 5]))
def test_a_producer_that_repeats_itself_is_found_out(back: list[int], start: int) -> None:
    """Of one producer: each batch is the next one, or one of those before it."""
    producer = Producer(None)
    accepted: list[int] = []
    for step in back:
        repeated = step and step <= len(accepted)
        index = len(accepted) - step if repeated else len(accepted)
        verdict = producer.take(0, (start + 2 * index) % WRAP, 1, 100 + index, 0)
        if not repeated:
            assert verdict is CommitOutcome.ACCEPTED
            accepted.append(index)
            producer = Producer(producer.state)
        elif step <= 5:
            assert isinstance(verdict, RecentBatch)
            assert verdict.base_offset == 100 + index
        else:
            assert verdict is CommitOutcome.OUT_OF_ORDER_SEQUENCE


answers = st.builds(
    CommitAnswer,
    outcome=st.sampled_from(CommitOutcome),
    base_offset=st.integers(-1, 2**63 - 1).map(Offset),
    append_time_ms=st.integers(-1, 2**63 - 1),
    log_start=st.integers(-1, 2**63 - 1).map(Offset),
    leader_epoch=st.integers(-1, 2**31 - 1).map(LeaderEpoch),
)


@given(st.lists(answers))
def test_packed_answers_come_back_as_they_were(given_answers: list[CommitAnswer]) -> None:
    assert unpack_answers(pack_answers(given_answers)) == given_answers
