import pickle

import pytest
from tests.unit.segment.runs import T0, batch, built, marker

from stratalog.batch.control import ControlType
from stratalog.ids import Offset, ProducerId
from stratalog.segment.build import BuiltLog
from stratalog.segment.errors import SegmentRefusedError
from stratalog.segment.model import AbortedTransaction
from stratalog.segment.producer_snapshot import ProducerEntry
from stratalog.segment.producer_state import PartitionTail, advance

COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT


def transactional(producer_id: int, sequence: int = 0, *, epoch: int = 0, count: int = 1) -> bytes:
    return batch(
        count,
        producer_id=producer_id,
        producer_epoch=epoch,
        sequence=sequence,
        transactional=True,
    )


def fold(*logs: BuiltLog) -> tuple[PartitionTail, list[AbortedTransaction]]:
    tail, aborted = PartitionTail(), []
    for log in logs:
        tail, more = advance(tail, log)
        aborted += more
    return tail, aborted


def entry(tail: PartitionTail, producer_id: int) -> ProducerEntry:
    return tail.producers[ProducerId(producer_id)]


def test_a_producers_last_batch_is_remembered() -> None:
    tail, aborted = fold(
        built(100, batch(3, producer_id=8, sequence=4, producer_epoch=2, timestamp=T0))
    )
    assert entry(tail, 8) == ProducerEntry(ProducerId(8), 2, 6, Offset(102), 2, T0 + 2)
    assert aborted == []


def test_producers_that_a_segment_does_not_mention_stay() -> None:
    tail, _ = fold(built(100, batch(1, producer_id=8)), built(101, batch(1, producer_id=9)))
    assert sorted(tail.producers) == [8, 9]
    assert entry(tail, 8).last_offset == 100


def test_an_earlier_tail_is_not_changed() -> None:
    before, _ = fold(built(100, batch(1, producer_id=8)))
    advance(before, built(101, batch(1, producer_id=8, sequence=1), batch(1, producer_id=9)))
    assert list(before.producers) == [8]
    assert entry(before, 8).last_offset == 100


def test_a_transaction_that_ends_in_its_segment_is_closed() -> None:
    tail, aborted = fold(built(100, transactional(1, count=2), marker(COMMIT, 1)))
    assert aborted == []
    assert entry(tail, 1) == ProducerEntry(ProducerId(1), 0, 1, Offset(101), 1, T0 + 500, 7)


def test_an_abort_is_told_with_the_next_stable_offset() -> None:
    _, aborted = fold(built(100, transactional(1, count=2), batch(1), marker(ABORT, 1)))
    assert aborted == [(1, 100, 103, 104)]


def test_an_older_open_transaction_holds_the_stable_offset_back() -> None:
    tail, aborted = fold(
        built(100, transactional(2), transactional(1), transactional(3), marker(ABORT, 1)),
        built(104, marker(ABORT, 2), marker(ABORT, 3)),
    )
    assert aborted == [
        (1, 101, 103, 100),
        (2, 100, 104, 102),
        (3, 102, 105, 106),
    ]
    assert {each.txn_first_offset for each in tail.producers.values()} == {-1}


def test_a_transaction_goes_on_over_segments() -> None:
    first = built(100, transactional(1))
    second = built(101, transactional(1, 1))
    tail, _ = fold(first, second)
    assert entry(tail, 1).txn_first_offset == 100
    tail, aborted = advance(tail, built(102, transactional(1, 2), marker(ABORT, 1)))
    assert aborted == [(1, 100, 103, 104)]
    assert entry(tail, 1).txn_first_offset == -1


def test_a_transaction_after_a_marker_is_a_new_one() -> None:
    tail, aborted = fold(
        built(100, transactional(1)),
        built(101, marker(ABORT, 1), transactional(1, 1), transactional(1, 2)),
    )
    assert aborted == [(1, 100, 101, 102)]
    assert entry(tail, 1).txn_first_offset == 102


def test_a_marker_without_records_aborts_nothing() -> None:
    tail, aborted = fold(built(100, marker(ABORT, 1, producer_epoch=3, timestamp=9)))
    assert aborted == []
    assert entry(tail, 1) == ProducerEntry(ProducerId(1), 3, timestamp=9, coordinator_epoch=7)


def test_a_marker_of_the_same_epoch_keeps_the_last_batch() -> None:
    tail, _ = fold(built(100, transactional(1, 5)), built(101, marker(COMMIT, 1)))
    assert (entry(tail, 1).last_sequence, entry(tail, 1).last_offset) == (5, 100)


def test_a_marker_of_a_new_epoch_forgets_the_last_batch() -> None:
    tail, aborted = fold(
        built(100, transactional(1, 5)), built(101, marker(ABORT, 1, producer_epoch=1))
    )
    assert aborted == [(1, 100, 101, 102)]
    assert entry(tail, 1) == ProducerEntry(
        ProducerId(1), 1, timestamp=T0 + 500, coordinator_epoch=7
    )


def test_a_batch_after_a_marker_of_a_new_epoch_is_remembered() -> None:
    log = built(
        100, transactional(1), marker(ABORT, 1, producer_epoch=1), transactional(1, epoch=1)
    )
    tail, _ = fold(log)
    assert entry(tail, 1) == ProducerEntry(ProducerId(1), 1, 0, Offset(102), 0, T0, 7, Offset(102))


def test_the_coordinators_epoch_outlives_batches() -> None:
    tail, _ = fold(
        built(100, marker(COMMIT, 1, coordinator_epoch=4)), built(101, batch(1, producer_id=1))
    )
    assert entry(tail, 1).coordinator_epoch == 4


def test_a_tail_survives_its_snapshot() -> None:
    tail, _ = fold(
        built(100, transactional(9), batch(2, producer_id=3), marker(COMMIT, 4), transactional(1))
    )
    data = tail.to_snapshot()
    assert PartitionTail.from_snapshot(data) == tail
    _, aborted = advance(PartitionTail.from_snapshot(data), built(105, marker(ABORT, 1)))
    assert aborted == [(1, 104, 105, 100)]


def test_the_same_state_makes_the_same_snapshot_whatever_the_order() -> None:
    one, _ = fold(built(100, batch(1, producer_id=1)))
    two, _ = fold(built(101, batch(1, producer_id=2)))
    forth = PartitionTail({**one.producers, **two.producers})
    back = PartitionTail({**two.producers, **one.producers})
    assert forth.to_snapshot() == back.to_snapshot()


def test_segments_are_folded_in_order() -> None:
    tail, _ = fold(built(100, batch(2, producer_id=1)))
    with pytest.raises(SegmentRefusedError, match=r"the segment at 101 cannot follow.* at 101"):
        advance(tail, built(101, batch(1)))
    advance(tail, built(102, batch(1)))


def test_idle_producers_are_forgotten_unless_something_is_open() -> None:
    tail, _ = fold(
        built(
            100,
            batch(1, producer_id=1, timestamp=T0),
            batch(1, producer_id=2, timestamp=T0 + 1),
            transactional(3),
        )
    )
    assert sorted(tail.forget(T0 - 1).producers) == [1, 2, 3]
    assert sorted(tail.forget(T0).producers) == [2, 3]
    assert sorted(tail.forget(T0 + 1).producers) == [3]


def test_what_a_worker_sends_is_what_the_driver_folds() -> None:
    log = built(100, transactional(1), marker(ABORT, 1))
    received = pickle.loads(pickle.dumps(log))
    assert fold(received) == fold(log)


def test_what_goes_on_elsewhere_has_no_open_transactions_and_the_same_sequences() -> None:
    log = built(100, transactional(8, 4, count=3), batch(1, producer_id=9))
    tail, _ = fold(log)
    assert entry(tail, 8).txn_first_offset == 100
    decided = tail.decided()
    assert entry(decided, 8) == entry(tail, 8)._replace(txn_first_offset=Offset(-1))
    assert entry(decided, 9) == entry(tail, 9)
    # A marker that comes nevertheless has nothing to abort.
    _, aborted = advance(decided, built(104, marker(ABORT, 8)))
    assert aborted == []
