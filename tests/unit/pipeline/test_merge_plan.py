from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.pipeline.rows import FACTS, TOPICS, claimed, row

from stratalog.control.log.model import Coordinates
from stratalog.ids import Offset
from stratalog.pipeline.errors import HoleError
from stratalog.pipeline.kinds.merge_plan import plan_merges, plan_segments
from stratalog.pipeline.plan.claimed_rows import ClaimedRows, check_rows
from stratalog.settings import DAY_MS, TieringSettings

SETTINGS = TieringSettings(min_segment_bytes=2000, max_segment_bytes=3000, task_bytes=5000)


def run(count: int, partition: int = 0, **rest: int) -> list[Coordinates]:
    return [row(partition, n, **rest) for n in range(count)]


def sizes(one: ClaimedRows, now_ms: int = 0) -> list[int]:
    return [plan.size_bytes for plan in plan_segments(one, FACTS, SETTINGS, now_ms)]


def test_rows_that_fill_the_claim_are_sound() -> None:
    check_rows(claimed(run(3)))


def test_a_hole_is_noticed() -> None:
    rows = run(4)
    with pytest.raises(HoleError, match="after offset 1 comes a row at 3"):
        check_rows(claimed([*rows[:2], rows[3]]))


def test_a_missing_end_is_noticed_unless_the_rows_were_cut_there() -> None:
    cut = claimed(run(3), end=5)
    check_rows(cut)
    with pytest.raises(HoleError, match="end at offset 2, not 4"):
        check_rows(replace(cut, end_offset=Offset(5)))


def test_a_missing_beginning_is_noticed() -> None:
    with pytest.raises(HoleError, match="after offset -1 comes a row at 1"):
        check_rows(replace(claimed(run(3)), rows=run(3)[1:]))


def test_segments_are_cut_at_the_borders_of_rows() -> None:
    assert sizes(claimed(run(6))) == [3000, 3000]
    assert sizes(claimed(run(6, size=1001))) == [2002, 2002, 2002]


def test_a_row_that_is_larger_than_a_segment_makes_one_alone() -> None:
    assert sizes(claimed([row(0, 0, size=9000), *run(3)[1:]])) == [9000, 2000]


def test_a_small_rest_waits_until_it_is_old() -> None:
    rest = claimed(run(4))
    assert sizes(rest) == [3000]
    assert sizes(rest, now_ms=DAY_MS - 1) == [3000]
    assert sizes(rest, now_ms=DAY_MS) == [3000, 1000]


def test_a_small_rest_is_as_old_as_the_oldest_that_was_joined_to_it() -> None:
    rest = claimed([*run(3), row(0, 3, committed_ms=7)._replace(oldest_ms=5)])
    assert sizes(rest, now_ms=DAY_MS + 4) == [3000]
    assert sizes(rest, now_ms=DAY_MS + 5) == [3000, 1000]


@pytest.mark.parametrize(("triggered_ms", "made"), [(6, [3000]), (7, [3000, 1000])])
def test_a_small_rest_that_was_there_at_a_trigger_does_not_wait(
    triggered_ms: int, made: list[int]
) -> None:
    rest = claimed([*run(3), row(0, 3, committed_ms=7)])
    facts = FACTS._replace(segment_bytes=3000, triggered_ms=triggered_ms)
    assert [each.size_bytes for each in plan_segments(rest, facts, SETTINGS, 10)] == made


def test_a_rest_that_is_large_enough_does_not_wait() -> None:
    assert sizes(claimed(run(5))) == [3000, 2000]


def test_what_a_run_may_take_is_taken_if_there_is_more() -> None:
    assert sizes(claimed(run(1), end=100)) == [1000]
    assert sizes(claimed(run(4), end=100)) == [3000]


def test_offsets_in_a_segment_fit_into_its_indexes() -> None:
    first = row(0, 0)
    near = row(0, 1)._replace(last_offset=Offset(2**31 - 1))
    far = near._replace(last_offset=Offset(2**31))
    assert len(plan_segments(claimed([first, near]), FACTS, SETTINGS, DAY_MS)) == 1
    assert len(plan_segments(claimed([first, far]), FACTS, SETTINGS, DAY_MS)) == 2


def test_a_task_holds_neighbouring_partitions_up_to_its_size() -> None:
    tasks = plan_merges([claimed(run(2, n)) for n in (3, 0, 2, 1)], TOPICS, SETTINGS, 0)
    partitions = [[segment.partition for segment in task.parts] for task in tasks]
    assert partitions == [[0, 1], [2, 3]]


@given(
    st.lists(st.lists(st.integers(1, 4000), min_size=1, max_size=20), min_size=1, max_size=8),
    st.sampled_from([0, DAY_MS]),
)
def test_every_row_is_planned_once_in_order_or_waits_at_the_end(
    partitions: list[list[int]], now_ms: int
) -> None:
    units = [
        claimed([row(p, n, size=size) for n, size in enumerate(rows)])
        for p, rows in enumerate(partitions)
    ]
    tasks = plan_merges(units, TOPICS, SETTINGS, now_ms)
    planned = Counter(
        (planned.partition, planned.base_offset)
        for task in tasks
        for segment in task.parts
        for planned in segment.rows
    )
    assert set(planned.values()) <= {1}
    for unit in units:
        rows = [
            planned
            for task in tasks
            for segment in task.parts
            if segment.token == unit.claim.token
            for planned in segment.rows
        ]
        assert rows == unit.rows[: len(rows)]
        left = sum(each.byte_size for each in unit.rows[len(rows) :])
        assert left < SETTINGS.min_segment_bytes
        assert now_ms == 0 or not left
