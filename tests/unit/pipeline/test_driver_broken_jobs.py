"""The driver when Spark jobs break: the search for the partition that broke them."""

from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import UUID

import pytest
from tests.unit.pipeline.lab import EAGER, PATIENT, Lab, using
from tests.unit.pipeline.local_jobs import LocalJobs

from stratalog.ids import WriterTag
from stratalog.pipeline.errors import JobCancelledError, JobFailedError
from stratalog.pipeline.jobs import Bin, BinFailed, BinOutcome
from stratalog.pipeline.plan.failure_search import MOST_REPEATS


class Failing:
    """Bins with something of a certain partition fail as a whole."""

    def __init__(self, *partitions: int) -> None:
        self._partitions = set(partitions)

    def __call__(self, work: Bin) -> BinOutcome | None:
        for task in work.tasks:
            if self._partitions & {int(part.rows[0].partition) for part in task.parts}:
                return BinFailed(work=work, error=JobFailedError("the worker died"))
        return None


@pytest.mark.parametrize("task_bytes", [1, 1 << 20])
async def test_a_partition_that_kills_its_job_is_found_and_costs_only_itself(
    lab: Lab, task_bytes: int
) -> None:
    using(lab, replace(EAGER, task_bytes=task_bytes, max_attempts=2))
    topic = await lab.topic(6)
    await lab.fill(topic)
    jobs = lab.jobs()
    jobs.fail = Failing(1)
    report = await lab.run(jobs)
    assert report.segments == 5
    assert report.failed == {"orders-1": "the worker died"}
    assert report.parked == []
    assert (await lab.run(jobs)).parked == ["orders-1"]
    assert (await lab.run(jobs)).waiting == {"parked": 1}
    await lab.check_clean()
    await lab.check(topic)


async def test_a_partition_that_kills_the_job_of_a_split_is_found(lab: Lab) -> None:
    using(lab, replace(PATIENT, max_attempts=1))
    topic = await lab.topic(6)
    await lab.fill(topic)
    jobs = lab.jobs()
    jobs.fail = Failing(2)
    report = await lab.run(jobs)
    assert report.split_partitions == 5
    assert report.parked == ["orders-2"]
    await lab.check_clean()
    await lab.check(topic)


async def test_segments_before_one_that_kills_its_job_are_kept(lab: Lab) -> None:
    using(lab, replace(EAGER, task_bytes=1 << 20))
    topic = await lab.topic(1, segment_bytes="400")
    await lab.fill(topic)
    jobs = lab.jobs()

    def fail(work: Bin) -> BinOutcome | None:
        rows = [row for task in work.tasks for part in task.row_lists for row in part]
        if any(row.base_offset <= 14 <= row.last_offset for row in rows):
            return BinFailed(work=work, error=JobFailedError("the worker died"))
        return None

    jobs.fail = fail
    report = await lab.run(jobs)
    assert list(report.failed) == ["orders-0"]
    assert 0 < (await lab.state(topic, 0)).block_start <= 14
    await lab.check_clean()
    await lab.check(topic)


async def test_the_search_for_culprits_comes_to_an_end(lab: Lab) -> None:
    using(lab, replace(EAGER, max_attempts=1))
    topic = await lab.topic(60)
    await lab.write(topic, {p: [1] for p in range(60)})
    jobs = lab.jobs()
    jobs.fail = Failing(*range(60))
    report = await lab.run(jobs)
    assert len(report.failed) == 60
    repeats = [work for work in jobs.bins if work.name.endswith("again")]
    assert len(repeats) <= MOST_REPEATS
    runs = 1
    while len(report.parked) < 60:
        report.include(await lab.run(jobs))
        runs += 1
    assert runs < 10, "every run finds some of them"


async def test_a_job_that_somebody_cancelled_blames_nobody(lab: Lab) -> None:
    using(lab, replace(EAGER, max_attempts=1))
    topic = await lab.topic(1)
    await lab.fill(topic)
    jobs = lab.jobs()
    jobs.fail = lambda work: BinFailed(work=work, error=JobCancelledError("cancelled"))
    report = await lab.run(jobs)
    assert (report.parked, report.failed) == ([], {"orders-0": "cancelled"})


async def test_nobody_is_to_blame_if_spark_does_not_work(lab: Lab) -> None:
    using(lab, replace(EAGER, max_attempts=1))
    topic = await lab.topic(2)
    await lab.fill(topic)
    jobs = lab.jobs()
    jobs.fail = lambda work: BinFailed(work=work, error=JobFailedError("no executors"))
    report = await lab.run(jobs)
    assert (report.parked, set(report.failed)) == ([], {"orders-0", "orders-1"})
    assert len(jobs.bins) == 2, "the job, and the question whether Spark works"
    assert (await lab.run()).segments == 2


async def test_nobody_is_to_blame_if_spark_works_no_more(lab: Lab) -> None:
    using(lab, replace(EAGER, task_bytes=1, max_attempts=1))
    topic = await lab.topic(6)
    await lab.fill(topic)
    jobs = lab.jobs()
    jobs.fail = lambda work: (
        BinFailed(work=work, error=JobFailedError("no executors")) if len(jobs.bins) > 1 else None
    )
    report = await lab.run(jobs)
    assert 0 < report.segments < 6
    assert (report.segments + len(report.failed), report.parked) == (6, [])
    assert jobs.distrusted > 0, "the next run gets another session"


async def test_claims_are_given_back_if_spark_does_not_start(lab: Lab) -> None:
    topic = await lab.topic()
    await lab.fill(topic)

    class NoSpark(LocalJobs):
        def open(  # type: ignore[override]
            self, cluster_id: UUID | None = None, writer: WriterTag | None = None
        ) -> AsyncIterator[LocalJobs]:
            raise JobFailedError("no Java")

    with pytest.raises(JobFailedError):
        await lab.run(NoSpark(lab.jobs().workplace))
    [run] = await lab.control.pipeline.runs(limit=1)
    assert run.finished_ms is None
    assert (await lab.run()).segments == 2
