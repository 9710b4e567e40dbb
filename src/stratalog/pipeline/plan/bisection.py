"""How it is found out what broke a job. Pure.

A job that fails as a whole says nothing about its tasks. It is repeated in halves, those that fail
again in halves of their own, down to one segment, or one partition of a split file. What fails
alone while Spark works has itself to blame, and everything else is done. Whether Spark works is
asked with a job in which there is nothing to do: where that fails, nobody is to blame.

What ends the driver itself cannot be searched for in the same run: all that was at work then counts
as failed. The next run does those after all others, in jobs that run one at a time, and in smaller
ones the more often they have failed. So what it was once more is known to be in the last of them.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from stratalog.control.pipeline.model import ClaimToken, UnitKind
from stratalog.pipeline.hosting.job_errors import JobCancelledError
from stratalog.pipeline.jobs import Bin, BinFailed
from stratalog.pipeline.plan.tasks import MergeTask, SegmentPlan, SplitPlan, Task

MOST_REPEATS = 64
"""Jobs of a run that are repeats. What is still in doubt after them is left to the next run: where
every piece breaks its job, the search would be longer than the work."""
_AGAIN = ", again"
_MOST_CUTS = 6
"""Into as many pieces as there may be jobs of this kind."""


def probe() -> Bin:
    """Needs a worker with Stratalog, and an object store whose address is understood."""
    return Bin(name="check of Spark", tasks=[MergeTask(segments=())])


def is_alone(failed: BinFailed) -> bool:
    """Whether there is nothing beside it in its job that could be to blame."""
    was_cancelled = isinstance(failed.error, JobCancelledError)
    return not was_cancelled and len(failed.work.tasks) == 1 and _size(failed.work.tasks[0]) == 1


def halves(failed: BinFailed) -> list[Bin]:
    """The same work as two jobs. None if it is a single piece, or was ended on purpose."""
    tasks = failed.work.tasks
    if isinstance(failed.error, JobCancelledError) or is_alone(failed):
        return []
    if len(tasks) > 1:
        parts: Sequence[Sequence[Task]] = [tasks[: len(tasks) // 2], tasks[len(tasks) // 2 :]]
    else:
        parts = [[half] for half in _cut(tasks[0])]
    name = failed.work.name.removesuffix(_AGAIN) + _AGAIN
    return [Bin(name=name, tasks=part) for part in parts]


def set_apart(
    tasks: Sequence[Task], attempts: Callable[[ClaimToken], int]
) -> tuple[list[Task], list[Bin]]:
    """The tasks without those that failed before, and jobs for these, the least suspect first.

    Not more than `MOST_REPEATS` jobs, which go to the most suspect. Where very many have failed,
    something else than they is wrong.
    """
    by_attempts: dict[int, list[Task]] = defaultdict(list)
    for task in tasks:
        for count, part in _by_attempts(task, attempts).items():
            by_attempts[count].append(part)
    others = by_attempts.pop(0, [])
    alone: list[Task] = []
    for count in sorted(by_attempts, reverse=True):
        pieces = [piece for task in by_attempts[count] for piece in _pieces(task, count)]
        if len(alone) + len(pieces) > MOST_REPEATS:
            others += by_attempts[count]
        else:
            alone = pieces + alone
    total = len(alone)
    return others, [
        Bin(name=f"{_kind(task).value} {number} of {total}, alone", tasks=[task])
        for number, task in enumerate(alone, 1)
    ]


def _by_attempts(task: Task, attempts: Callable[[ClaimToken], int]) -> Mapping[int, Task]:
    """The parts of a task, each with the units that have failed so many times."""
    if isinstance(task, MergeTask):
        segments: dict[int, list[SegmentPlan]] = defaultdict(list)
        for segment in task.segments:
            segments[attempts(segment.token)].append(segment)
        return {count: MergeTask(segments=found) for count, found in segments.items()}
    parts: dict[int, list[SplitPlan]] = defaultdict(list)
    for part in task.parts:
        parts[attempts(part.token)].append(part)
    return {count: replace(task, parts=found) for count, found in parts.items()}


def _pieces(task: Task, cuts: int) -> list[Task]:
    pieces = [task]
    for _ in range(min(cuts, _MOST_CUTS)):
        pieces = [half for each in pieces for half in (_cut(each) if _size(each) > 1 else [each])]
    return pieces


def _cut(task: Task) -> list[Task]:
    half = _size(task) // 2
    if isinstance(task, MergeTask):
        return [MergeTask(segments=each) for each in (task.segments[:half], task.segments[half:])]
    return [replace(task, parts=each) for each in (task.parts[:half], task.parts[half:])]


def _size(task: Task) -> int:
    return len(task.segments) if isinstance(task, MergeTask) else len(task.parts)


def _kind(task: Task) -> UnitKind:
    return UnitKind.MERGE if isinstance(task, MergeTask) else UnitKind.SPLIT
