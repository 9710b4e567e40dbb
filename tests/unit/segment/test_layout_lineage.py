import pytest
from tests.unit.segment.remote_log_records import added

from stratalog.control.segments.model import EpochStart
from stratalog.ids import LeaderEpoch, Offset
from stratalog.segment.epoch_lineage import is_within_lineage, lineage
from stratalog.segment.errors import LineageGapError
from stratalog.segment.remote_log_metadata import SegmentAdded


def starts(*entries: tuple[int, int]) -> list[EpochStart]:
    return [EpochStart(LeaderEpoch(epoch), Offset(start)) for epoch, start in entries]


ONE_EPOCH = starts((0, 0))
EPOCHS = starts((0, 0), (1, 10), (2, 20), (3, 20), (4, 30))
"""Nothing was written in epoch 2."""


def chain(*segments: SegmentAdded, epochs: list[EpochStart] | None = None) -> list[int]:
    return [s.segment_id.int for s in lineage(segments, epochs or ONE_EPOCH)]


@pytest.mark.parametrize(
    ("base", "last", "epochs"),
    [
        (0, 9, [(0, 0)]),
        (5, 9, [(0, 5)]),
        (0, 19, [(0, 0), (1, 10)]),
        (15, 25, [(1, 15), (3, 20)]),
        (15, 25, [(1, 15), (2, 20), (3, 20)]),
        (0, 40, [(0, 0), (1, 10), (3, 20), (4, 30)]),
        (35, 99, [(4, 35)]),
    ],
)
def test_segments_of_todays_records_are_in_the_lineage(
    base: int, last: int, epochs: list[tuple[int, int]]
) -> None:
    assert is_within_lineage(added(1, base, last, *epochs), EPOCHS)


@pytest.mark.parametrize(
    ("base", "last", "epochs"),
    [
        (0, 10, [(0, 0)]),
        (0, 19, [(0, 0), (1, 9)]),
        (0, 19, [(0, 0), (1, 11)]),
        (9, 15, [(1, 9)]),
        (5, 25, [(0, 5), (3, 20)]),
        (20, 29, [(2, 20)]),
        (30, 39, [(5, 30)]),
        (30, 39, [(4, 30), (5, 35)]),
        (15, 30, [(1, 15), (3, 20)]),
    ],
)
def test_segments_of_truncated_records_are_not_in_the_lineage(
    base: int, last: int, epochs: list[tuple[int, int]]
) -> None:
    assert not is_within_lineage(added(1, base, last, *epochs), EPOCHS)


def test_what_the_log_began_with_may_have_expired() -> None:
    # As in Kafka: segment 5-50 was deleted, and the checkpoint begins where it ended.
    overlapping = added(1, 14, 150, (5, 14), (7, 15), (9, 100))
    assert is_within_lineage(overlapping, starts((7, 51), (9, 100)))
    assert not is_within_lineage(added(1, 14, 50, (5, 14)), starts((7, 51), (9, 100)))


def test_a_segment_beyond_the_end_of_the_log_is_not_in_the_lineage() -> None:
    segment = added(1, 0, 9)
    assert is_within_lineage(segment, ONE_EPOCH, Offset(10))
    assert not is_within_lineage(segment, ONE_EPOCH, Offset(9))


def test_without_any_epoch_nothing_is_in_the_lineage() -> None:
    assert not is_within_lineage(added(1, 0, 9), [])
    assert lineage([added(1, 0, 9)], []) == []


def test_segments_are_chained_by_offset() -> None:
    assert chain(added(2, 10, 19), added(1, 0, 9), added(3, 20, 29)) == [1, 2, 3]


def test_a_chain_may_begin_anywhere() -> None:
    assert chain(added(2, 110, 119), added(1, 100, 109)) == [1, 2]


def test_no_segments_make_no_chain() -> None:
    assert chain() == []


def test_segments_that_others_hold_are_left_out() -> None:
    assert chain(added(1, 0, 9), added(2, 0, 19), added(3, 5, 15), added(4, 20, 29)) == [2, 4]


def test_of_equal_segments_the_one_that_finished_last_is_taken() -> None:
    assert chain(added(1, 0, 9), added(2, 0, 9)) == [2]


def test_a_segment_that_begins_inside_its_predecessor_follows_it() -> None:
    segments = [added(1, 0, 9), added(2, 8, 14), added(3, 15, 20)]
    assert chain(*segments) == [1, 2, 3]


def test_segments_outside_the_lineage_are_not_chained() -> None:
    lost = added(1, 5, 12, (0, 5))
    epochs = starts((0, 0), (1, 10))
    kept = [added(2, 0, 9, (0, 0)), added(3, 10, 19, (1, 10))]
    assert chain(lost, *kept, epochs=epochs) == [2, 3]


def test_gaps_are_named_with_their_offsets() -> None:
    segments = [added(1, 0, 9), added(2, 11, 19), added(3, 30, 39)]
    with pytest.raises(LineageGapError, match=r"t-0: .* has the offsets 10 to 10, 20 to 29$") as e:
        lineage(segments, ONE_EPOCH)
    assert e.value.gaps == ((10, 11), (20, 30))
