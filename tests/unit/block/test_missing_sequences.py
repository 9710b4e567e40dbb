from collections.abc import Sequence
from uuid import UUID

import pytest

from stratalog.batch.build import build_batch
from stratalog.batch.entry import EntryBatch
from stratalog.batch.header import TimestampType, parse_header
from stratalog.batch.records import Record
from stratalog.block import missing_sequences as missing_module
from stratalog.block.missing_sequences import MissingSequences
from stratalog.control.log.model import BatchToCommit, BlockToCommit, CommitAnswer, CommitOutcome
from stratalog.ids import BrokerId, ObjectId, PartitionIndex, ProducerId, TopicId


def batch(sequence: int, *, producer: int = 5, epoch: int = 0, partition: int = 0) -> BatchToCommit:
    return BatchToCommit(
        topic_id=TopicId(UUID(int=1)),
        partition=PartitionIndex(partition),
        byte_offset=0,
        byte_size=1,
        last_offset_delta=0,
        max_timestamp=0,
        timestamp_type=TimestampType.CREATE_TIME,
        producer_id=ProducerId(producer),
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def entry(sequence: int) -> EntryBatch:
    data = build_batch(
        [Record(0, 0, None, b"")],
        producer_id=ProducerId(5),
        producer_epoch=0,
        base_sequence=sequence,
    )
    return EntryBatch(
        topic_id=TopicId(UUID(int=1)),
        topic_name="t",
        partition=PartitionIndex(0),
        timestamp_type=TimestampType.CREATE_TIME,
        header=parse_header(data),
        data=memoryview(data),
    )


def marks(missing: MissingSequences, *batches: BatchToCommit) -> list[bool]:
    """Which of the batches, of one block, must not be a beginning."""
    block = BlockToCommit(
        object_id=ObjectId(UUID(int=1)),
        key="k",
        size_bytes=1,
        broker_id=BrokerId(0),
        batches=batches,
    )
    return [marked.must_follow for marked in missing.mark(block).batches]


def answer(
    missing: MissingSequences, outcome: CommitOutcome, batches: Sequence[BatchToCommit]
) -> None:
    missing.answered(batches, [CommitAnswer(outcome=outcome)] * len(batches))


def test_nothing_is_marked_while_nothing_is_missing() -> None:
    assert marks(MissingSequences(), batch(3), batch(0)) == [False, False]


def test_what_follows_a_missing_batch_is_marked_and_the_batch_itself_is_not() -> None:
    missing = MissingSequences()
    missing.gave_up([batch(3)])
    assert marks(missing, batch(4)) == [True]
    assert marks(missing, batch(3), batch(4)) == [False, False]
    assert marks(missing, batch(5)) == [False], "the missing one has come"


def test_the_first_of_several_missing_batches_is_the_one_to_wait_for() -> None:
    missing = MissingSequences()
    missing.gave_up([batch(3), batch(4)])
    missing.gave_up([batch(5)])
    assert marks(missing, batch(4)) == [True]
    assert marks(missing, batch(5)) == [True]
    assert marks(missing, batch(3)) == [False]


@pytest.mark.parametrize(
    "other",
    [batch(4, producer=6), batch(4, epoch=1), batch(4, partition=1), batch(4, producer=-1)],
    ids=["producer", "epoch", "partition", "no producer"],
)
def test_only_the_same_producer_epoch_and_partition_is_concerned(other: BatchToCommit) -> None:
    missing = MissingSequences()
    missing.gave_up([batch(3)])
    assert marks(missing, other) == [False]


def test_batches_without_a_producer_are_never_missing() -> None:
    missing = MissingSequences()
    missing.gave_up([batch(-1, producer=-1)])
    assert marks(missing, batch(7, producer=-1)) == [False]


@pytest.mark.parametrize("outcome", [CommitOutcome.ACCEPTED, CommitOutcome.DUPLICATE])
def test_a_producer_that_the_control_plane_knows_needs_no_marks(outcome: CommitOutcome) -> None:
    missing = MissingSequences()
    missing.gave_up([batch(3)])
    answer(missing, outcome, [batch(9)])
    assert marks(missing, batch(10)) == [False]


def test_a_batch_before_the_missing_one_is_not_marked_and_leaves_it_missing() -> None:
    missing = MissingSequences()
    missing.refused([entry(3)])
    assert marks(missing, batch(2), batch(4)) == [False, True]
    answer(missing, CommitOutcome.ACCEPTED, [batch(2)])
    assert marks(missing, batch(4)) == [True]


def test_an_earlier_batch_that_goes_missing_later_is_the_one_to_wait_for() -> None:
    missing = MissingSequences()
    missing.refused([entry(3)])
    missing.gave_up([batch(2)])
    assert marks(missing, batch(3)) == [True]
    assert marks(missing, batch(2)) == [False]


def test_sequences_that_wrap_around_follow_each_other() -> None:
    missing = MissingSequences()
    missing.gave_up([batch((1 << 31) - 1)])
    assert marks(missing, batch(0), batch((1 << 31) - 2)) == [True, False]


def test_a_refusal_leaves_the_missing_batch_missing() -> None:
    missing = MissingSequences()
    missing.gave_up([batch(3)])
    answer(missing, CommitOutcome.OUT_OF_ORDER_SEQUENCE, [batch(4)])
    assert marks(missing, batch(4)) == [True]


def test_the_oldest_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missing_module, "_MAX_KEPT", 2)
    missing = MissingSequences()
    for producer in range(3):
        missing.gave_up([batch(0, producer=producer)])
    assert marks(missing, *(batch(1, producer=producer) for producer in range(3))) == [
        False,
        True,
        True,
    ]
