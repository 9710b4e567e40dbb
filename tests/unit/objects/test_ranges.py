import pytest

from stratalog.objects.errors import ShortReadError
from stratalog.objects.ranges import MAX_REQUEST_BYTES, cut_answers, plan_reads, plan_scatter
from stratalog.objects.store import Range


def test_neighbours_join_up_to_the_gap() -> None:
    assert plan_reads([Range(0, 10), Range(15, 20)], gap_bytes=5).requests == [Range(0, 20)]
    assert plan_reads([Range(0, 10), Range(16, 20)], gap_bytes=5).requests == [
        Range(0, 10),
        Range(16, 20),
    ]


def test_overlapping_and_unordered_ranges_are_read_once() -> None:
    plan = plan_reads([Range(50, 60), Range(5, 20), Range(0, 10), Range(6, 8)], gap_bytes=0)
    assert plan.requests == [Range(0, 20), Range(50, 60)]
    assert plan.places == [1, 0, 0, 0]


def test_joining_stops_at_the_largest_request() -> None:
    half = MAX_REQUEST_BYTES // 2
    whole = [Range(0, half), Range(half, 2 * half)]
    assert plan_reads(whole, gap_bytes=0).requests == [Range(0, MAX_REQUEST_BYTES)]
    over = [Range(0, half), Range(half, 2 * half + 1)]
    assert plan_reads(over, gap_bytes=0).requests == over


def test_a_range_inside_a_larger_request_needs_no_other() -> None:
    large = Range(0, 2 * MAX_REQUEST_BYTES)
    plan = plan_reads([large, Range(MAX_REQUEST_BYTES + 1, MAX_REQUEST_BYTES + 2)], gap_bytes=0)
    assert plan.requests == [large]


def test_no_ranges_need_no_request() -> None:
    assert plan_reads([], gap_bytes=5).requests == []


def test_answers_are_cut_without_a_copy() -> None:
    ranges = [Range(12, 14), Range(10, 11)]
    answer = bytearray(b"0123")
    cut = cut_answers("k", ranges, plan_reads(ranges, gap_bytes=5), [answer])
    assert [bytes(each) for each in cut] == [b"23", b"0"]
    answer[0] = ord("x")
    assert bytes(cut[1]) == b"x"


@pytest.mark.parametrize("answer", [b"012", b"01234", b""])
def test_an_answer_of_another_length_is_damage(answer: bytes) -> None:
    ranges = [Range(10, 14)]
    with pytest.raises(ShortReadError, match=r"\[10, 14\) of object 'k'.*instead of 4"):
        cut_answers("k", ranges, plan_reads(ranges, gap_bytes=0), [answer])


def scattered(*ranges: Range, gap_bytes: int) -> list[tuple[Range, list[int]]]:
    """The requests, and the sizes of the memory that each fills."""
    into = [memoryview(bytearray(each.end - each.start)) for each in ranges]
    plan = plan_scatter(ranges, into, gap_bytes)
    return [(scatter.request, [*map(len, scatter.views)]) for scatter in plan]


def test_one_request_fills_the_memory_of_neighbours_and_skips_small_gaps() -> None:
    assert scattered(Range(15, 20), Range(0, 10), Range(20, 21), gap_bytes=5) == [
        (Range(0, 21), [10, 5, 5, 1])
    ]
    assert scattered(Range(0, 10), Range(16, 20), gap_bytes=5) == [
        (Range(0, 10), [10]),
        (Range(16, 20), [4]),
    ]


def test_what_overlaps_is_read_for_each_place() -> None:
    assert scattered(Range(0, 10), Range(9, 12), Range(12, 13), gap_bytes=5) == [
        (Range(0, 10), [10]),
        (Range(9, 13), [3, 1]),
    ]


def test_a_request_that_fills_memory_is_not_larger_than_any_other() -> None:
    half = MAX_REQUEST_BYTES // 2
    whole = scattered(Range(0, half), Range(half, 2 * half), gap_bytes=0)
    assert [request for request, _ in whole] == [Range(0, MAX_REQUEST_BYTES)]
    over = scattered(Range(0, half), Range(half, 2 * half + 1), gap_bytes=0)
    assert len(over) == 2
