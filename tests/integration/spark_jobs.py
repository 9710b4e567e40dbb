"""Tasks that misbehave on executors, and a way to run them.

The function that runs them is made inside another, so that it travels to the executors by value:
they cannot import tests. It leaves a file per attempt behind, in a folder that all of them see.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.unit.pipeline.local_jobs import LocalJobs
from tests.unit.pipeline.spark_tasks import WORKPLACE, task

from stratalog.clock import SystemClock
from stratalog.pipeline.hosting.job_progress import ProgressListener, TaskCounts
from stratalog.pipeline.hosting.job_runner import EXECUTOR_WAIT_MS, JobRunner
from stratalog.pipeline.hosting.run_task import run_task
from stratalog.pipeline.hosting.session import OpenSpark
from stratalog.pipeline.hosting.task_rows import RunTask
from stratalog.pipeline.jobs import Begin, Bin, BinDone, BinFailed, BinOutcome
from stratalog.pipeline.plan.tasks import Effort, Task, TaskDone
from stratalog.pipeline.workplace import Workplace


def scripted(folder: Path) -> RunTask:
    """The first word of a task names its behaviour on the attempts up to the number that
    follows."""

    def run(given: Task, workplace: Workplace) -> TaskDone:
        import os
        import signal
        import time

        words: Any = given.parts
        word, last_bad_attempt, name = words
        attempt = 1
        while True:
            try:
                (folder / f"{name}.{attempt}").touch(exist_ok=False)
                break
            except FileExistsError:
                attempt += 1
        if attempt <= last_bad_attempt:
            if word == "raise":
                raise ValueError(f"{name} is not to be had")
            if word == "die":
                os._exit(3)
            if word == "hang":
                time.sleep(600)
            if word == "kill-executor":
                daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
                os.kill(int(daemon.rpartition(")")[2].split()[1]), signal.SIGKILL)
                time.sleep(600)
        (folder / f"{name}.{attempt}.done").touch()
        return TaskDone(effort=Effort(requests=attempt, bytes_read=os.getpid()))

    return run


async def run_bins(
    spark: OpenSpark,
    run_task: RunTask,
    *bins: Bin,
    listener: ProgressListener | None = None,
    executor_wait_ms: int = EXECUTOR_WAIT_MS,
) -> dict[str, BinOutcome]:
    runner = JobRunner(
        spark,
        run_task,
        WORKPLACE,
        clock=SystemClock(),
        listener=listener,
        executor_wait_ms=executor_wait_ms,
    )
    async with aclosing(runner.run(bins)) as outcomes:
        return {outcome.work.name: outcome async for outcome in outcomes}


@dataclass
class SparkJobs(LocalJobs):
    """Jobs of a laboratory's driver that run where Spark says."""

    spark: OpenSpark | None = None

    async def run(self, bins: Sequence[Bin], begin: Begin) -> AsyncGenerator[BinOutcome, None]:
        assert self.spark is not None
        runner = JobRunner(self.spark, run_task, self.workplace, clock=SystemClock())
        async with aclosing(runner.run(bins, begin)) as outcomes:
            async for outcome in outcomes:
                yield outcome


def attempts(outcome: BinOutcome) -> list[int]:
    """Which attempt of each task counted."""
    assert isinstance(outcome, BinDone), outcome
    return [done.effort.requests for done in outcome.answers]


def error_of(outcome: BinOutcome) -> str:
    assert isinstance(outcome, BinFailed), outcome
    return str(outcome.error)


class Watcher:
    """Hears of the tasks that run and that are done."""

    def __init__(self) -> None:
        self.running = asyncio.Event()
        self.done = 0

    def bin_started(self, work: Bin) -> None:
        pass

    def bin_moved(self, work: Bin, counts: TaskCounts) -> None:
        self.done = max(self.done, counts.done)
        if counts.running:
            self.running.set()

    def bin_ended(self, work: Bin, *, failed: bool) -> None:
        pass


async def cancel_hanging(spark: OpenSpark, folder: Path) -> None:
    """A run whose tasks never end is cancelled, and ends."""
    watcher = Watcher()
    hanging = Bin(name="long", tasks=[task("hang", 9, "h"), task("hang", 9, "i")])
    run = asyncio.create_task(run_bins(spark, scripted(folder), hanging, listener=watcher))
    await watcher.running.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
