"""Bins of tasks. Each is one Spark job: what is done and committed together, or fails together."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from stratalog.pipeline.hosting.job_errors import JobFailedError
from stratalog.pipeline.plan.tasks import Task, TaskDone


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bin:
    """Bins are told apart by identity: two with the same tasks are two pieces of work."""

    name: str
    """For people, in errors, progress and Spark's pages: `merge 3 of 17`."""
    tasks: Sequence[Task]


@dataclass(frozen=True, slots=True, kw_only=True)
class BinDone:
    work: Bin
    answers: Sequence[TaskDone]
    """One for each task, in the order of the tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BinFailed:
    """Nothing came back. What its tasks have written is unknown, and left to the sweeper."""

    work: Bin
    error: JobFailedError


BinOutcome: TypeAlias = BinDone | BinFailed

Begin: TypeAlias = Callable[[Bin], Awaitable[Bin | None]]
"""Called in the event loop just before a bin is handed to Spark, which waits for it. Answers what
is to be done of it: as many tasks, of which some may have become smaller; None if nothing is. The
outcome is the whole bin's all the same."""


async def unnoticed(work: Bin) -> Bin:
    """For bins whose beginning nobody wants to know of."""
    return work


def nothing_to_do(work: Bin) -> BinDone:
    """The outcome of a bin that is not needed any more."""
    return BinDone(work=work, answers=[TaskDone() for _ in work.tasks])
