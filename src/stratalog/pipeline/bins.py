"""Bins of tasks. Each is one Spark job: what is done and committed together, or fails together."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from stratalog.pipeline.job_errors import JobFailedError
from stratalog.pipeline.tasks import Task, TaskDone


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

Begin: TypeAlias = Callable[[Bin], Awaitable[None]]
"""Called in the event loop just before a bin is handed to Spark, which waits for it."""


async def unnoticed(_: Bin) -> None:
    """For bins whose beginning nobody wants to know of."""
