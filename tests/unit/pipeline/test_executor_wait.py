"""Jobs to which Spark gives no executor."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

import pytest
from tests.unit.pipeline.fake_spark import FakeRow, FakeSpark, Recorder, echo
from tests.unit.pipeline.lab import EAGER, Lab, using
from tests.unit.pipeline.local_jobs import LocalJobs
from tests.unit.pipeline.spark_tasks import WORKPLACE, task

from stratalog.ids import WriterTag
from stratalog.pipeline.errors import NoExecutorError
from stratalog.pipeline.hosting.executor_wait import ExecutorWait, JobLook
from stratalog.pipeline.hosting.job_progress import ProgressListener, TaskCounts
from stratalog.pipeline.hosting.job_runner import EXECUTOR_WAIT_MS, JobRunner
from stratalog.pipeline.hosting.session import OpenSpark
from stratalog.pipeline.hosting.spark_conf import Place
from stratalog.pipeline.jobs import Bin, BinDone, BinFailed, BinOutcome
from stratalog.testing.clock import ManualClock

IDLE, BUSY = TaskCounts(), TaskCounts(running=1)
WAIT_S = EXECUTOR_WAIT_MS / 1000
PATIENCE_S = 30.0


class FullCluster(FakeSpark):
    """Takes every job and lets it wait, until it is cancelled, or has been asked for often."""

    def __init__(self, told: TaskCounts | None = IDLE, looks: int = 1 << 30) -> None:
        super().__init__()
        self.told = told
        self.looks = looks
        self.has_room = threading.Event()

    def createDataFrame(self, table: Any) -> "FullCluster":  # noqa: N802
        self.batches = table.to_batches()
        return self

    def collect(self) -> list[FakeRow]:
        while not self.has_room.wait(0.001):
            if self.cancelled.is_set():
                raise RuntimeError("Job 1 cancelled part of cancelled job group")
        return super().collect()

    def counts(self, tag: str) -> TaskCounts | None:
        self.looks -= 1
        if not self.looks:
            self.has_room.set()
        return self.told


@contextmanager
def time_passing(clock: ManualClock, seconds: float = 5.0) -> Iterator[None]:
    """As fast as it can, in steps."""

    async def pass_time() -> None:
        while True:
            await clock.advance(seconds)
            await asyncio.sleep(0)

    passing = asyncio.ensure_future(pass_time())
    yield
    passing.cancel()


def runner(
    fake: FakeSpark, clock: ManualClock, listener: ProgressListener | None = None
) -> JobRunner:
    spark = OpenSpark(session=cast(Any, fake), jobs=fake, place=Place.LOCAL)
    return JobRunner(spark, echo, WORKPLACE, clock=clock, listener=listener, parallel_jobs=1)


def bins(*names: str) -> list[Bin]:
    return [Bin(name=name, tasks=[task(1)]) for name in names]


async def outcomes_of(jobs: JobRunner, work: Sequence[Bin], **rest: Any) -> list[BinOutcome]:
    async with asyncio.timeout(PATIENCE_S):
        return [outcome async for outcome in jobs.run(work, **rest)]


@pytest.mark.parametrize("watched", [False, True])
async def test_a_job_that_gets_no_executor_fails_and_says_what_to_do(watched: bool) -> None:
    clock, recorder = ManualClock(), Recorder()
    jobs = runner(FullCluster(), clock, recorder if watched else None)
    with time_passing(clock):
        [outcome] = await outcomes_of(jobs, bins("merge 1 of 1"))
    assert clock.monotonic() >= WAIT_S
    assert isinstance(outcome, BinFailed)
    assert isinstance(outcome.error, NoExecutorError)
    assert str(outcome.error).startswith(
        "merge 1 of 1: Spark gave no executor for 10m: see whether"
    )
    assert "tiering.executor_wait_ms" in str(outcome.error)
    assert not watched or recorder.calls[-1] == "failed"


async def test_what_has_not_had_its_turn_fails_with_it_and_does_not_begin() -> None:
    clock, recorder = ManualClock(), Recorder()
    begun: list[str] = []

    async def begin(work: Bin) -> Bin:
        begun.append(work.name)
        return work

    jobs = runner(FullCluster(), clock, recorder)
    with time_passing(clock):
        outcomes = await outcomes_of(jobs, bins("one", "two", "three"), begin=begin)
    assert [type(cast(BinFailed, each).error) for each in outcomes] == [NoExecutorError] * 3
    assert begun == ["one"]
    assert recorder.calls.count("started") == recorder.calls.count("failed") == 3
    [again] = await outcomes_of(jobs, bins("check of Spark"))
    assert isinstance(again, BinFailed), "nor is it asked of Spark again in this run"


@pytest.mark.parametrize("told", [None, BUSY])
async def test_a_job_that_runs_or_of_which_spark_tells_nothing_is_waited_for(
    told: TaskCounts | None,
) -> None:
    clock = ManualClock()
    with time_passing(clock, WAIT_S / 2):
        [outcome] = await outcomes_of(runner(FullCluster(told, looks=10), clock), bins("one"))
    assert clock.monotonic() > 4 * WAIT_S
    assert isinstance(outcome, BinDone)


def test_the_wait_is_over_when_nothing_has_run_or_ended_for_so_long() -> None:
    wait = ExecutorWait(longest_s=10, now_s=0)
    waits = {"a": JobLook(2, IDLE), "b": JobLook(2, IDLE)}
    assert [wait.is_over(waits, now_s) for now_s in (5, 14.9)] == [False, False]
    assert wait.is_over(waits, 15), "since it was first seen"


@pytest.mark.parametrize(
    "moved",
    [
        {"a": JobLook(2, IDLE), "b": JobLook(2, BUSY)},
        {"a": JobLook(2, IDLE), "b": JobLook(2, TaskCounts(done=1))},
        {"a": JobLook(2, IDLE), "b": JobLook(2, None)},
        {"a": JobLook(2, IDLE)},
        {},
    ],
)
def test_a_job_that_moves_lets_the_others_wait_anew(moved: dict[str, JobLook]) -> None:
    wait = ExecutorWait(longest_s=10, now_s=0)
    waits = {"a": JobLook(2, IDLE), "b": JobLook(2, IDLE)}
    looks = [(waits, 0), (moved, 9), (waits, 10), (waits, 19.9), (waits, 20)]
    assert [wait.is_over(*look) for look in looks] == [False, False, False, False, True]


def test_a_job_whose_tasks_have_all_ended_waits_for_nothing() -> None:
    wait = ExecutorWait(longest_s=10, now_s=0)
    ended = {"a": JobLook(2, TaskCounts(done=2))}
    assert [wait.is_over(ended, now_s) for now_s in (0, 100)] == [False, False]
    stopped = {"a": JobLook(2, TaskCounts(done=1))}
    assert [wait.is_over(stopped, now_s) for now_s in (100, 110)] == [False, True]


async def test_a_cluster_without_executors_costs_no_partition_an_attempt(lab: Lab) -> None:
    using(lab, replace(EAGER, task_bytes=1, max_attempts=1))
    topic = await lab.topic(6)
    await lab.fill(topic)
    clock = ManualClock()
    spark = runner(FullCluster(), clock)

    class OnFullCluster(LocalJobs):
        @asynccontextmanager
        async def open(
            self, cluster_id: UUID | None = None, writer: WriterTag | None = None
        ) -> AsyncIterator[Any]:
            yield spark

    with time_passing(clock):
        report = await lab.run(OnFullCluster(lab.jobs().workplace))
    assert (len(report.failed), report.parked) == (6, [])
    assert all("gave no executor" in error for error in report.failed.values())
    assert spark.is_distrusted, "the next run asks for executors with another session"
    aged = await lab.control.pipeline.aged_partitions({topic.id: 0})
    assert [(each.claimed, each.attempts) for each in aged] == [(False, 0)] * 6
    assert (await lab.run()).segments == 6
