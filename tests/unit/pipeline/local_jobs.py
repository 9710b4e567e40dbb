"""Jobs that run their tasks in the process of the test, where Spark would run them."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from uuid import UUID

from stratalog.ids import WriterTag
from stratalog.opening.stores import Wrap, unwrapped
from stratalog.pipeline.hosting.run_task import run_in_loop
from stratalog.pipeline.jobs import Begin, Bin, BinDone, BinOutcome, nothing_to_do
from stratalog.pipeline.plan.tasks import Task, TaskDone
from stratalog.pipeline.workplace import Workplace

Hook = Callable[[Task], Awaitable[None]]


async def nothing(_: Task) -> None:
    """The default hook before and after a task."""


@dataclass
class LocalJobs:
    """Runs tasks where Spark would: one after the other, in the event loop of the test."""

    workplace: Workplace
    before: Hook = nothing
    after: Hook = nothing
    fail: Callable[[Bin], BinOutcome | None] = lambda work: None
    wrap: Wrap = unwrapped
    bins: list[Bin] = field(default_factory=list)
    opened: int = 0
    distrusted: int = 0

    @asynccontextmanager
    async def open(
        self, cluster_id: UUID | None = None, writer: WriterTag | None = None
    ) -> AsyncIterator["LocalJobs"]:
        self.opened += 1
        self.workplace = self.workplace.of_cluster(cluster_id, writer)
        yield self

    def distrust(self) -> None:
        self.distrusted += 1

    async def run(self, bins: Sequence[Bin], begin: Begin) -> AsyncGenerator[BinOutcome, None]:
        for work in bins:
            needed = await begin(work)
            if needed is None:
                yield nothing_to_do(work)
                continue
            self.bins.append(needed)
            failure = self.fail(needed)
            if failure is not None:
                yield replace(failure, work=work)
                continue
            yield BinDone(work=work, answers=[await self._do(task) for task in needed.tasks])

    async def _do(self, task: Task) -> TaskDone:
        await self.before(task)
        done = await run_in_loop(task, self.workplace, wrap=self.wrap)
        await self.after(task)
        return done
