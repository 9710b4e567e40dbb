from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.pipeline.rows import TOPICS, claimed, joined, row

from stratalog.control.log.commit_plan import MAX_ROW_BYTES
from stratalog.control.log.model import Coordinates
from stratalog.control.pipeline.model import UnitKind
from stratalog.pipeline.kinds.rewrite import plan_rewrites
from stratalog.pipeline.kinds.split_model import SplitTask
from stratalog.pipeline.kinds.split_plan import (
    is_worth_joining,
    outgrown_files,
    plan_splits,
    rows_needed,
)
from stratalog.pipeline.plan.claimed_rows import ClaimedRows
from stratalog.pipeline.plan.tasks import Task
from stratalog.settings import TieringSettings

SETTINGS = TieringSettings(split_file_bytes=8000, max_rows=8)


def units(*partitions: Sequence[Coordinates]) -> list[ClaimedRows]:
    return [claimed(rows, kind=UnitKind.SPLIT) for rows in partitions]


def thin(partition: int, blocks: int, size: int = 100) -> list[Coordinates]:
    """A row in each of so many blocks, committed in their order."""
    return [
        row(partition, n, size=size, block=n + 1, committed_ms=n, byte_offset=partition * size)
        for n in range(blocks)
    ]


def planned(task: Task) -> list[list[int]]:
    """The objects that each part comes from."""
    return [[each.object_id.int for each in part.rows] for part in task.parts]


def plan(*partitions: Sequence[Coordinates], **changes: int) -> list[SplitTask]:
    return plan_splits(units(*partitions), TOPICS, replace(SETTINGS, **changes))  # type: ignore[arg-type]


def test_rows_of_the_same_blocks_move_into_one_file() -> None:
    [task] = plan(thin(0, 5), thin(1, 5))
    assert planned(task) == [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5]]


def test_what_has_too_little_behind_it_stays() -> None:
    assert plan(thin(0, 4), thin(1, 4)) == []


def test_blocks_are_taken_whole_so_that_nothing_keeps_them() -> None:
    [task] = plan(thin(0, 9), thin(1, 1))
    assert planned(task) == [[1, 2, 3, 4, 5, 6, 7, 8, 9], [1]]


def test_one_block_alone_has_nothing_to_come_together_with() -> None:
    assert plan(thin(0, 1), thin(1, 1)) == []


def test_files_have_their_size() -> None:
    tasks = plan(thin(0, 20, size=800))
    assert planned(tasks[0]) == [[*range(1, 11)]]
    assert planned(tasks[1]) == [[*range(11, 21)]]


def test_a_run_takes_no_more_objects_than_it_may() -> None:
    [task] = plan(thin(0, 20), splitter_max_files_per_run=5)
    assert planned(task) == [[1, 2, 3, 4, 5]]


@pytest.mark.parametrize(("first", "taken"), [(200, [*range(1, 10)]), (201, [*range(2, 10)])])
def test_a_small_file_waits_until_enough_has_come_after_it(first: int, taken: list[int]) -> None:
    rows = thin(0, 9)
    rows[0] = rows[0]._replace(byte_size=first)
    [task] = plan(rows)
    assert planned(task) == [taken]


@pytest.mark.parametrize(("first", "taken"), [(2200, [*range(1, 10)]), (2201, [*range(2, 10)])])
def test_a_row_in_a_large_file_waits_until_enough_has_come_after_it(
    first: int, taken: list[int]
) -> None:
    rows = thin(0, 9, size=1100)
    rows[0] = rows[0]._replace(byte_size=first)
    tasks = plan(rows, split_file_bytes=8 * 1099, max_rows=8)
    assert [n for task in tasks for part in planned(task) for n in part] == taken


def test_rows_that_are_full_are_not_copied_again() -> None:
    rows = [row(0, n, size=MAX_ROW_BYTES, block=n + 1, committed_ms=n) for n in range(3)]
    rows += [row(0, n, size=1100, block=n + 1, committed_ms=n) for n in range(3, 12)]
    [task] = plan(rows, split_file_bytes=8 * 1099 * 2, max_rows=8)
    assert planned(task) == [[*range(4, 13)]]


def test_rows_in_large_files_stay_until_a_partition_has_many() -> None:
    large = [thin(p, 5, size=600) for p in range(2)]  # 1200 of 8000 bytes each.
    assert plan(*large, max_rows=10) == []
    tasks = plan(*large, max_rows=9)
    assert [planned(task) for task in tasks] == [[[1, 2, 3, 4, 5], [1, 2, 3, 4, 5]]]


def test_large_files_are_cut_by_ranges_of_partitions() -> None:
    tasks = plan(*[thin(p, 5, size=600) for p in range(4)])
    assert [[part.rows[0].partition for part in task.parts] for task in tasks] == [[0, 1], [2, 3]]
    assert all(objects == [1, 2, 3, 4, 5] for task in tasks for objects in planned(task))


def test_partitions_with_some_rows_in_large_files_come_along() -> None:
    one, other, third = thin(0, 17, size=1100), thin(1, 5, size=200), thin(2, 4, size=200)
    tasks = plan(one, other, third, max_rows=33, split_file_bytes=8 * 1099)
    moved = [part.rows[0].partition for task in tasks for part in task.parts]
    assert sorted(set(moved)) == [0, 1]


def test_rows_that_cannot_become_fewer_are_left_alone() -> None:
    rows = [row(0, n, size=1100, block=n + 1, committed_ms=n, epoch=n) for n in range(9)]
    assert rows_needed(rows) == 9
    assert plan(rows) == []


def test_a_row_holds_no_more_than_it_may() -> None:
    half = MAX_ROW_BYTES // 2
    assert rows_needed([row(0, n, size=half) for n in range(4)]) == 2
    assert rows_needed([row(0, n, size=half + 1) for n in range(4)]) == 4


def test_only_rows_that_follow_each_other_move_together() -> None:
    rows = thin(0, 6)
    [task] = plan([*rows[:2], *rows[3:]])
    assert planned(task) == [[4, 5, 6]]


def test_a_rewrite_takes_single_rows_too() -> None:
    [task] = plan_rewrites(units(thin(0, 1), thin(1, 2)), TOPICS, SETTINGS)
    assert planned(task) == [[1], [1, 2]]


@pytest.mark.parametrize(
    ("files", "max_rows", "worth"), [(5, 9, True), (5, 10, False), (2, 3, True), (1, 1, False)]
)
def test_files_are_joined_if_a_partition_has_many_rows_in_them(
    files: int, max_rows: int, worth: bool
) -> None:
    pieces = [[row(0, number, block=number)] for number in range(files)]
    assert is_worth_joining(pieces, max_rows) is worth
    full = [[row(0, number, block=number, size=MAX_ROW_BYTES)] for number in range(files)]
    assert is_worth_joining(full, 2 * files) is False, "its rows would be as many"


def test_files_are_joined_if_they_are_many_and_would_go() -> None:
    of_others = [[row(number, 0, block=number)] for number in range(5)]
    assert is_worth_joining(of_others, 9)
    assert not is_worth_joining(of_others, 10)
    with_holes = [[row(0, 2 * number, block=number)] for number in range(5)]
    assert not is_worth_joining(with_holes, 1), "all but one would stay"


def test_files_behind_which_too_little_has_come_are_not_outgrown() -> None:
    sizes = [4000, 100, 100, 100, 100, 100]
    rows = [row(0, at, block=at, size=size, committed_ms=at) for at, size in enumerate(sizes)]
    assert outgrown_files(reversed(rows)) == [[each] for each in rows[1:]]
    assert outgrown_files(rows[:2]) == []


def test_rows_in_large_and_small_objects_that_take_turns_come_together_too() -> None:
    sizes = [1, 1001] * SETTINGS.max_rows
    rows = [row(0, at, block=at, size=size, committed_ms=at) for at, size in enumerate(sizes)]
    tasks = plan(rows)
    assert sum(len(part.rows) for task in tasks for part in task.parts) > SETTINGS.max_rows


@st.composite
def scattered(draw: st.DrawFn) -> list[list[Coordinates]]:
    """Partitions with rows in blocks that they share, each in a random part of them."""
    blocks = draw(st.integers(1, 30))
    partitions = []
    for partition in range(draw(st.integers(1, 5))):
        used = sorted(draw(st.sets(st.integers(1, blocks), min_size=1)))
        partitions.append(
            [
                row(partition, n, size=draw(st.integers(1, 3000)), block=b, committed_ms=b)
                for n, b in enumerate(used)
            ]
        )
    return partitions


@given(scattered())
def test_no_row_is_planned_twice_and_every_part_is_whole(
    partitions: list[list[Coordinates]],
) -> None:
    tasks = plan(*partitions)
    rows = [each for task in tasks for part in task.parts for each in part.rows]
    assert all(n == 1 for n in Counter((r.partition, r.base_offset) for r in rows).values())
    for task in tasks:
        assert len({part.token for part in task.parts}) == len(task.parts)
        for part in task.parts:
            offsets = [each.base_offset for each in part.rows]
            assert offsets == [*range(offsets[0], offsets[0] + len(offsets))]


@given(scattered())
def test_passes_come_to_an_end_with_few_rows(partitions: list[list[Coordinates]]) -> None:
    world = {n: list(rows) for n, rows in enumerate(partitions)}
    for number in range(1000, 1050):
        tasks = plan(*world.values())
        if not tasks:
            break
        for at, task in enumerate(tasks):
            for part in task.parts:
                apply(world[part.rows[0].partition], part.rows, number * 100 + at)
    else:
        pytest.fail("it never ends")
    assert all(len(rows) <= 2 * SETTINGS.max_rows for rows in world.values())


def apply(rows: list[Coordinates], moved: Sequence[Coordinates], block: int) -> None:
    """Put the rows that move together into rows of a new object."""
    at = next(n for n, each in enumerate(rows) if each.base_offset == moved[0].base_offset)
    rows[at : at + len(moved)] = joined(moved, block)
