from dataclasses import replace
from uuid import UUID

import pytest
from tests.unit.segment.remote_log_records import PARTITION, added

from stratalog.control.segments.model import EpochStart, SegmentState
from stratalog.ids import (
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    SegmentId,
)
from stratalog.segment.errors import RemoteLogRecordError
from stratalog.segment.metadata_fold import FoldedPartition, FoldedTopics, fold_records
from stratalog.segment.remote_log_metadata import (
    PartitionDeleted,
    PartitionDeleteState,
    RemoteLogRecord,
    SegmentAdded,
    SegmentSnapshot,
    SegmentUpdated,
    encode_record,
)

STARTED, FINISHED, DELETING, DELETED = SegmentState


def updated(number: int, state: SegmentState, custom: bytes | None = None) -> SegmentUpdated:
    return SegmentUpdated(
        partition=PARTITION,
        segment_id=SegmentId(UUID(int=number)),
        broker_id=BrokerId(2),
        event_ms=7,
        custom_metadata=custom,
        state=state,
    )


def deleted(state: PartitionDeleteState) -> PartitionDeleted:
    return PartitionDeleted(partition=PARTITION, broker_id=BrokerId(1), event_ms=0, state=state)


def fold(*records: RemoteLogRecord) -> FoldedTopics:
    return fold_records(encode_record(record) for record in records)


def only(folded: FoldedTopics) -> FoldedPartition:
    (partition,) = folded.partitions.values()
    return partition


def numbers(segments: tuple[SegmentAdded, ...]) -> list[int]:
    return [segment.segment_id.int for segment in segments]


def test_a_finished_segment_is_there_with_what_its_last_update_said() -> None:
    folded = fold(added(1, 0, 9), updated(1, FINISHED, b"custom"))
    assert only(folded).segments == (
        replace(
            added(1, 0, 9),
            broker_id=BrokerId(2),
            event_ms=7,
            custom_metadata=b"custom",
            state=FINISHED,
        ),
    )
    assert folded.dropped == 0


def test_an_update_without_custom_metadata_takes_it_away() -> None:
    folded = fold(added(1, 0, 9), updated(1, FINISHED, b"custom"), updated(1, FINISHED))
    assert only(folded).segments[0].custom_metadata is None


@pytest.mark.parametrize(
    ("states", "dropped", "finished", "unfinished"),
    [
        ([], 0, [], [1]),
        ([FINISHED], 0, [1], []),
        ([FINISHED, FINISHED], 0, [1], []),
        ([STARTED, FINISHED], 0, [1], []),
        ([DELETING], 0, [], [1]),
        ([DELETED], 1, [], [1]),
        ([FINISHED, STARTED], 1, [1], []),
        ([FINISHED, DELETED], 1, [1], []),
        ([FINISHED, DELETING], 0, [], [1]),
        ([FINISHED, DELETING, FINISHED], 1, [], [1]),
        ([FINISHED, DELETING, DELETING, DELETED], 0, [], []),
        ([FINISHED, DELETING, DELETED, DELETED], 0, [], []),
        ([FINISHED, DELETING, DELETED, FINISHED], 1, [], []),
    ],
)
def test_states_follow_each_other_as_in_kafka(
    states: list[SegmentState], dropped: int, finished: list[int], unfinished: list[int]
) -> None:
    folded = fold(added(1, 0, 9), *(updated(1, state) for state in states))
    assert folded.dropped == dropped
    assert numbers(only(folded).segments) == finished
    assert numbers(only(folded).unfinished) == unfinished


def test_an_update_of_a_segment_that_nobody_added_is_dropped() -> None:
    assert fold(updated(1, FINISHED)).dropped == 1


def test_a_segment_is_added_as_started_or_not_at_all() -> None:
    folded = fold(replace(added(1, 0, 9), state=FINISHED), updated(1, FINISHED))
    assert folded.dropped == 2
    assert not only(folded).segments


def test_a_finished_segment_is_not_started_anew() -> None:
    folded = fold(added(1, 0, 9), updated(1, FINISHED), added(1, 0, 9))
    assert folded.dropped == 1
    assert numbers(only(folded).segments) == [1]


def test_a_snapshot_record_is_dropped() -> None:
    snapshot = SegmentSnapshot(
        segment_id=SegmentId(UUID(int=1)),
        base_offset=Offset(0),
        last_offset=Offset(1),
        broker_id=BrokerId(1),
        max_timestamp=0,
        event_ms=0,
        leader_epochs=(EpochStart(LeaderEpoch(0), Offset(0)),),
        size_bytes=1,
        custom_metadata=None,
        state=FINISHED,
        txn_index_empty=False,
    )
    assert fold(snapshot) == FoldedTopics(partitions={}, dropped=1)


def test_segments_are_in_the_order_in_which_they_finished() -> None:
    folded = fold(added(1, 0, 9), added(2, 10, 19), updated(2, FINISHED), updated(1, FINISHED))
    assert numbers(only(folded).segments) == [2, 1]


def test_a_later_segment_with_all_the_records_supersedes_earlier_ones() -> None:
    folded = fold(
        added(1, 10, 19),
        updated(1, FINISHED),
        added(2, 20, 29),
        updated(2, FINISHED),
        added(3, 5, 29, (0, 5)),
        updated(3, FINISHED),
    )
    assert numbers(only(folded).segments) == [3]
    assert numbers(only(folded).superseded) == [1, 2]


def test_a_superseded_segment_does_not_come_back() -> None:
    folded = fold(
        added(1, 0, 9),
        updated(1, FINISHED),
        added(2, 0, 19, (0, 0)),
        updated(2, FINISHED),
        updated(2, DELETING),
        updated(2, DELETED),
    )
    assert not only(folded).segments
    assert numbers(only(folded).superseded) == [1]


def test_a_segment_that_overlaps_in_part_supersedes_nothing() -> None:
    folded = fold(
        added(1, 0, 9), updated(1, FINISHED), added(2, 5, 19, (0, 5)), updated(2, FINISHED)
    )
    assert numbers(only(folded).segments) == [1, 2]


def test_the_same_offsets_in_another_epoch_supersede_nothing() -> None:
    folded = fold(
        added(1, 0, 9, (0, 0)), updated(1, FINISHED), added(2, 0, 19, (1, 0)), updated(2, FINISHED)
    )
    assert numbers(only(folded).segments) == [1, 2]


def test_what_was_deleted_leaves_its_end_and_its_epoch_behind() -> None:
    ever: list[RemoteLogRecord] = [
        added(1, 0, 9, (7, 0)),
        updated(1, FINISHED),
        added(2, 10, 14, (2, 10)),
        added(3, 10, 19, (2, 10), (3, 12)),
        updated(3, FINISHED),
    ]
    gone = [updated(number, state) for number in (1, 2, 3) for state in (DELETING, DELETED)]
    # An upload that was given up reached furthest.
    ever += [added(4, 20, 24, (4, 20)), updated(4, DELETING), updated(4, DELETED)]
    for folded in (only(fold(*ever)), only(fold(*ever, *gone))):
        assert (folded.known_end, folded.finished_end, folded.highest_epoch) == (25, 20, 7)


def test_a_partition_without_segments_has_no_end_and_no_epoch() -> None:
    folded = only(fold(updated(1, FINISHED)))
    assert (folded.known_end, folded.finished_end, folded.highest_epoch) == (0, 0, -1)


def test_a_deleted_partition_tells_so_and_has_nothing_left() -> None:
    states = PartitionDeleteState
    folded = fold(
        added(1, 0, 9), updated(1, FINISHED), deleted(states.MARKED), deleted(states.STARTED)
    )
    assert only(folded).delete_state is states.STARTED
    assert numbers(only(folded).segments) == [1]
    folded = fold(
        added(1, 0, 9),
        updated(1, FINISHED),
        *(deleted(state) for state in states),
        deleted(states.FINISHED),
    )
    assert only(folded).delete_state is states.FINISHED
    assert not only(folded).segments
    assert folded.dropped == 0


def test_the_deletion_of_a_partition_does_not_skip_a_state() -> None:
    folded = fold(added(1, 0, 9), deleted(PartitionDeleteState.FINISHED))
    assert folded.dropped == 1
    assert only(folded).delete_state is None


def test_partitions_are_apart_and_in_order() -> None:
    other = PARTITION._replace(partition=PartitionIndex(3))
    folded = fold(replace(added(1, 0, 9), partition=other), added(1, 0, 9), updated(1, FINISHED))
    assert [key.partition for key in folded.partitions] == [0, 3]
    assert [len(p.segments) for p in folded.partitions.values()] == [1, 0]


def test_damage_names_the_record() -> None:
    with pytest.raises(RemoteLogRecordError, match="record 1: "):
        fold_records([encode_record(added(1, 0, 9)), b"\x01\x09"])
