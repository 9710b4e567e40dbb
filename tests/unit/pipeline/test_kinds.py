from collections import Counter

import pytest
from tests.unit.pipeline.rows import row
from tests.unit.pipeline.world import World, segment_plan, split_plan

from stratalog.pipeline.hosting.task_rows import pack, unpack
from stratalog.pipeline.kinds.merge_model import MergeTask
from stratalog.pipeline.kinds.registry import KINDS, kind_named, run_by_kind
from stratalog.pipeline.kinds.rewrite import RewriteTask
from stratalog.pipeline.kinds.split_model import SplitTask
from stratalog.pipeline.plan.cost import cost_of
from stratalog.pipeline.plan.tasks import EmptyTask, Task, TaskDone

TASKS: list[Task] = [
    MergeTask(parts=[segment_plan([row(0, 0)])]),
    SplitTask(parts=[split_plan([row(0, 0)])]),
    RewriteTask(parts=[split_plan([row(0, 0)])]),
]


def test_every_kind_is_found_by_its_name() -> None:
    assert [kind_named(kind.name) for kind in KINDS] == [*KINDS]


def test_every_kind_has_tasks_that_name_it() -> None:
    assert {task.kind for task in TASKS} == {kind.name for kind in KINDS}


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.kind)
def test_a_task_names_its_kind_on_an_executor_and_in_smaller_tasks(task: Task) -> None:
    received: Task = unpack(pack(task))
    assert received == task
    assert received.kind == task.kind
    assert task.with_parts([]).kind == task.kind


@pytest.mark.parametrize("task", [EmptyTask(), *(task.with_parts([]) for task in TASKS)])
async def test_a_task_without_parts_writes_nothing(task: Task) -> None:
    world = World()
    assert await run_by_kind(task, world.place()) == TaskDone()
    assert [info async for info in world.store.list("")] == []


def test_no_two_kinds_have_a_figure_of_the_same_name() -> None:
    cost = cost_of(TASKS)
    names = Counter(name for kind in cost.kinds for name in kind.figures)
    assert set(names.values()) == {1}
    assert cost.to_json().keys() >= names.keys()


def test_the_line_of_every_kind_begins_with_its_name() -> None:
    for kind, cost in zip(KINDS, cost_of(TASKS).kinds, strict=True):
        assert cost.line.startswith(f"{kind.name:8}")
