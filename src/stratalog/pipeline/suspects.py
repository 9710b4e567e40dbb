"""How it is found out what broke a job. Pure.

A job that fails as a whole says nothing about its tasks. It is repeated in halves, those that fail
again in halves of their own, down to one segment, or one partition of a split file. What fails
alone while Spark works has itself to blame, and everything else is done. Whether Spark works is
asked with a job in which there is nothing to do: where that fails, nobody is to blame.
"""

from collections.abc import Sequence
from dataclasses import replace

from stratalog.pipeline.bins import Bin, BinFailed
from stratalog.pipeline.job_errors import JobCancelledError
from stratalog.pipeline.tasks import MergeTask, Task

MOST_REPEATS = 64
"""Jobs of a run that are repeats. What is still in doubt after them is left to the next run: where
every piece breaks its job, the search would be longer than the work."""
_AGAIN = ", again"


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


def _cut(task: Task) -> list[Task]:
    half = _size(task) // 2
    if isinstance(task, MergeTask):
        return [MergeTask(segments=each) for each in (task.segments[:half], task.segments[half:])]
    return [replace(task, parts=each) for each in (task.parts[:half], task.parts[half:])]


def _size(task: Task) -> int:
    return len(task.segments) if isinstance(task, MergeTask) else len(task.parts)
