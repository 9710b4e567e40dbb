"""The search for the partition that broke a job. Pure.

A job that fails as a whole says nothing about its tasks. It is repeated in halves, the halves that
fail again in halves of their own, down to one part of a task. A part that fails alone while Spark
works is the cause, and everything else is done. An empty job finds out whether Spark works: if that
fails, no partition is to blame.

A partition that kills the driver itself cannot be searched for in the same run: all partitions that
were at work then count as failed. The next run does them after all others, in jobs that run one at
a time, and in smaller jobs the more often they have failed. So if the driver dies once more, the
cause is known to be in the last job.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from stratalog.control.pipeline.model import ClaimToken
from stratalog.pipeline.errors import JobCancelledError
from stratalog.pipeline.jobs import Bin, BinFailed
from stratalog.pipeline.plan.tasks import EmptyTask, Task, TaskPart

MOST_REPEATS = 64
"""Jobs of a run that are repeats. Parts that are still in doubt after them are left to the next
run: if every part breaks its job, the search would take longer than the work."""
_AGAIN = ", again"
_MOST_CUTS = 6
"""So many cuts in halves make as many tasks as there may be repeats."""


def probe() -> Bin:
    """Make a job without work. It needs a worker with Stratalog, and a valid store address."""
    return Bin(name="check of Spark", tasks=[EmptyTask()])


def is_alone(failed: BinFailed) -> bool:
    """Tell whether the job had a single part, which must then be the cause."""
    was_cancelled = isinstance(failed.error, JobCancelledError)
    tasks = failed.work.tasks
    return not was_cancelled and len(tasks) == 1 and len(tasks[0].parts) == 1


def halves(failed: BinFailed) -> list[Bin]:
    """Return the same work as two jobs, or none if it was a single part or was cancelled."""
    tasks = failed.work.tasks
    if isinstance(failed.error, JobCancelledError) or is_alone(failed):
        return []
    if len(tasks) > 1:
        halved: Sequence[Sequence[Task]] = [tasks[: len(tasks) // 2], tasks[len(tasks) // 2 :]]
    else:
        halved = [[half] for half in _cut(tasks[0])]
    name = failed.work.name.removesuffix(_AGAIN) + _AGAIN
    return [Bin(name=name, tasks=half) for half in halved]


def set_apart(
    tasks: Sequence[Task], attempts: Callable[[ClaimToken], int]
) -> tuple[list[Task], list[Bin]]:
    """Take the parts that failed before out of the tasks; return the rest, and jobs for the parts.

    The jobs with the fewest failures come first. There are not more than `MOST_REPEATS` of them,
    which go to the parts that failed most often. If very many have failed, the reason is not in
    the parts.
    """
    by_attempts: dict[int, list[Task]] = defaultdict(list)
    for task in tasks:
        for count, smaller in _by_attempts(task, attempts).items():
            by_attempts[count].append(smaller)
    others = by_attempts.pop(0, [])
    alone: list[Task] = []
    for count in sorted(by_attempts, reverse=True):
        cut = [smaller for task in by_attempts[count] for smaller in _cut_often(task, count)]
        if len(alone) + len(cut) > MOST_REPEATS:
            others += by_attempts[count]
        else:
            alone = cut + alone
    total = len(alone)
    return others, [
        Bin(name=f"{task.kind} {number} of {total}, alone", tasks=[task])
        for number, task in enumerate(alone, 1)
    ]


def _by_attempts(task: Task, attempts: Callable[[ClaimToken], int]) -> Mapping[int, Task]:
    """Divide a task by the number of times that its parts have failed."""
    parts: dict[int, list[TaskPart]] = defaultdict(list)
    for part in task.parts:
        parts[attempts(part.token)].append(part)
    return {count: task.with_parts(found) for count, found in parts.items()}


def _cut_often(task: Task, cuts: int) -> list[Task]:
    tasks = [task]
    for _ in range(min(cuts, _MOST_CUTS)):
        tasks = [half for each in tasks for half in (_cut(each) if len(each.parts) > 1 else [each])]
    return tasks


def _cut(task: Task) -> list[Task]:
    half = len(task.parts) // 2
    return [task.with_parts(task.parts[:half]), task.with_parts(task.parts[half:])]
