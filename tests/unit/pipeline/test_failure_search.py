from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

import pytest
from tests.unit.pipeline.rows import row
from tests.unit.pipeline.world import segment_plan

from stratalog.control.pipeline.model import ClaimToken
from stratalog.pipeline.jobs import Bin
from stratalog.pipeline.kinds.merge_model import MergeTask
from stratalog.pipeline.kinds.rewrite import RewriteTask
from stratalog.pipeline.kinds.split_model import SplitPlan, SplitTask
from stratalog.pipeline.plan.failure_search import MOST_REPEATS, set_apart
from stratalog.pipeline.plan.tasks import Task


def token(partition: int) -> ClaimToken:
    return ClaimToken(UUID(int=partition))


def merge(*partitions: int) -> MergeTask:
    return MergeTask(parts=[segment_plan([row(p, 0)], token(p)) for p in partitions])


def split(*partitions: int) -> SplitTask:
    return SplitTask(
        parts=[SplitPlan(token=token(p), topic_name="orders", rows=[row(p, 0)]) for p in partitions]
    )


def partitions(task: Task) -> list[int]:
    return [part.rows[0].partition for part in task.parts]


def parted(
    tasks: Sequence[Task], failed: Mapping[int, int]
) -> tuple[list[list[int]], list[list[int]]]:
    """The partitions that run together as always, and the ones that run alone."""
    attempts = {token(partition): count for partition, count in failed.items()}
    others, alone = set_apart(tasks, lambda each: attempts.get(each, 0))
    return [partitions(task) for task in others], [_only(work) for work in alone]


def _only(work: Bin) -> list[int]:
    [task] = work.tasks
    return partitions(task)


@pytest.mark.parametrize("make", [merge, split])
def test_what_never_failed_is_done_as_it_was_planned(make: Callable[..., Task]) -> None:
    assert parted([make(0, 1), make(2)], {}) == ([[0, 1], [2]], [])


@pytest.mark.parametrize("make", [merge, split])
def test_what_failed_before_is_done_in_smaller_jobs_the_more_often_it_did(
    make: Callable[..., Task],
) -> None:
    failed = dict.fromkeys(range(8), 1) | {8: 2, 9: 2, 10: 2, 11: 2}
    others, alone = parted([make(*range(6)), make(*range(6, 14))], failed)
    assert others == [[12, 13]]
    assert alone == [[0, 1, 2], [3, 4, 5], [6], [7], [8], [9], [10], [11]]


def test_a_task_that_is_set_apart_keeps_its_kind() -> None:
    given = RewriteTask(parts=split(0, 1).parts)
    others, [work] = set_apart([given], lambda each: int(each == token(1)))
    assert [task.kind for task in (*others, *work.tasks)] == ["rewrite", "rewrite"]


def test_jobs_for_suspects_are_not_more_than_may_be_repeated() -> None:
    tasks: list[Task] = [merge(number) for number in range(MOST_REPEATS + 1)]
    once = dict.fromkeys(range(MOST_REPEATS), 1)
    assert parted(tasks, once) == ([[MOST_REPEATS]], [[p] for p in range(MOST_REPEATS)])
    others, alone = parted(tasks, once | {MOST_REPEATS: 2})
    assert (len(others), alone) == (MOST_REPEATS, [[MOST_REPEATS]])


def test_jobs_for_suspects_are_named_for_what_they_do() -> None:
    _, alone = set_apart([merge(0), split(1)], lambda _: 1)
    assert [work.name for work in alone] == ["merge 1 of 2, alone", "split 2 of 2, alone"]
