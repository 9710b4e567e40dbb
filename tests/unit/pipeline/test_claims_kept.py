"""Claims while a run works, and when they cannot be renewed or given back."""

from dataclasses import replace

import pytest
from tests.unit.pipeline.failing_control import Crash, FailingControl
from tests.unit.pipeline.lab import EAGER, PATIENT, Lab, expire_claims, spoil, using
from tests.unit.pipeline.local_jobs import LocalJobs

from stratalog.clock import SystemClock
from stratalog.control.errors import CommitInDoubtError, ControlUnavailableError
from stratalog.control.open import open_database
from stratalog.control.plane import ControlPlane
from stratalog.pipeline.kinds.rewrite import RewriteTask
from stratalog.pipeline.plan.tasks import Task
from stratalog.pipeline.report import Report
from stratalog.settings import TieringSettings
from stratalog.testing.clock import ManualClock


async def claimed(lab: Lab, topic_id: object) -> list[int]:
    aged = await lab.control.pipeline.aged_partitions(
        {t.id: 0 for t in await lab.control.topics.all()}
    )
    return [each.partition for each in aged if each.claimed and each.topic_id == topic_id]


async def run_with_clock(
    lab: Lab, jobs: LocalJobs, clock: ManualClock, control: ControlPlane
) -> Report:
    async with lab.driver(jobs, control=control, clock=clock) as driver:
        return await driver.run()


async def test_claims_are_renewed_again_after_an_error_that_nobody_expected(lab: Lab) -> None:
    topic = await lab.topic()
    await lab.fill(topic)
    clock, watched = ManualClock(SystemClock().now_ms()), FailingControl(lab.control)
    watched.errors["pipeline.renew_claims"] = KeyError("a mistake of ours")
    jobs = lab.jobs()

    async def pass_the_time(_: Task) -> None:
        await clock.advance(EAGER.splitter_claim_duration_ms / 1000)

    jobs.before = jobs.after = pass_the_time
    report = await run_with_clock(lab, jobs, clock, watched)
    assert report.segments == 2
    assert watched.calls.count("pipeline.renew_claims") >= 2


@pytest.mark.parametrize("error", [ControlUnavailableError, CommitInDoubtError])
async def test_claims_that_cannot_be_given_back_cost_no_other_work(
    lab: Lab, error: type[Exception]
) -> None:
    using(lab, replace(EAGER, task_bytes=1))
    topic = await lab.topic(6)
    await lab.fill(topic)
    watched = FailingControl(lab.control)
    watched.errors["pipeline.release_claims"] = error("made to fail")
    report = await lab.run(control=watched)
    assert report.segments == 6
    assert report.merged_partitions == 6
    assert await claimed(lab, topic.id) == []
    await lab.check(topic)


async def test_a_failure_that_cannot_be_counted_is_told_all_the_same(lab: Lab) -> None:
    topic = await lab.topic(2)
    await lab.fill(topic)
    spoil(lab, await lab.write(topic, {0: [2], 1: [2]}), 1)
    watched = FailingControl(lab.control)
    watched.errors["pipeline.fail_claims"] = ControlUnavailableError("made to fail")
    report = await lab.run(control=watched)
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
    assert await die_at(lab, 0) is None
    await expire_claims(lab)
    assert await die_at(lab, 2) is None, "it looks at the claims first"
    # Two tasks are one job.
    assert await failures(lab) == [
        *((partition, 1, False) for partition in (0, 1)),
        *((partition, 0, False) for partition in range(2, 6)),
    ]
    await expire_claims(lab)
    assert (await lab.run()).segments == 6


@pytest.mark.parametrize("tiering", [EAGER, PATIENT])
async def test_what_kills_its_driver_every_time_is_parked_alone(
    lab: Lab, tiering: TieringSettings
) -> None:
    using(lab, replace(tiering, task_bytes=1 << 20))
    topic = await lab.topic(40)
    await lab.fill(topic, blocks=5)
    deaths = 0
    while (report := await die_at(lab, 17)) is None:
        deaths += 1
        await expire_claims(lab)
    assert deaths == tiering.max_attempts
    assert report.failed == {}
    assert [one for one in await failures(lab) if one[1]] == [(17, deaths, True)]
    left = {partition for partition in range(40) if await lab.rows(topic, partition) > 1}
    assert left <= {17}, "all others are converted, or split"
    await lab.check(topic)


async def die_at(lab: Lab, partition: int) -> Report | None:
    """A run whose driver dies when that partition is converted or split; None if it did."""
    dying, jobs = FailingControl(lab.control), lab.jobs()

    async def die(task: Task) -> None:
        is_rewrite = isinstance(task, RewriteTask)
        if not is_rewrite and any(rows[0].partition == partition for rows in task.row_lists):
            dying.crash_at = ("pipeline.release_claims", "before")
            raise Crash("killed")

    jobs.before = die
    try:
        return await lab.run(jobs, control=dying)
    except Crash:
        return None


@pytest.mark.parametrize("error", [ControlUnavailableError, CommitInDoubtError])
async def test_work_goes_on_if_its_beginning_cannot_be_noted(
    lab: Lab, error: type[Exception]
) -> None:
    topic = await lab.topic()
    await lab.fill(topic)
    watched = FailingControl(lab.control)
    watched.errors["pipeline.begin_claims"] = error("made to fail")
    report = await lab.run(control=watched)
    assert (report.segments, report.failed) == (2, {})
