"""Progress bars of a pipeline run, on stderr: one per stage."""

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from stratalog.cli.output import stderr
from stratalog.pipeline.hosting.job_progress import TaskCounts
from stratalog.pipeline.jobs import Begin, Bin, BinOutcome, Jobs, OpenJobs


class Bars:
    """A listener of jobs. The first word of a bin's name is its stage."""

    def __init__(self) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            _Tasks(),
            TimeElapsedColumn(),
            console=stderr,
            transient=True,
            disable=not stderr.is_terminal,
        )
        self._bars: dict[str, TaskID] = {}
        self._totals: Counter[str] = Counter()
        self._done: dict[Bin, int] = {}

    @contextmanager
    def shown(self) -> Iterator[None]:
        with self._progress:
            yield

    def refresh(self) -> None:
        """Draw at once, not at the next interval."""
        self._progress.refresh()

    def plan(self, bins: Sequence[Bin]) -> None:
        """Add bins to the totals. A run plans several times, and may repeat a job."""
        for work in bins:
            self._totals[_stage(work)] += len(work.tasks)
        for stage, total in self._totals.items():
            if stage in self._bars:
                self._progress.update(self._bars[stage], total=total)
            else:
                self._bars[stage] = self._progress.add_task(stage, total=total)

    def bin_started(self, work: Bin) -> None:
        self._done[work] = 0

    def bin_moved(self, work: Bin, counts: TaskCounts) -> None:
        self._progress.advance(self._bars[_stage(work)], counts.done - self._done[work])
        self._done[work] = counts.done

    def bin_ended(self, work: Bin, *, failed: bool) -> None:
        if failed:
            self._progress.advance(self._bars[_stage(work)], len(work.tasks) - self._done[work])

    @asynccontextmanager
    async def announced(self, open_jobs: OpenJobs) -> AsyncIterator["_Announced"]:
        """Jobs whose bins are known to the bars before the first begins."""
        starting = self._progress.add_task("starting Spark", total=None)
        async with open_jobs() as jobs:
            self._progress.remove_task(starting)
            yield _Announced(jobs, self)


class _Tasks(ProgressColumn):
    """How many are done of how many, where that is known."""

    def render(self, task: Task) -> Text:
        return Text("" if task.total is None else f"{task.completed:.0f}/{task.total:.0f} tasks")


class _Announced:
    def __init__(self, jobs: Jobs, bars: Bars) -> None:
        self._jobs = jobs
        self._bars = bars

    def run(self, bins: Sequence[Bin], begin: Begin) -> AsyncGenerator[BinOutcome, None]:
        self._bars.plan(bins)
        return self._jobs.run(bins, begin)

    def distrust(self) -> None:
        self._jobs.distrust()


def _stage(work: Bin) -> str:
    return work.name.partition(" ")[0]
