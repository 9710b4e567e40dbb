"""Bins of tasks. Each bin is one Spark job: its tasks are done together, or fail together."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from stratalog.pipeline.errors import JobFailedError
from stratalog.pipeline.plan.tasks import Task, TaskDone

_BIN_TASKS = 2
"""Enough that Spark's price for a job is small, few enough that units settle early."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bin:
    """Bins are compared by identity: two bins with the same tasks are different work."""

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
    """Nothing came back. The objects that its tasks wrote are unknown, and left to the sweeper."""

    work: Bin
    error: JobFailedError


BinOutcome: TypeAlias = BinDone | BinFailed

Begin: TypeAlias = Callable[[Bin], Awaitable[Bin | None]]
"""Called in the event loop just before a bin is handed to Spark, which waits for the call. Answers
the bin to run: as many tasks, of which some may have become smaller; None if nothing is needed any
more. The outcome names the original bin all the same."""


class Jobs(Protocol):
    def run(self, bins: Sequence[Bin], begin: Begin) -> AsyncGenerator[BinOutcome, None]: ...

    def distrust(self) -> None:
        """Take Spark for broken: the next jobs need another session."""


OpenJobs: TypeAlias = Callable[[], AbstractAsyncContextManager[Jobs]]
"""Starts Spark. Called only when there is work."""


async def unnoticed(work: Bin) -> Bin:
    """Begin a bin without noting it."""
    return work


def nothing_to_do(work: Bin) -> BinDone:
    """Return the outcome of a bin that is not needed any more."""
    return BinDone(work=work, answers=[TaskDone() for _ in work.tasks])


def make_bins(tasks: Iterable[Task], kinds: Sequence[str]) -> list[Bin]:
    """Put tasks of the same kind together, in the order of the kinds."""
    by_kind: dict[str, list[Task]] = {kind: [] for kind in kinds}
    for task in tasks:
        by_kind[task.kind].append(task)
    return [work for kind, found in by_kind.items() for work in _bins_of(kind, found)]


def _bins_of(kind: str, tasks: Sequence[Task]) -> Iterable[Bin]:
    groups = [tasks[at : at + _BIN_TASKS] for at in range(0, len(tasks), _BIN_TASKS)]
    for number, group in enumerate(groups, 1):
        yield Bin(name=f"{kind} {number} of {len(groups)}", tasks=group)
