import asyncio
import threading
from contextlib import aclosing
from typing import Any, cast

import pytest
from tests.unit.pipeline.fake_spark import FakeSpark, Recorder, echo
from tests.unit.pipeline.spark_tasks import WORKPLACE, task, words_of

from stratalog.clock import SystemClock
from stratalog.pipeline.errors import JobCancelledError
from stratalog.pipeline.hosting.job_progress import ProgressListener, TaskCounts
from stratalog.pipeline.hosting.job_runner import JobRunner
from stratalog.pipeline.hosting.session import OpenSpark
from stratalog.pipeline.hosting.spark_conf import Place
from stratalog.pipeline.hosting.task_rows import RunTask
from stratalog.pipeline.jobs import Bin, BinDone, BinFailed
from stratalog.pipeline.plan.tasks import Task, TaskDone
from stratalog.pipeline.workplace import Workplace


def runner(
    run_task: RunTask,
    fake: FakeSpark | None = None,
    listener: ProgressListener | None = None,
    parallel_jobs: int = 2,
) -> JobRunner:
    fake = fake or FakeSpark()
    spark = OpenSpark(session=cast(Any, fake), jobs=fake, place=Place.LOCAL)
    return JobRunner(
        spark,
        run_task,
        WORKPLACE,
        clock=SystemClock(),
        listener=listener,
        parallel_jobs=parallel_jobs,
    )


def refuse(given: Task, workplace: Workplace) -> TaskDone:
    raise ValueError("not this one")


async def test_answers_come_in_the_order_of_the_tasks() -> None:
    work = Bin(name="merge 1", tasks=[task(number) for number in (3, 1, 2)])
    (outcome,) = [outcome async for outcome in runner(echo).run([work])]
    assert isinstance(outcome, BinDone)
    assert outcome.work is work
    assert [done.effort.requests for done in outcome.answers] == [3, 1, 2]


async def test_a_bin_is_yielded_when_it_is_done_and_not_when_its_turn_comes() -> None:
    release = threading.Event()

    def held(given: Task, workplace: Workplace) -> TaskDone:
        if words_of(given) == ("slow",):
            assert release.wait(30)
        return TaskDone()

    slow, quick = (Bin(name=name, tasks=[task(name)]) for name in ("slow", "quick"))
    order = []
    async for outcome in runner(held).run([slow, quick]):
        order.append(outcome.work.name)
        release.set()
    assert order == ["quick", "slow"]


async def test_a_failed_bin_costs_only_itself() -> None:
    def picky(given: Task, workplace: Workplace) -> TaskDone:
        return refuse(given, workplace) if words_of(given) == ("bad",) else TaskDone()

    bins = [Bin(name=name, tasks=[task(name)]) for name in ("good", "bad", "fine")]
    outcomes = {outcome.work.name: outcome async for outcome in runner(picky).run(bins)}
    assert isinstance(outcomes["good"], BinDone)
    assert isinstance(outcomes["fine"], BinDone)
    failed = outcomes["bad"]
    assert isinstance(failed, BinFailed)
    assert str(failed.error) == "bad: not this one"


async def test_a_missing_answer_fails_the_bin() -> None:
    work = Bin(name="merge 1", tasks=[task(1), task(2)])
    (outcome,) = [outcome async for outcome in runner(echo, FakeSpark(lose=[1])).run([work])]
    assert isinstance(outcome, BinFailed)
    assert str(outcome.error) == "merge 1: Spark returned no answer for the tasks [1]"


async def test_no_more_jobs_run_at_once_than_allowed() -> None:
    running, most = 0, 0
    lock = threading.Lock()

    def counted(given: Task, workplace: Workplace) -> TaskDone:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.02)
        with lock:
            running -= 1
        return TaskDone()

    bins = [Bin(name=str(number), tasks=[task(number)]) for number in range(8)]
    outcomes = [o async for o in runner(counted, parallel_jobs=2).run(bins)]
    assert len(outcomes) == 8
    assert most == 2


async def test_leaving_early_cancels_what_runs_and_starts_nothing_more() -> None:
    fake = FakeSpark()
    begun: list[object] = []

    def held(given: Task, workplace: Workplace) -> TaskDone:
        begun.append(words_of(given))
        if words_of(given) != ("first",):
            assert fake.cancelled.wait(30), "nobody cancelled"
            raise RuntimeError("Job 1 cancelled")
        return TaskDone()

    bins = [Bin(name=name, tasks=[task(name)]) for name in ("first", "second", "third", "fourth")]
    async with aclosing(runner(held, fake).run(bins)) as outcomes:
        async for outcome in outcomes:
            assert outcome.work.name == "first"
            break
    assert fake.cancelled.is_set()
    assert ("fourth",) not in begun


async def test_cancelling_the_consumer_cancels_the_jobs() -> None:
    fake = FakeSpark()
    begun = threading.Event()
    ended = threading.Event()

    def held(given: Task, workplace: Workplace) -> TaskDone:
        begun.set()
        assert fake.cancelled.wait(30), "nobody cancelled"
        ended.set()
        raise RuntimeError("Job 1 cancelled")

    async def consume() -> None:
        async with aclosing(runner(held, fake).run([Bin(name="x", tasks=[task(1)])])) as outcomes:
            async for _ in outcomes:
                pass

    consumer = asyncio.create_task(consume())
    await asyncio.to_thread(begun.wait, 30)
    consumer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consumer
    assert ended.is_set(), "the thread was left behind"


async def test_a_spark_that_does_not_answer_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stratalog.pipeline.hosting.job_runner._MOST_CANCELS", 2)
    begun, closed = threading.Event(), threading.Event()

    class Hanging(FakeSpark):
        def cancel(self, tag: str) -> None:
            assert closed.wait(30)

    def held(given: Task, workplace: Workplace) -> TaskDone:
        if words_of(given) == ("first",):
            assert begun.wait(30)
        else:
            begun.set()
            assert closed.wait(30)
        return TaskDone()

    jobs = runner(held, Hanging())
    bins = [Bin(name=name, tasks=[task(name)]) for name in ("first", "second")]
    async with asyncio.timeout(10), aclosing(jobs.run(bins)) as outcomes:
        async for _ in outcomes:
            break
    assert jobs.is_distrusted
    closed.set()


async def test_a_job_cancelled_by_others_is_a_failed_bin() -> None:
    def stopped(given: Task, workplace: Workplace) -> TaskDone:
        raise RuntimeError("Job 4 cancelled because it was killed in the UI")

    (outcome,) = [o async for o in runner(stopped).run([Bin(name="x", tasks=[task(1)])])]
    assert isinstance(outcome, BinFailed)
    assert isinstance(outcome.error, JobCancelledError)


async def test_a_listener_hears_of_every_step() -> None:
    recorder = Recorder()
    loop = asyncio.get_running_loop()

    def held(given: Task, workplace: Workplace) -> TaskDone:
        asyncio.run_coroutine_threadsafe(recorder.moved.wait(), loop).result(30)
        return TaskDone()

    work = Bin(name="x", tasks=[task(1)])
    assert [o async for o in runner(held, listener=recorder).run([work])]
    running, done = TaskCounts(running=1), TaskCounts(done=1)
    assert recorder.calls == ["started", running, done, "ended"]


async def test_a_listener_hears_of_failures() -> None:
    recorder = Recorder()
    assert [
        o async for o in runner(refuse, listener=recorder).run([Bin(name="x", tasks=[task(1)])])
    ]
    assert recorder.calls[-1] == "failed"


async def test_a_bin_begins_before_spark_gets_it_and_not_before_its_turn() -> None:
    told: list[str] = []

    def noted(given: Task, workplace: Workplace) -> TaskDone:
        told.append(f"{words_of(given)[0]} runs")
        return TaskDone()

    async def begin(work: Bin) -> Bin:
        told.append(f"{work.name} begins")
        return work

    bins = [Bin(name=name, tasks=[task(name)]) for name in ("one", "two")]
    assert [o async for o in runner(noted, parallel_jobs=1).run(bins, begin)]
    assert told == ["one begins", "one runs", "two begins", "two runs"]


async def test_a_bin_whose_beginning_fails_does_not_reach_spark() -> None:
    async def begin(work: Bin) -> Bin:
        raise ValueError("a mistake of ours")

    (outcome,) = [o async for o in runner(echo).run([Bin(name="x", tasks=[task(1)])], begin)]
    assert isinstance(outcome, BinFailed)
    assert str(outcome.error) == "x: a mistake of ours"


async def test_what_is_not_needed_any_more_does_not_reach_spark_and_ends_for_its_listener() -> None:
    recorder, fake = Recorder(), FakeSpark()
    work = Bin(name="x", tasks=[task(1), task(2)])

    async def begin(_: Bin) -> None:
        return None

    (outcome,) = [o async for o in runner(refuse, fake, recorder).run([work], begin)]
    assert outcome == BinDone(work=work, answers=[TaskDone(), TaskDone()])
    assert recorder.calls == ["started", TaskCounts(done=2), "ended"]
    assert fake.tags == []


async def test_spark_gets_what_is_needed_and_the_answers_are_those_of_the_whole_bin() -> None:
    work = Bin(name="x", tasks=[task(1), task(2)])

    async def begin(_: Bin) -> Bin:
        return Bin(name="x", tasks=[task(7), task(8)])

    (outcome,) = [o async for o in runner(echo).run([work], begin)]
    assert isinstance(outcome, BinDone)
    assert outcome.work is work
    assert [done.effort.requests for done in outcome.answers] == [7, 8]
