"""Claims while a run works, and when they cannot be renewed or given back."""

from dataclasses import replace

import pytest
from tests.unit.pipeline.lab import EAGER, Interposed, Lab, LocalJobs, spoil, using

from stratalog.clock import SystemClock
from stratalog.control.plane import CommitInDoubtError, ControlPlane, ControlUnavailableError
from stratalog.pipeline.report import Report
from stratalog.pipeline.tasks import Task
from stratalog.testing.clock import ManualClock


async def claimed(lab: Lab, topic_id: object) -> list[int]:
    aged = await lab.control.aged_partitions({t.id: 0 for t in await lab.control.topics()})
    return [each.partition for each in aged if each.claimed and each.topic_id == topic_id]


async def run_with_clock(
    lab: Lab, jobs: LocalJobs, clock: ManualClock, control: ControlPlane
) -> Report:
    async with lab.driver(jobs, control=control, clock=clock) as driver:
        return await driver.run()


async def test_claims_are_renewed_again_after_an_error_that_nobody_expected(lab: Lab) -> None:
    topic = await lab.topic()
    await lab.fill(topic)
    clock, watched = ManualClock(SystemClock().now_ms()), Interposed(lab.control)
    watched.errors["renew_claims"] = KeyError("a mistake of ours")
    jobs = lab.jobs()

    async def pass_the_time(_: Task) -> None:
        await clock.advance(EAGER.splitter_claim_duration_ms / 1000)

    jobs.before = jobs.after = pass_the_time
    report = await run_with_clock(lab, jobs, clock, watched.as_control())
    assert report.segments == 2
    assert watched.calls.count("renew_claims") >= 2


@pytest.mark.parametrize("error", [ControlUnavailableError, CommitInDoubtError])
async def test_claims_that_cannot_be_given_back_cost_no_other_work(
    lab: Lab, error: type[Exception]
) -> None:
    using(lab, replace(EAGER, task_bytes=1))
    topic = await lab.topic(6)
    await lab.fill(topic)
    watched = Interposed(lab.control)
    watched.errors["release_claims"] = error("made to fail")
    report = await lab.run(control=watched.as_control())
    assert report.segments == 6
    assert report.merged_partitions == 6
    assert await claimed(lab, topic.id) == []
    await lab.check(topic)


async def test_a_failure_that_cannot_be_counted_is_told_all_the_same(lab: Lab) -> None:
    topic = await lab.topic(2)
    await lab.fill(topic)
    spoil(lab, await lab.write(topic, {0: [2], 1: [2]}), 1)
    watched = Interposed(lab.control)
    watched.errors["fail_claims"] = ControlUnavailableError("made to fail")
    report = await lab.run(control=watched.as_control())
    assert report.segments == 1
    assert list(report.failed) == ["orders-1"]
    assert await claimed(lab, topic.id) == []
