"""Running bins as Spark jobs, a few at a time, and answering each as it ends.

Only the answers that Spark returns count: if a task ran twice, the attempt that Spark took. Ending
the iteration early, or cancelling the task that iterates, cancels the Spark jobs and waits for
them. If Spark gives no executor for long, all bins that are left fail: they might never run.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from stratalog.clock import Clock
from stratalog.ids import new_uuid
from stratalog.pipeline.errors import JobCancelledError, JobFailedError, NoExecutorError
from stratalog.pipeline.hosting.executor_wait import ExecutorWait, JobLook
from stratalog.pipeline.hosting.job_errors import explain_failure
from stratalog.pipeline.hosting.job_progress import NoListener, ProgressListener, TaskCounts
from stratalog.pipeline.hosting.session import OpenSpark
from stratalog.pipeline.hosting.task_rows import (
    ROW_SCHEMA,
    RunTask,
    answers,
    plan_table,
    row_function,
)
from stratalog.pipeline.jobs import (
    Begin,
    Bin,
    BinDone,
    BinFailed,
    BinOutcome,
    nothing_to_do,
    unnoticed,
)
from stratalog.pipeline.plan.tasks import TaskDone
from stratalog.pipeline.workplace import Workplace
from stratalog.settings import TieringSettings

log = logging.getLogger(__name__)

PARALLEL_JOBS = 3
"""Enough that the last tasks of one bin leave no core idle."""
EXECUTOR_WAIT_MS = TieringSettings().executor_wait_ms
_LOOK_SECONDS = 0.25
_RARE_LOOK_SECONDS = 5.0
"""Without a listener, when only jobs that do not start are looked for."""
_CANCEL_SECONDS = 0.25
_MOST_CANCELS = 40
"""Ten seconds. The run waits so long for its end, and beside a broker it is killed after thirty: by
then the claims should be given back."""


class JobRunner:
    def __init__(
        self,
        spark: OpenSpark,
        run_task: RunTask,
        workplace: Workplace,
        *,
        clock: Clock,
        listener: ProgressListener | None = None,
        parallel_jobs: int = PARALLEL_JOBS,
        executor_wait_ms: int = EXECUTOR_WAIT_MS,
    ) -> None:
        self._spark = spark
        self._function = row_function(run_task, workplace)
        self._clock = clock
        self._listener = listener or NoListener()
        self._look_seconds = _RARE_LOOK_SECONDS if listener is None else _LOOK_SECONDS
        self._parallel_jobs = parallel_jobs
        self._executor_wait_ms = executor_wait_ms
        self._starves = False
        self.is_distrusted = False

    def distrust(self) -> None:
        """Take the session for broken, so that no other work is tried with it."""
        self.is_distrusted = True

    async def run(
        self, bins: Sequence[Bin], begin: Begin = unnoticed
    ) -> AsyncGenerator[BinOutcome, None]:
        """Yield all bins, each when it is done or has failed. Use it in `contextlib.aclosing`."""
        running: dict[str, Bin] = {}
        loop = asyncio.get_running_loop()
        pool = ThreadPoolExecutor(self._parallel_jobs, thread_name_prefix="spark-job")

        def begun(work: Bin) -> Bin | None:
            return asyncio.run_coroutine_threadsafe(self._begin(work, begin), loop).result()

        waiting = {
            loop.run_in_executor(pool, self._run_bin, work, running, begun): work for work in bins
        }
        watcher = asyncio.create_task(self._watch(running))
        try:
            async for outcome in self._outcomes(waiting):
                yield outcome
        finally:
            watcher.cancel()
            pool.shutdown(wait=False, cancel_futures=True)
            await self._cancel(waiting, running)

    async def _outcomes(
        self, waiting: Mapping[asyncio.Future[BinOutcome], Bin]
    ) -> AsyncIterator[BinOutcome]:
        pending: set[asyncio.Future[BinOutcome]] = set(waiting)
        while pending:
            ended, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for future in ended:
                outcome = future.result()
                self._report_end(outcome)
                yield outcome

    def _report_end(self, outcome: BinOutcome) -> None:
        if isinstance(outcome, BinDone):
            counts = TaskCounts(done=len(outcome.answers))
            self._listener.bin_moved(outcome.work, counts)
        self._listener.bin_ended(outcome.work, failed=isinstance(outcome, BinFailed))

    async def _cancel(
        self, waiting: Iterable[asyncio.Future[BinOutcome]], running: Mapping[str, Bin]
    ) -> None:
        """Ask until all threads are back: a job cannot be cancelled before it began.

        It does not ask for ever: if Spark does not answer, its threads end when it is closed.
        """
        pending = {future for future in waiting if not future.done()}
        for _ in range(_MOST_CANCELS):
            if not pending:
                return
            for tag in list(running):
                self._ask_to_cancel(tag)
            _, pending = await asyncio.wait(pending, timeout=_CANCEL_SECONDS)
        if pending:
            log.warning("%d Spark jobs do not end; they are left alone.", len(pending))
            self.distrust()

    def _ask_to_cancel(self, tag: str) -> None:
        """Ask in a thread that is not waited for, because Spark may not answer."""

        def ask() -> None:
            with suppress(Exception):
                self._spark.jobs.cancel(tag)

        threading.Thread(target=ask, name="spark-cancel", daemon=True).start()

    async def _watch(self, running: Mapping[str, Bin]) -> None:
        """Report the progress of jobs, and end them if Spark gives them nothing to run on."""
        seen: dict[str, TaskCounts] = {}
        now_s = self._clock.monotonic()
        waiting = ExecutorWait(longest_s=self._executor_wait_ms / 1000, now_s=now_s)
        while True:
            await self._clock.sleep(self._look_seconds)
            looks: dict[str, JobLook] = {}
            for tag, work in list(running.items()):
                counts = await asyncio.to_thread(self._counts, tag)
                looks[tag] = JobLook(len(work.tasks), counts)
                if counts is not None and counts != seen.get(tag) and tag in running:
                    seen[tag] = counts
                    # A bar that cannot be drawn must not end the watch.
                    with suppress(Exception):
                        self._listener.bin_moved(work, counts)
            if waiting.is_over(looks, self._clock.monotonic()):
                self._starves = True
            if self._starves:
                # At each look: a job cannot be cancelled before it began.
                for tag in list(running):
                    self._ask_to_cancel(tag)

    def _counts(self, tag: str) -> TaskCounts | None:
        with suppress(Exception):
            return self._spark.jobs.counts(tag)
        return None

    async def _begin(self, work: Bin, begin: Begin) -> Bin | None:
        self._listener.bin_started(work)
        if self._starves:
            raise NoExecutorError(work.name, self._executor_wait_ms)
        return await begin(work)

    def _run_bin(
        self, work: Bin, running: dict[str, Bin], begun: Callable[[Bin], Bin | None]
    ) -> BinOutcome:
        """Run a bin in a thread of the pool: Spark's calls block until the job is done."""
        tag = f"{work.name} {new_uuid().hex}".replace(",", " ")
        running[tag] = work
        try:
            needed = begun(work)
            if needed is None:
                return nothing_to_do(work)
            return BinDone(work=work, answers=_in_order(work, self._collect(needed, tag)))
        except JobFailedError as error:
            return BinFailed(work=work, error=error)
        except Exception as error:
            log.debug("%s failed", work.name, exc_info=True)
            return BinFailed(work=work, error=self._explained(work, error))
        finally:
            del running[tag]

    def _explained(self, work: Bin, error: Exception) -> JobFailedError:
        explained = explain_failure(work.name, error)
        if self._starves and isinstance(explained, JobCancelledError):
            return NoExecutorError(work.name, self._executor_wait_ms)
        return explained

    def _collect(self, work: Bin, tag: str) -> dict[int, TaskDone]:
        with self._spark.jobs.tagged(tag):
            plan = self._spark.session.createDataFrame(plan_table(work.tasks))
            rows = plan.mapInArrow(self._function, ROW_SCHEMA).collect()
        return answers(row.asDict() for row in rows)


def _in_order(work: Bin, done: Mapping[int, TaskDone]) -> Sequence[TaskDone]:
    missing = [number for number in range(len(work.tasks)) if number not in done]
    if missing:
        raise JobFailedError(f"{work.name}: Spark returned no answer for the tasks {missing}")
    return [done[number] for number in range(len(work.tasks))]
