"""Claims while a run works, and when they cannot be renewed or given back."""

from dataclasses import replace

import pytest
from tests.unit.pipeline.lab import (
    EAGER,
    Crash,
    Interposed,
    Lab,
    LocalJobs,
    expire_claims,
    spoil,
    using,
)

from stratalog.clock import SystemClock
from stratalog.control.open import open_database
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


async def failures(lab: Lab) -> list[tuple[int, int, bool]]:
    """Of each partition that was ever claimed: how many, and whether it is parked."""
    database = await open_database(lab.settings.storage.control)
    rows = await database.read(
        lambda connection: connection.fetch(
            "SELECT partition, attempts, parked_ms IS NOT NULL FROM claims ORDER BY partition"
        )
    )
    await database.close()
    return [(partition, attempts, bool(parked)) for partition, attempts, parked in rows]


async def test_a_killed_driver_counts_against_nobody_whose_work_had_not_begun(any_lab: Lab) -> None:
    lab = using(any_lab, replace(EAGER, task_bytes=1, max_attempts=2))
    topic = await lab.topic(6)
    await lab.fill(topic)
    for _ in range(3):
        dying, jobs = Interposed(lab.control), lab.jobs()

        async def kill_the_driver(task: Task, dying: Interposed = dying) -> None:
            dying.crash_at = ("release_claims", "before")
            raise Crash("killed")

        jobs.before = kill_the_driver
        with pytest.raises(Crash):
            await lab.run(jobs, control=dying.as_control())
        await expire_claims(lab)
    # Of one task each, two are one job: after two deaths they are parked, and the next ones tried.
    assert await failures(lab) == [
        *((partition, 2, True) for partition in (0, 1)),
        *((partition, 0, False) for partition in range(2, 6)),
    ]
    report = await lab.run()
    assert (report.segments, report.waiting) == (4, {"parked": 2})


@pytest.mark.parametrize("error", [ControlUnavailableError, CommitInDoubtError])
async def test_work_goes_on_if_its_beginning_cannot_be_noted(
    lab: Lab, error: type[Exception]
) -> None:
    topic = await lab.topic()
    await lab.fill(topic)
    watched = Interposed(lab.control)
    watched.errors["begin_claims"] = error("made to fail")
    report = await lab.run(control=watched.as_control())
    assert (report.segments, report.failed) == (2, {})
