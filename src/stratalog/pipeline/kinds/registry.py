"""The kinds of jobs, found by name. A new kind is added to one of the two lists here."""

from collections.abc import Collection, Sequence
from typing import Any

from stratalog.control.pipeline.model import UnitKind
from stratalog.pipeline.kinds.kind import AgedKind, Kind, SearchKind
from stratalog.pipeline.kinds.merge import MergeKind
from stratalog.pipeline.kinds.rewrite import RewriteKind
from stratalog.pipeline.kinds.split import SplitKind
from stratalog.pipeline.plan.tasks import Task, TaskDone
from stratalog.pipeline.workplace import OpenWorkplace

AGED_KINDS: Sequence[AgedKind[Any]] = (MergeKind(), SplitKind())
"""In the order in which they are offered a partition, and in which their jobs start."""
SEARCH_KINDS: Sequence[SearchKind[Any]] = (RewriteKind(),)
"""In the order in which they search, after the aged kinds are done."""
KINDS: Sequence[Kind[Any]] = (*AGED_KINDS, *SEARCH_KINDS)

_BY_NAME = {kind.name: kind for kind in KINDS}


def kind_named(name: str) -> Kind[Any]:
    return _BY_NAME[name]


def search_kinds(asked: Collection[UnitKind]) -> list[SearchKind[Any]]:
    return [kind for kind in SEARCH_KINDS if kind.unit_kind in asked]


async def run_by_kind(task: Task, place: OpenWorkplace) -> TaskDone:
    """Run a task on an executor. One that has lost all its parts has nothing to do."""
    if not task.parts:
        return TaskDone()
    return await kind_named(task.kind).run(task, place)
