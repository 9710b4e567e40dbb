"""The driver beside other runs: lost claims, shared work, and rows that changed after the look."""

import asyncio
from dataclasses import replace

from tests.unit.pipeline.failing_control import FailingControl
from tests.unit.pipeline.lab import EAGER, PATIENT, Lab, expire_claims, take_over, using
from tests.unit.pipeline.local_jobs import nothing

from stratalog.clock import SystemClock
from stratalog.control.open import open_control_plane
from stratalog.pipeline.plan.tasks import Task
from stratalog.pipeline.report import Report
from stratalog.testing.clock import ManualClock


async def test_a_claim_that_another_run_took_over_commits_nothing(any_lab: Lab) -> None:
    lab = any_lab
    topic = await lab.topic()
    await lab.fill(topic)
    jobs = lab.jobs()
    jobs.after = lambda task: take_over(lab, topic)
    report = await using(lab, replace(EAGER, task_bytes=1 << 20)).run(jobs)
    assert (report.segments, report.overtaken, report.failed) == (0, 2, {})
    assert await lab.rows(topic, 0) == 6
    await expire_claims(lab)
    assert (await lab.run()).segments == 2
    await lab.check_clean()
    await lab.check(topic)


async def test_a_split_under_a_lost_claim_swaps_nothing(any_lab: Lab) -> None:
    lab = using(any_lab, PATIENT)
    topic = await lab.topic()
    await lab.fill(topic)
    jobs = lab.jobs()
    jobs.after = lambda task: take_over(lab, topic)
    report = await lab.run(jobs)
    assert (report.split_files, report.overtaken) == (0, 2)
    assert await lab.rows(topic, 0) == 6
    await lab.check(topic)


async def test_an_owner_that_wakes_up_late_finds_its_work_done(lab: Lab) -> None:
    topic = await lab.topic()
    await lab.fill(topic)
    jobs = lab.jobs()

    async def be_late(_: Task) -> None:
        await expire_claims(lab)
        assert (await lab.run()).segments == 2

    jobs.after = be_late
    report = await using(lab, replace(EAGER, task_bytes=1 << 20)).run(jobs)
    assert (report.segments, report.overtaken) == (0, 2)
    assert await lab.segments(topic, 0) == [(0, 24)]
    await lab.check_clean()
    await lab.check(topic)


async def test_two_drivers_share_the_work_and_do_nothing_twice(any_lab: Lab) -> None:
    lab = using(any_lab, replace(EAGER, task_bytes=1))
    topic = await lab.topic(8)
    await lab.fill(topic)
    other = await open_control_plane(lab.settings.storage.control)
    reports = await asyncio.gather(lab.run(), lab.run(control=other))
    await other.close()
    assert sum(report.segments for report in reports) == 8
    assert all((report.failed, report.overtaken) == ({}, 0) for report in reports)
    assert [await lab.segments(topic, p) for p in range(8)] == [[(0, 24)]] * 8
    await lab.check_clean()
    await lab.check(topic)


async def test_a_run_with_a_small_budget_works_on_what_no_other_run_has(any_lab: Lab) -> None:
    lab = using(any_lab, replace(EAGER, max_batches_per_run=12))
    topic = await lab.topic(4)
    await lab.fill(topic)
    jobs, reports = lab.jobs(), []

    async def run_another(_: Task) -> None:
        jobs.before = nothing
        reports.append(await lab.run())

    jobs.before = run_another
    reports.append(await lab.run(jobs))
    assert [report.segments for report in reports] == [2, 2]
    assert reports[0].waiting == {"in another run": 2}
    await lab.check(topic)


async def test_a_run_whose_whole_choice_was_claimed_after_the_look_looks_again(
    any_lab: Lab,
) -> None:
    lab = using(any_lab, replace(EAGER, max_batches_per_run=6))
    topic = await lab.topic(3)
    await lab.fill(topic)
    slow, jobs = FailingControl(lab.control), lab.jobs()
    others: list[asyncio.Future[Report]] = []
    claimed, done = asyncio.Event(), asyncio.Event()

    async def be_slow(_: Task) -> None:
        claimed.set()
        await done.wait()

    async def look_then_wait(ages_ms: object) -> object:
        found = await lab.control.pipeline.aged_partitions(ages_ms)  # type: ignore[arg-type]
        if not others:
            others.append(asyncio.ensure_future(lab.run(jobs)))
            await claimed.wait()
        return found

    jobs.before = be_slow
    slow.pipeline_aged_partitions = look_then_wait  # type: ignore[attr-defined]
    report = await lab.run(control=slow)
    done.set()
    assert (report.segments, report.elsewhere) == (1, 0)
    assert report.waiting == {"in another run": 1, "for the next run": 1}
    assert (await others[0]).segments == 1
    await lab.check(topic)


async def test_runs_go_on_although_all_was_converted_after_the_look(lab: Lab) -> None:
    using(lab, replace(EAGER, max_batches_per_run=6))
    topic = await lab.topic(3)
    await lab.fill(topic)
    slow = FailingControl(lab.control)
    others: list[Report] = []

    async def look_then_wait(ages_ms: object) -> object:
        found = await lab.control.pipeline.aged_partitions(ages_ms)  # type: ignore[arg-type]
        if not others:
            others.append(await lab.run())
        return found

    slow.pipeline_aged_partitions = look_then_wait  # type: ignore[attr-defined]
    async with lab.driver(control=slow) as driver:
        report = await driver.run_until_idle()
    assert (others[0].segments, report.segments, report.overtaken) == (1, 2, 1)
    await lab.check(topic)


async def test_a_range_that_was_converted_after_the_look_is_nobodys_failure(lab: Lab) -> None:
    topic = await lab.topic()
    await lab.fill(topic)
    slow = FailingControl(lab.control)

    async def look_then_wait(ages_ms: object) -> object:
        found = await lab.control.pipeline.aged_partitions(ages_ms)  # type: ignore[arg-type]
        await lab.run()
        return found

    slow.pipeline_aged_partitions = look_then_wait  # type: ignore[attr-defined]
    report = await lab.run(control=slow)
    assert (report.segments, report.failed, report.overtaken) == (0, {}, 2)
    await lab.check(topic)


async def test_a_range_that_was_split_after_the_look_is_cut_at_its_rows(lab: Lab) -> None:
    """Another run has seen more rows, and one of its new rows reaches beyond our claim."""
    using(lab, PATIENT)
    topic = await lab.topic(1)
    await lab.fill(topic)
    slow = FailingControl(lab.control)

    async def look_then_wait(ages_ms: object) -> object:
        found = await lab.control.pipeline.aged_partitions(ages_ms)  # type: ignore[arg-type]
        await lab.fill(topic)
        await lab.run()
        return found

    slow.pipeline_aged_partitions = look_then_wait  # type: ignore[attr-defined]
    report = await lab.run(control=slow)
    assert report.failed == {}
    await lab.check(topic)


async def test_claims_are_renewed_while_work_goes_on(lab: Lab) -> None:
    topic = await lab.topic()
    await lab.fill(topic)
    clock, watched = ManualClock(SystemClock().now_ms()), FailingControl(lab.control)
    jobs = lab.jobs()
    jobs.before = lambda task: clock.advance(EAGER.splitter_claim_duration_ms / 1000)
    async with lab.driver(jobs, control=watched, clock=clock) as driver:
        report = await driver.run()
    assert report.segments == 2
    assert watched.calls.count("pipeline.renew_claims") >= 2


async def test_a_unit_whose_claim_is_not_renewed_is_dropped(lab: Lab) -> None:
    topic = await lab.topic()
    await lab.fill(topic)
    clock, watched = ManualClock(SystemClock().now_ms()), FailingControl(lab.control)
    jobs = lab.jobs()

    async def lose_claims(_: Task) -> None:
        await expire_claims(lab)
        await clock.advance(EAGER.splitter_claim_duration_ms / 1000)
        await watched.answered["pipeline.renew_claims"].wait()

    jobs.after = lose_claims
    async with lab.driver(jobs, control=watched, clock=clock) as driver:
        report = await driver.run()
    assert (report.segments, report.overtaken) == (0, 2)
    assert "segments.add" not in watched.calls
