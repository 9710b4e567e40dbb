"""A backlog of partitions whose records lie in crumbs all over the store, with the real planner."""

from collections import defaultdict
from collections.abc import Sequence

import pytest
from tests.unit.pipeline.rows import TOPICS, aged, claimed, joined, row

from stratalog.control.log.model import Coordinates
from stratalog.control.pipeline.model import UnitKind
from stratalog.pipeline.kinds.merge_plan import plan_merges
from stratalog.pipeline.kinds.registry import AGED_KINDS
from stratalog.pipeline.kinds.split_model import SplitTask
from stratalog.pipeline.kinds.split_plan import plan_splits
from stratalog.pipeline.plan.cost import cost_of
from stratalog.pipeline.plan.selection import select
from stratalog.pipeline.plan.tasks import Task
from stratalog.settings import MIB, TieringSettings

BLOCKS = 4096
SETTINGS = TieringSettings(
    min_segment_bytes=4 * MIB, split_file_bytes=2 * MIB, task_bytes=4 * MIB, max_rows=64
)
MOST_RUNS = 40


class Backlog:
    """Partitions that each have a crumb of 1 KiB in every block."""

    def __init__(self, partitions: int) -> None:
        self.rows: dict[int, Sequence[Coordinates]] = {
            index: [
                row(index, n, size=1024, block=n, byte_offset=index * 1024) for n in range(BLOCKS)
            ]
            for index in range(partitions)
        }
        self.objects = BLOCKS
        self.requests = 0
        self.copied_bytes = 0

    def run(self) -> None:
        facts = [
            aged(
                index,
                rows=len(rows),
                size=sum(each.byte_size for each in rows),
                objects=len({each.object_id for each in rows}),
            )
            for index, rows in self.rows.items()
        ]
        selection = select(facts, TOPICS, SETTINGS, 0, AGED_KINDS)
        merges = [claimed(self.rows[one.partition]) for one in selection.by_kind["merge"]]
        splits = [
            claimed(self.rows[one.partition], kind=UnitKind.SPLIT)
            for one in selection.by_kind["split"]
        ]
        tasks: list[Task] = [
            *plan_merges(merges, TOPICS, SETTINGS, 0),
            *plan_splits(splits, TOPICS, SETTINGS),
        ]
        cost = cost_of(tasks)
        self.requests += cost.read_requests
        self.copied_bytes += cost.bytes
        for task in tasks:
            self._apply(task)

    def _apply(self, task: Task) -> None:
        old: dict[int, set[int]] = defaultdict(set)
        new: dict[int, list[Coordinates]] = defaultdict(list)
        self.objects += 1
        for part in task.parts:
            index = int(part.rows[0].partition)
            old[index] |= {each.base_offset for each in part.rows}
            if isinstance(task, SplitTask):
                new[index] += joined(part.rows, self.objects)
        for changed, offsets in old.items():
            left = [each for each in self.rows[changed] if each.base_offset not in offsets]
            self.rows[changed] = sorted([*left, *new[changed]], key=lambda each: each.base_offset)
            if not self.rows[changed]:
                del self.rows[changed]


@pytest.mark.parametrize("partitions", [1, 16])
def test_crumbs_are_brought_together_and_then_merged(partitions: int) -> None:
    backlog = Backlog(partitions)
    runs = 0
    while backlog.rows:
        backlog.run()
        runs += 1
        assert runs <= MOST_RUNS, "it comes to an end"
    assert backlog.requests <= 2 * BLOCKS, "merged from where they are: one for each crumb"
    assert backlog.copied_bytes <= 4 * partitions * BLOCKS * 1024
